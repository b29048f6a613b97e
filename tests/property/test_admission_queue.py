"""The queue of requests that wait for room: whoever else is full, a request that fits is found soon and cheaply."""

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_router.routing.admission_queue import LOOKS, AdmissionQueue, Share
from support.examples import examples

ROOMY = "roomy"

FULL = st.lists(
    st.tuples(
        st.integers(1, 30).map(lambda number: "same" if number % 3 == 0 else f"g{number}"),
        st.lists(st.tuples(st.integers(1, 6), st.integers(0, 2), st.booleans()), min_size=1, max_size=12),
    ),
    max_size=4 * LOOKS,
)
"""Full revisions: the group of each, and the requests, the class and whether they are new of each of its callers."""


def fill(queue, full):
    for revision, (group, callers) in enumerate(full):
        for caller, (requests, rank, new) in enumerate(callers):
            share = Share(group, f"c{caller}", rank=rank, revision=f"r{revision}")
            for _ in range(requests):
                queue.put(None, 0.0, new=new, share=share)


def calls_until_served(queue, most):
    """Return after how many calls the request that fits is served, none of which asks too many in vain."""
    for call in range(1, most + 1):
        vain, served = [], []
        queue.admit(lambda item, vain=vain, served=served: (served if item else vain).append(item) or bool(item), 0.5)
        assert len(vain) <= LOOKS
        if served:
            return call
    pytest.fail(f"the request that fits waits after {most} calls")


@examples(300)
@given(full=FULL, group=st.sampled_from(["same", "other"]), rank=st.integers(0, 2), at=st.integers(0, 4 * LOOKS))
def test_a_request_whose_revision_has_room_is_found_whichever_others_are_full(full, group, rank, at):
    queue = AdmissionQueue()
    fill(queue, full[:at])
    queue.put(ROOMY, 0.0, new=True, share=Share(group, "x", rank=rank, revision="roomy"))
    fill(queue, [(f"later-{group}", callers) for group, callers in full[at:]])
    places = len(queue._places)
    assert calls_until_served(queue, 1 if places <= LOOKS else ceil(2 * places / LOOKS)) >= 1


@examples(50)
@given(full=FULL.filter(bool))
def test_places_that_come_and_go_delay_nobody(full):
    """New ones line up behind: a request that waits is nearer to its turn with each call."""
    queue = AdmissionQueue()
    fill(queue, full)
    queue.put(ROOMY, 0.0, new=True, share=Share("other", "x", rank=2))
    places = len(queue._places)
    for call in range(ceil(2 * max(places, LOOKS + 1) / LOOKS)):
        for number in range(LOOKS):
            queue.put(None, 0.0, new=False, share=Share(f"come {call} {number}", "x"))
        served = []
        queue.admit(lambda item, served=served: bool(item) and (served.append(item) or True), 0.5)
        if served:
            return
    pytest.fail("the request that fits still waits")
