"""The life of one request: what a driver is told to do, and that the books are closed once, at each of its ends."""

import gc
import json
import weakref

import pytest

from promptgroup_contract.table import Engine, Sleep, SlotState
from promptgroup_router.base.errors import ApiError, Failure
from promptgroup_router.decision.actions import Action, Refuse, Send
from promptgroup_router.decision.arrival import arrive
from promptgroup_router.decision.composition import features_of, router_state
from promptgroup_router.decision.life import RequestLife
from promptgroup_router.routing.admission_queue import NEW_SECONDS
from promptgroup_router.routing.points import RequestFeature
from support.tables import group, revision, slot, table
from support.wire import chat


class Driver:
    """Remembers the effects that come without an event of its own."""

    def __init__(self):
        self.effects = []

    def perform(self, effect):
        self.effects.append(effect)


@pytest.fixture
def state():
    state = router_state()
    state.install(table(group("a", revision(slots=2))), "file", 0.0)
    return state


def begin(state, driver, now=100.0):
    body = json.dumps(chat(system="", model="a")).encode()
    route = arrive(state, method=b"POST", path=b"/v1/chat/completions", headers={}, body=body, now=now)
    return RequestLife(state, route, driver, request_id=b"r1", path=b"", traceparent=b"", began=now, deadline=now + 60)


def in_flight(state):
    return sum(state.balancer.placed.loads.values())


def test_a_whole_answer(state):
    life = begin(state, Driver())
    assert isinstance(life.begin(100.0), Send)
    assert in_flight(state) == 1
    assert life.answered(200, 100.5) is Action.RELAY
    life.relaying(200, 100.5)
    life.ended(None, 101.0)
    assert in_flight(state) == 0


@pytest.mark.parametrize("end", ["client_left", "cut", "unseen", "replaced"])
def test_every_end_releases_the_replica(state, end):
    life = begin(state, Driver())
    life.begin(100.0)
    if end == "cut":
        life.relaying(200, 100.5)
        assert life.failed(Failure.RESET, 101.0) is Action.CUT
        life.cut(101.0)
    elif end == "replaced":
        life.replaced(404, 101.0)
    else:
        getattr(life, end)(101.0)
    assert in_flight(state) == 0


def test_a_failure_before_the_first_byte_leads_to_another_replica_and_then_to_an_error(state):
    life = begin(state, Driver())
    first, second = life.begin(100.0), life.failed(Failure.REFUSED, 100.1)
    assert isinstance(first, Send)
    assert isinstance(second, Send)
    assert first.member.id != second.member.id
    last = life.failed(Failure.REFUSED, 100.2)
    assert isinstance(last, Refuse)
    life.refused(last.error, last.error.status, 100.2)
    assert in_flight(state) == 0


def wait_for_room(state, driver):
    """Return a request that waits, since no replica has room: as long as `has_room` is False."""
    pick = state.balancer.pick
    room = []
    state.balancer.pick = lambda *args: pick(*args) if room else None
    life = begin(state, driver)
    assert life.begin(100.0) is Action.WAIT
    assert life.waits
    return life, room


@pytest.mark.interpreted
def test_a_request_that_waits_goes_on_by_its_driver(state):
    driver = Driver()
    life, room = wait_for_room(state, driver)
    state.admit_waiting(101.0)
    assert driver.effects == []
    room.append(True)
    state.admit_waiting(102.0)
    assert [type(effect) for effect in driver.effects] == [Send]
    assert not life.waits
    assert len(state.admission_queue) == 0


@pytest.mark.interpreted
@pytest.mark.parametrize("end", ["ended", "cut", "client_left", "replaced", "unseen"])
def test_the_end_of_a_request_makes_room_for_one_that_waits(state, end):
    running, driver = begin(state, Driver()), Driver()
    running.begin(100.0)
    _, room = wait_for_room(state, driver)
    room.append(True)
    if end in {"ended", "cut"}:
        running.relaying(200, 100.5)
    arguments = {"ended": (None,), "replaced": (404,)}.get(end, ())
    getattr(running, end)(*arguments, 101.0)
    assert [type(effect) for effect in driver.effects] == [Send]


@pytest.mark.interpreted
def test_a_request_that_has_waited_too_long_is_refused_by_its_driver(state):
    driver = Driver()
    life, _ = wait_for_room(state, driver)
    state.expire_waiting(101.0 + NEW_SECONDS)
    (effect,) = driver.effects
    assert isinstance(effect, Refuse)
    assert effect.error.code == "overloaded"
    assert not life.waits


@pytest.mark.interpreted
@pytest.mark.parametrize("end", ["client_left", "expired"])
def test_a_request_that_ends_while_it_waits_leaves_the_queue(state, end):
    driver = Driver()
    life, room = wait_for_room(state, driver)
    getattr(life, end)(101.0)
    assert len(state.admission_queue) == 0
    room.append(True)
    state.admit_waiting(102.0)
    assert driver.effects == []


def test_whose_books_are_closed_is_not_kept_in_memory(state):
    gc.disable()
    try:
        driver = Driver()
        life = begin(state, driver)
        driver.life = life  # as a relay holds it
        life.begin(100.0)
        life.relaying(200, 100.5)
        life.ended(None, 101.0)
        gone = weakref.ref(driver)
        del driver, life
        assert gone() is None
    finally:
        gc.enable()


def test_what_a_gateway_could_not_send_ejects_the_replica(state):
    life = begin(state, Driver())
    life.begin(100.0)
    life.exchange.not_sent(100.5)
    life.refused(ApiError(503, "no", code="no_answer"), 503, 100.5)
    assert in_flight(state) == 0
    assert isinstance(begin(state, Driver()).begin(100.6), Send)


def test_an_error_of_the_router_is_counted_by_its_status(state):
    life = begin(state, Driver())
    life.refused(ApiError(503, "no", code="overloaded"), 503, 100.0)
    lines = [
        line
        for line in state.exposition(100.0, 0).splitlines()
        if line.startswith("promptgroup_router_requests_total{")
    ]
    assert [line for line in lines if 'code="503"' in line and line.endswith(" 1")] != []


ASLEEP = Sleep(wake_timeout=300, since="2026-11-03T11:00:00Z", start=40)


def sleeping(sleep=ASLEEP, slots=0):
    return table(group("a", revision(slots=slots), sleep=sleep))


def switch(state, served, now):
    """Serve by another table, and look at who waits."""
    state.install(served, "file", now)
    state.expire_waiting(now)


@pytest.fixture
def asleep(state):
    switch(state, sleeping(), 1.0)
    return state


def test_a_request_for_a_sleeping_group_is_held_until_a_replica_is_warm(asleep):
    driver = Driver()
    life = begin(asleep, driver)
    assert life.begin(100.0) is Action.WAIT
    assert life.held
    asleep.expire_waiting(399.0)
    switch(asleep, sleeping(Sleep(wake_timeout=300, woken="2026-11-03T12:00:00Z")), 399.1)
    assert driver.effects == []
    switch(asleep, sleeping(Sleep(wake_timeout=300), slots=1), 399.2)
    assert [type(effect) for effect in driver.effects] == [Send]
    assert not life.held
    life.relaying(200, 399.5)
    life.ended(None, 400.0)
    assert in_flight(asleep) == 0
    assert len(features_of(asleep).sleeping.held) == 0


def test_held_requests_go_out_in_the_order_in_which_they_came(asleep):
    order = []

    class Ordered:
        def __init__(self, number):
            self.number = number

        def perform(self, effect):
            assert isinstance(effect, Send)
            order.append(self.number)

    lives = [begin(asleep, Ordered(number)) for number in range(20)]
    assert {life.begin(100.0) for life in lives} == {Action.WAIT}
    switch(asleep, sleeping(slots=1), 130.0)
    assert order == list(range(20))


def test_a_request_that_comes_with_the_replica_goes_behind_those_that_are_held(asleep):
    order = []

    class Ordered:
        def perform(self, effect):
            order.append(type(effect))

    lives = [begin(asleep, Ordered()) for _ in range(3)]
    assert {life.begin(100.0) for life in lives} == {Action.WAIT}
    asleep.install(sleeping(slots=1), "file", 130.0)
    assert isinstance(begin(asleep, Driver()).begin(130.0), Send)
    assert order == [Send] * 3


def test_a_held_request_is_refused_when_its_time_is_over(asleep):
    driver = Driver()
    life = begin(asleep, driver)
    life.begin(100.0)
    asleep.expire_waiting(400.0)
    (refused,) = driver.effects
    assert refused.error.status == 503
    assert refused.error.retry_after == 40
    assert "whether the operator runs" in str(refused.error)
    assert not life.waits


def test_those_who_wait_are_told_what_keeps_a_replica_from_starting(asleep):
    driver = Driver()
    begin(asleep, driver).begin(100.0)
    switch(asleep, sleeping(Sleep(wake_timeout=300, problem="exceeded quota: gpus")), 101.0)
    (refused,) = driver.effects
    assert "exceeded quota: gpus" in str(refused.error)
    assert isinstance(begin(asleep, Driver()).begin(102.0), Refuse)


def test_a_client_that_leaves_is_let_go(asleep):
    life = begin(asleep, Driver())
    life.begin(100.0)
    life.client_left(101.0)
    assert len(features_of(asleep).sleeping.held) == 0
    switch(asleep, sleeping(slots=1), 130.0)
    assert in_flight(asleep) == 0


def test_a_request_whose_replica_has_left_as_the_group_fell_asleep_is_held(state):
    switch(state, sleeping(slots=1), 50.0)
    driver = Driver()
    life = begin(state, driver)
    assert isinstance(life.begin(100.0), Send)
    switch(state, sleeping(), 100.1)
    assert life.failed(Failure.REFUSED, 100.2) is Action.WAIT
    assert life.held
    switch(state, sleeping(slots=1), 130.0)
    assert [type(effect) for effect in driver.effects] == [Send]


def test_one_whose_replica_is_gone_before_the_router_hears_of_it_is_held_once(state):
    switch(state, sleeping(slots=1), 50.0)
    driver = Driver()
    life = begin(state, driver)
    life.begin(100.0)
    assert life.failed(Failure.REFUSED, 100.2) is Action.WAIT
    switch(state, sleeping(slots=1), 399.0)
    assert [type(effect) for effect in driver.effects] == [Send]
    assert life.failed(Failure.REFUSED, 399.9) is Action.WAIT
    state.expire_waiting(400.2)
    assert [type(effect) for effect in driver.effects] == [Send, Refuse]


def test_a_request_that_an_engine_has_seen_is_not_held(state):
    switch(state, sleeping(slots=1), 50.0)
    life = begin(state, Driver())
    life.begin(100.0)
    switch(state, sleeping(), 100.1)
    assert isinstance(life.failed(Failure.RESET, 100.2), Refuse)


def test_a_group_that_is_scaled_to_zero_refuses_and_counts(state):
    others = group("b", revision("Another prompt.", slots=2))
    lone = revision(slots=0)
    state.install(table(group("a", lone, sleep=Sleep()), others), "file", 1.0)
    life = begin(state, Driver())
    refused = life.begin(100.0)
    assert "scaled to zero" in str(refused.error)
    life.refused(refused.error, refused.error.status, 100.0)
    assert state.metrics.wake_requests.values == {("chat/a",): 1}
    assert state.metrics.requests.values == {("chat/a", "503"): 1}


@pytest.mark.parametrize("sleep", [None, ASLEEP])
def test_a_sleeping_group_borrows_no_replica(state, sleep):
    settings = Engine(settings="equal")
    awake = group("b", revision("Another prompt.", slots=2, engine=settings))
    state.install(table(group("a", revision(slots=0, engine=settings), sleep=sleep), awake), "file", 1.0)
    assert isinstance(begin(state, Driver()).begin(100.0), Send) == (sleep is None)


def test_a_prompt_that_no_group_declares_wakes_the_group_that_would_serve_it(asleep):
    driver = Driver()
    body = json.dumps(chat(system="Nobody's.", model="llama")).encode()
    route = arrive(asleep, method=b"POST", path=b"/v1/chat/completions", headers={}, body=body, now=100.0)
    life = RequestLife(asleep, route, driver, request_id=b"r1", path=b"", traceparent=b"", began=100.0, deadline=160.0)
    assert life.begin(100.0) is Action.WAIT
    assert asleep.metrics.wake_requests.values == {("chat/a",): 1}
    switch(asleep, sleeping(slots=1), 130.0)
    assert [type(effect) for effect in driver.effects] == [Send]


def test_the_time_of_the_latest_request_that_found_no_replica_is_told(asleep):
    asleep.set_epoch(1_700_000_000.0)
    life = begin(asleep, Driver())
    life.begin(100.0)
    life.client_left(100.5)
    page = asleep.exposition(101.0, 0)
    assert 'promptgroup_router_wake_requests_total{group="chat/a"} 1' in page
    assert 'promptgroup_router_wake_last_request_timestamp_seconds{group="chat/a"} 1700000100' in page
    assert 'promptgroup_router_wake_waiting{group="chat/a"} 0' in page


def test_what_continues_a_response_that_is_gone_with_its_replica_is_not_held(state):
    switch(state, sleeping(slots=2), 50.0)
    body = json.dumps(chat(system="", model="a")).encode()
    route = arrive(state, method=b"POST", path=b"/v1/chat/completions", headers={}, body=body, now=100.0)
    route.candidates = route.candidates.only(route.candidates.ready[0])
    life = RequestLife(state, route, Driver(), request_id=b"r1", path=b"", traceparent=b"", began=100.0, deadline=160.0)
    assert isinstance(life.begin(100.0), Send)
    assert isinstance(life.failed(Failure.REFUSED, 100.2), Refuse)


class Resumable(RequestFeature):
    """A part of a request whose answer may go on on other replicas."""

    asks = False

    def rest(self, failure):
        return self

    def begins(self):
        return b": goes on\n\n"


def relaying(state, driver=None, *, slots=3, feature=None):
    """A request whose client gets its answer."""
    state.install(table(group("a", revision(slots=slots))), "file", 0.0)
    body = json.dumps(chat(system="", model="a")).encode()
    route = arrive(state, method=b"POST", path=b"/v1/chat/completions", headers={}, body=body, now=100.0)
    route.add(feature or Resumable())
    life = RequestLife(
        state, route, driver or Driver(), request_id=b"r1", path=b"", traceparent=b"", began=100.0, deadline=160.0
    )
    first = life.begin(100.0)
    life.relaying(200, 100.5)
    return life, first.member


@pytest.mark.interpreted
def test_an_answer_whose_replica_is_lost_goes_on_on_another(state):
    life, first = relaying(state)
    effect = life.failed(Failure.RESET, 900.0)
    assert isinstance(effect, Send)
    assert effect.member.id != first.id
    assert life.rest is not None
    assert in_flight(state) == 1
    assert life.goes_on(901.0) == b": goes on\n\n"
    assert life.rest is None
    life.ended(None, 902.0)
    assert in_flight(state) == 0


@pytest.mark.interpreted
def test_the_rest_is_asked_of_the_next_replica_and_the_answer_is_cut_when_there_is_none(state):
    life, first = relaying(state)
    second = life.failed(Failure.RESET, 900.0)
    third = life.failed(Failure.REFUSED, 900.1)
    assert len({first.id, second.member.id, third.member.id}) == 3
    # its client has a part of the answer, and cannot get an error instead
    assert life.failed(Failure.REFUSED, 900.2) is Action.CUT
    life.cut(900.3)
    assert in_flight(state) == 0


@pytest.mark.interpreted
def test_an_answer_that_cannot_go_on_is_cut(state):
    life, _ = relaying(state, feature=RequestFeature())
    assert life.failed(Failure.RESET, 101.0) is Action.CUT
    alone, _ = relaying(state, slots=1)
    assert alone.failed(Failure.RESET, 101.0) is Action.CUT


@pytest.mark.interpreted
def test_a_rest_that_waits_for_room_for_too_long_is_cut(state):
    driver = Driver()
    life, _ = relaying(state, driver)
    state.balancer.pick = lambda *args: None
    assert life.failed(Failure.RESET, 101.0) is Action.WAIT
    state.expire_waiting(200.0)
    assert driver.effects == [Action.CUT]


@pytest.mark.interpreted
def test_only_a_replica_that_must_leave_hands_its_answer_on(state):
    life, first = relaying(state)
    assert life.hand_on(101.0) is None
    slots = tuple(slot(number, SlotState.DRAINING if number == first.slot else SlotState.READY) for number in range(3))
    state.install(table(group("a", revision(slots=slots)), version="v2"), "file", 101.0)
    pick, state.balancer.pick = state.balancer.pick, lambda *args: None
    assert life.hand_on(102.0) is None  # nobody has room: it stays where it is
    assert in_flight(state) == 1
    state.balancer.pick = pick
    effect = life.hand_on(103.0)
    assert effect.member.id != first.id
    assert in_flight(state) == 1
    assert life.hand_on(104.0) is None  # it is on its way already
    life.goes_on(105.0)
    life.ended(None, 106.0)
    assert in_flight(state) == 0


@pytest.mark.interpreted
def test_a_replica_that_must_leave_gives_the_rest_itself_where_no_other_does(state):
    life, first = relaying(state)
    slots = tuple(slot(number, SlotState.DRAINING if number == first.slot else SlotState.READY) for number in range(3))
    state.install(table(group("a", revision(slots=slots)), version="v2"), "file", 101.0)
    tried = [life.hand_on(102.0), life.failed(Failure.REFUSED, 102.1), life.failed(Failure.REFUSED, 102.2)]
    assert [effect.member.id for effect in tried].index(first.id) == 2
    assert life.failed(Failure.REFUSED, 102.3) is Action.CUT
    life.cut(102.4)
    assert in_flight(state) == 0
