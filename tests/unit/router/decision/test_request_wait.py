"""A request that waits: `test_life` has what a driver is told; this has the wait by itself."""

import json

import pytest

from promptgroup_router.base.errors import ApiError
from promptgroup_router.decision.actions import Action, Refuse, Send
from promptgroup_router.decision.arrival import arrive
from promptgroup_router.decision.composition import router_state
from promptgroup_router.decision.exchange import Exchange
from promptgroup_router.decision.record import RequestRecord
from promptgroup_router.decision.request_wait import RequestWait
from promptgroup_router.routing.points import RequestFeature
from support.tables import group, revision, table
from support.wire import chat


class Driver:
    def __init__(self):
        self.effects = []

    def perform(self, effect):
        self.effects.append(effect)


class Holder(RequestFeature):
    """Holds any request, or refuses it."""

    def __init__(self, answer):
        self.answer, self.gone = answer, False

    def hold(self, life, candidates, now):
        return self.answer

    def let_go(self):
        self.gone = True


@pytest.fixture
def state():
    state = router_state()
    state.install(table(group("a", revision(slots=2))), "file", 0.0)
    return state


def waiting(state, *features):
    body = json.dumps(chat(system="", model="a")).encode()
    route = arrive(state, method=b"POST", path=b"/v1/chat/completions", headers={}, body=body, now=100.0)
    for feature in features:
        route.add(feature)
    exchange = Exchange(state, route.candidates, route.demand, 160.0)
    driver = Driver()
    record = RequestRecord(state, route, exchange.attempts, b"r1", 100.0)
    return RequestWait(state, route, exchange, record, driver, timeout=60.0), driver


def test_a_request_in_the_queue_is_sent_once_a_replica_has_room(state):
    wait, driver = waiting(state)
    assert not wait.waits
    wait.enter_queue(100.0)
    assert (wait.waits, wait.held, wait.revision[0]) == (True, False, "chat/a")
    state.admit_waiting(101.0)
    assert [type(effect) for effect in driver.effects] == [Send]
    assert not wait.waits


def test_a_request_that_leaves_the_queue_is_not_sent(state):
    wait, driver = waiting(state)
    wait.enter_queue(100.0)
    wait.leave()
    state.admit_waiting(101.0)
    assert (driver.effects, wait.waits) == ([], False)


@pytest.mark.interpreted
def test_a_feature_holds_a_request_until_it_goes_on_or_leaves(state):
    holder = Holder(True)
    wait, driver = waiting(state, holder)
    assert wait.hold(Refuse(ApiError(503, "none")), 100.0) is Action.WAIT
    assert (wait.waits, wait.held) == (True, True)
    wait.go_on(None, 101.0, wait=1.0)
    assert [type(effect) for effect in driver.effects] == [Send]
    assert not wait.waits
    assert wait.hold(Refuse(ApiError(503, "none")), 102.0) is Action.WAIT
    wait.leave()
    assert (holder.gone, wait.held) == (True, False)


@pytest.mark.interpreted
def test_a_feature_may_name_the_error_or_leave_the_refusal_as_it_is(state):
    refused, other = Refuse(ApiError(503, "none")), ApiError(404, "other")
    assert waiting(state, Holder(other))[0].hold(refused, 100.0) == Refuse(other)
    assert waiting(state, Holder(False))[0].hold(refused, 100.0) is refused


def test_a_request_that_has_waited_for_too_long_is_refused(state):
    wait, driver = waiting(state)
    wait.enter_queue(100.0)
    wait.time_out(130.0)
    assert driver.effects[0].error.code == "overloaded"
    assert not wait.waits
