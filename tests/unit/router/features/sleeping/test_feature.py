"""Requests of groups that are scaled to zero, at the points of their life."""

import json

import pytest

from promptgroup_contract.table import Sleep
from promptgroup_router.decision.arrival import arrive
from promptgroup_router.decision.composition import features_of, router_state
from promptgroup_router.routing.points import NO_FEATURES, hold, restricted
from support.tables import group, revision, table
from support.wire import chat

ASLEEP = Sleep(wake_timeout=300, since="2026-11-03T11:00:00Z")


class Life:
    """Remembers what a held request is to do."""

    def __init__(self):
        self.events = []

    def go_on(self, candidates, now, *, wait):
        self.events.append(("goes on", len(candidates.members), wait))

    def give_up(self, error, now):
        self.events.append(("gives up", error.code))


@pytest.fixture
def state():
    return router_state()


def features(state, sleep, *, slots=0):
    state.install(table(group("a", revision(slots=slots), sleep=sleep)), "file", 1.0)
    body = json.dumps(chat(system="", model="a")).encode()
    return arrive(state, method=b"POST", path=b"/v1/chat/completions", headers={}, body=body, now=100.0).features


def held(state, waiting, life):
    return hold(waiting, life, state.index.groups[0].revisions[0].candidates, 100.0)


def test_a_group_that_never_sleeps_has_no_feature(state):
    assert features(state, None, slots=1) == NO_FEATURES


def test_a_request_is_held_and_goes_on_with_the_replica(state):
    life, waiting = Life(), features(state, ASLEEP)
    assert held(state, waiting, life) is waiting[0]
    assert list(state.features.waiting()) == [waiting[0].revision]
    state.features.sweep(101.0)
    assert life.events == []
    features(state, ASLEEP, slots=2)
    state.features.sweep(110.0)
    assert life.events == [("goes on", 2, 290.0)]
    assert list(state.features.waiting()) == []


def test_a_request_gives_up_in_time(state):
    life, waiting = Life(), features(state, ASLEEP)
    held(state, waiting, life)
    state.features.sweep(400.0)
    assert life.events == [("gives up", "starting")]


def test_one_that_may_not_wait_gets_the_reason(state):
    error = held(state, features(state, Sleep(wake_timeout=300, problem="no quota")), Life())
    assert error.code == "starting"
    assert "no quota" in str(error)


def test_a_gateway_that_allows_some_replicas_alone_wakes_the_group(state):
    assert restricted(features(state, ASLEEP), 100.0).code == "starting"
    assert state.metrics.wake_requests.values == {("chat/a",): 1}
    assert restricted(features(state, ASLEEP, slots=1), 101.0) is None


def test_what_is_stored_of_a_group_leaves_with_it(state):
    held(state, features(state, ASLEEP), Life())
    (_, waits), (_, called) = features_of(state).sleeping.gauges(state.metrics, state.index)
    assert (waits, list(called)) == ({("chat/a",): 1}, [("chat/a",)])
    state.features.keep(frozenset())
    assert features_of(state).sleeping.gauges(state.metrics, state.index)[1][1] == {}
