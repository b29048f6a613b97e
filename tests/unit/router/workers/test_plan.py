from collections import Counter
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from promptgroup_router.proxy.body_budget import BodyBudget
from promptgroup_router.workers import plan
from support.wire import settings_for

subsets = st.integers(1, 8).flatmap(
    lambda places: st.tuples(
        st.just(places),
        st.integers(1, 2),
        st.sets(st.integers(0, places - 1)),
        st.sets(st.integers(0, places - 1)),
    )
)


@given(subsets)
def test_every_socket_has_somebody_who_accepts(case):
    places, addresses, serving, ready = case
    found = plan.sockets_of(places, places * addresses, sorted(serving), sorted(ready))
    assert set(found) == serving
    given_out = Counter(socket for sockets in found.values() for socket in sockets)
    assert set(given_out.values()) <= {1}
    assert set(given_out) == (set(range(places * addresses)) if serving else set())
    able = serving & ready or serving
    for place, sockets in found.items():
        if place not in able:
            assert not sockets
        else:  # its own, and a fair part of what the others leave
            assert {socket for socket in sockets if socket % places == place} == set(
                range(place, places * addresses, places)
            )
            left = (places - len(able)) * addresses
            assert len(sockets) - addresses <= -(-left // len(able))


def test_a_worker_that_ran_well_is_replaced_at_once_and_one_that_fails_ever_later():
    assert plan.delay(plan.STABLE_SECONDS, 1) == 0
    delays = [plan.delay(1.0, failures) for failures in range(1, 12)]
    assert delays[:4] == [0, 0.5, 1.0, 2.0]
    assert delays[-1] == plan.LAST_DELAY
    assert plan.delay(1.0, 10**6) == plan.LAST_DELAY


@given(st.integers(1, 63), st.integers(1, 2**30), st.integers(1, 2**30), st.integers(1, 10**6))
def test_shares_add_up_and_the_largest_body_fits_each(workers, body, memory, connections):
    whole = replace(settings_for(Path("t")), max_body_bytes=body, body_memory_bytes=memory, max_connections=connections)
    own = plan.share(whole, workers)
    assert BodyBudget(own.body_memory_bytes).fits(body, body)
    assert own.body_memory_bytes * workers >= memory
    assert connections <= own.max_connections * workers < connections + workers
    assert (own.workers, own.max_body_bytes) == (1, body)
