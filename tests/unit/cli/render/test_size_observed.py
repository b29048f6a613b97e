from dataclasses import replace

import pytest

from promptgroup_cli.forecast.forecast import ReplicaForecast, Workload, expect
from promptgroup_cli.forecast.preview import observed
from promptgroup_cli.render.size_observed import observed_size, table
from promptgroup_operator.sizing.limits import Limit
from promptgroup_operator.world.load import GroupLoad

CHAT = Workload(rate=20, sessions=400, prefix=3000, history=1200, turn=100, answer=200)
REPLICA = ReplicaForecast(kv_tokens=400_000, prefill_rate=10_000, step=0.007, context_rate=25e6)
LOAD = observed(CHAT, REPLICA, expect(CHAT, REPLICA, 4))


def small(kv_tokens):
    """The load of replicas whose cache is too small for it."""
    replica = replace(REPLICA, kv_tokens=kv_tokens)
    return observed(CHAT, replica, expect(CHAT, replica, 4))


def test_what_was_observed_stands_among_the_numbers_around_it():
    found = observed_size(LOAD, 0.3, 64)
    present = next(each for each in found.prospects if each.replicas == 4)
    assert [each.replicas for each in found.prospects] == [2, 3, 4, 5, 6]
    assert present.hit_rate == pytest.approx(LOAD.engines.hit_rate)
    assert (found.observed, found.rate, found.prompt_tokens) == (4, 20, 4300)


def test_what_is_needed_is_shown_even_far_from_what_there_is():
    found = observed_size(small(40_000), 0.3, 64)
    assert found.needed > 6
    assert found.prospects[-1].replicas == found.needed
    assert found.prospects[-1].lacks is None
    assert found.prospects[0].lacks is Limit.WORKING_SET
    assert "WorkingSetOutgrewCache" in table(found)


def test_a_need_beyond_the_most_is_none():
    found = observed_size(small(40_000), 0.3, 8)
    assert found.needed is None
    assert "more replicas than were tried" in table(found)


def test_an_idle_group_needs_one():
    quiet = replace(LOAD.engines, requests=0, queries=0, hits=0, generated=0, usage=0, running=0)
    assert observed_size(GroupLoad(600, quiet), None, 8).needed == 1


@pytest.mark.parametrize("stale", ["", "Prometheus at http://there does not answer"])
def test_nothing_known_is_said_with_its_reason(stale):
    with pytest.raises(ValueError, match=stale or "too little is known"):
        observed_size(GroupLoad(600, None, stale=stale), 0.3, 8)
