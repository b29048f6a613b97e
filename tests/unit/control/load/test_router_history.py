import gc
import tracemalloc
from datetime import timedelta

import pytest

from promptgroup_operator.load import router_history
from promptgroup_operator.load.router_history import FORGOTTEN, LATELY, SETTLED, WINDOW, RouterHistory
from promptgroup_operator.load.router_metrics import RevisionGauges, RouterCounts, parse
from promptgroup_operator.world.load import LOAD_WINDOW, PromptDrift
from promptgroup_operator.world.samples import Calls, Flow, Histogram, SlotUse, Stratum, StratumKey
from promptgroup_operator.world.snapshot import Key
from support.builders import NOW

KEY = Key("chat", "support")


def counts(requests, errors=0, **more):
    return RouterCounts({"aa": Flow(requests, requests)}, {"aa": {StratumKey(): Stratum(requests, errors)}}, **more)


def after(seconds):
    return NOW + timedelta(seconds=seconds)


def read(*readings, routers=("r",)):
    """Readings after (seconds, counts by router, in their order)."""
    found = RouterHistory()
    for seconds, *each in readings:
        for router, counted in zip(routers, each, strict=True):
            if counted is not None:
                found.add(router, {KEY: counted}, after(seconds))
    return found


def test_what_ran_before_the_first_reading_does_not_count():
    assert RouterHistory().traffic(KEY, NOW) is None
    traffic = read((0, counts(100)), (5, counts(130))).traffic(KEY, after(5))
    assert traffic.flows == {"aa": Flow(30, 30)}
    assert traffic.samples == {"aa": {StratumKey(): Stratum(30, 0)}}


def test_nothing_is_known_of_shares_before_some_time_has_passed():
    readings = read((0, counts(0)))
    assert not readings.traffic(KEY, NOW + SETTLED - timedelta(seconds=1)).settled
    assert readings.traffic(KEY, NOW + SETTLED).settled


def test_shares_are_of_the_window_samples_of_the_step():
    readings = read(*((second, counts(second * 10)) for second in range(0, 100, 5)))
    traffic = readings.traffic(KEY, after(95))
    assert traffic.flows["aa"].requests == pytest.approx(WINDOW.total_seconds() * 10)
    assert traffic.samples["aa"][StratumKey()].requests == 950
    readings.add("r", {KEY: counts(1000)}, after(100))
    readings.begin(KEY, 2)
    assert readings.traffic(KEY, after(100)).samples["aa"][StratumKey()].requests == 0
    readings.add("r", {KEY: counts(1010)}, after(105))
    readings.begin(KEY, 2)
    assert readings.traffic(KEY, after(105)).samples["aa"][StratumKey()].requests == 10


def test_routers_add_up_and_one_that_is_gone_is_of_the_step_but_not_of_the_window():
    readings = read((0, counts(0), counts(5)), (5, counts(10), counts(25)), routers="rs")
    assert readings.traffic(KEY, after(5)).flows["aa"].requests == 30
    for second in range(10, 60, 5):
        readings.add("r", {KEY: counts(10)}, after(second))
    traffic = readings.traffic(KEY, after(55))
    assert traffic.flows["aa"].requests == 0
    assert traffic.samples["aa"][StratumKey()].requests == 30


def test_readings_that_follow_each_other_fast_take_no_room_and_lose_nothing():
    readings = read(*((second, counts(second)) for second in range(61)))
    assert len(readings._groups[KEY].routers["r"].readings) <= LOAD_WINDOW.total_seconds() / 5 + 2
    assert readings.traffic(KEY, after(60)).flows["aa"].requests == pytest.approx(30, abs=5)


def test_routers_that_are_not_read_any_more_are_forgotten_and_groups_with_them():
    readings = read((0, counts(1), counts(1)), routers="rs")
    readings.add("r", {KEY: counts(2)}, NOW + FORGOTTEN)
    readings.forget(after(1) + FORGOTTEN)
    assert set(readings._groups[KEY].routers) == {"r"}
    readings.forget(NOW + 3 * FORGOTTEN)
    assert readings.traffic(KEY, NOW) is None


def test_clients_of_all_routers_together():
    one = {"stocks": {"aa": RevisionGauges(3, 900, 1, 1000)}}
    later = {"stocks": {"aa": RevisionGauges(5, 1500, 0, 4000)}}
    readings = read((0, counts(0, **one), counts(0, **one)), (60, counts(60, 6, **later), counts(30)), routers="rs")
    found = readings.clients(KEY, "aa", 96, after(60))
    assert (found.requests, found.errors, found.prompt_tokens) == (1.5, 0.1, 50)
    assert (found.sessions, found.session_tokens, found.held, found.declared_tokens) == (5, 1500, 0, 96)
    assert found.opening == 1.0
    assert readings.clients(KEY, "bb", 96, after(60)).requests == 0
    assert readings.clients(KEY, "bb", 96, after(60)).opening is None


def test_what_was_evicted_adds_up_by_its_distance():
    early, later = {"evicted": {"aa": {"4": 100.0}}}, {"evicted": {"aa": {"2": 60.0, "4": 400.0}}}
    readings = read((0, counts(0, **early), counts(0)), (60, counts(60, **later), counts(30, **early)), routers="rs")
    assert readings.clients(KEY, "aa", 96, after(60)).evicted == pytest.approx((1, 400 / 60, 0, 0, 0))
    assert readings.clients(KEY, "bb", 96, after(60)).evicted == (0, 0, 0, 0, 0)


def test_first_tokens_are_those_of_all_strata():
    def timed(named, matched):
        times = [Histogram((0.1, 1.0), each) for each in (named, matched)]
        kinds = StratumKey(), StratumKey(how="content")
        return RouterCounts(
            samples={"aa": {key: Stratum(9, first_token=each) for key, each in zip(kinds, times, strict=True)}}
        )

    readings = read((0, timed((1.0, 0.0, 0.0), (0.0, 0.0, 2.0))), (60, timed((4.0, 1.0, 0.0), (0.0, 0.0, 8.0))))
    assert readings.clients(KEY, "aa", 96, after(60)).first_token == Histogram((0.1, 1.0), (3.0, 1.0, 6.0))


def test_a_router_that_is_not_read_lately_says_nothing_of_clients():
    readings = read((0, counts(0), counts(0)), (30, counts(30), counts(30)), (90, counts(30), None), routers="rs")
    assert readings.clients(KEY, "aa", 96, after(95)).requests == 0
    assert readings.clients(KEY, "aa", 96, after(300)) is None


def test_a_group_that_comes_onto_a_page_counted_nothing_before():
    readings = RouterHistory()
    readings.add("r", {}, NOW)
    readings.add("r", {KEY: counts(30, near_misses=10, near_miss_offset=7)}, after(15))
    assert readings.clients(KEY, "aa", 96, after(15)).requests == 2
    assert readings.drift(KEY, 4000, after(15)) == PromptDrift(10 / 40, 7, 4000)
    assert readings.traffic(KEY, after(15)).samples["aa"][StratumKey()].requests == 30


def test_a_page_that_is_old_is_no_baseline():
    readings = RouterHistory()
    readings.add("r", {}, NOW)
    readings.add("r", {KEY: counts(30)}, NOW + 2 * LOAD_WINDOW)
    assert readings.clients(KEY, "aa", 96, NOW + 2 * LOAD_WINDOW) is None


def test_one_reading_says_nothing_of_clients():
    assert read((0, counts(7))).clients(KEY, "aa", 96, NOW) is None


def test_where_requests_leave_the_prompt():
    readings = read(
        (0, counts(0), counts(0), counts(0)),
        (
            60,
            counts(10, near_misses=10, near_miss_offset=0),
            counts(20, near_misses=40, near_miss_offset=120),
            counts(40, near_misses=30, near_miss_offset=900),
        ),
        routers="rst",
    )
    assert readings.drift(KEY, 4000, after(60)) == PromptDrift(80 / 150, 120, 4000)
    assert read((0, counts(0)), (60, counts(9))).drift(KEY, 4000, after(60)) is None


def test_a_revision_is_quiet_since_its_own_requests_ended():
    readings = read((0, counts(3), counts(3)), (30, counts(5), counts(3)), (60, counts(5), counts(3)), routers="rs")
    traffic = readings.traffic(KEY, after(60))
    assert traffic.quiet_since("aa") == after(30)
    assert traffic.quiet_since("bb") == after(0)


def test_no_revision_is_known_to_be_quiet_while_a_router_cannot_be_read():
    readings = read((0, counts(3), counts(3)), (30, counts(3), None), (100, counts(3), None), routers="rs")
    assert readings.traffic(KEY, after(100)).quiet_since("aa") is None


def test_the_use_of_slots_is_that_of_all_routers_at_their_last_reading():
    first, other = {"aa": {0: SlotUse(2, 800, 1)}}, {"aa": {0: SlotUse(1, 50, 2), 1: SlotUse(requests=1)}}
    readings = read(
        (0, counts(0, slots=other), None), (2, counts(1, slots=first), counts(0, slots=other)), routers="rs"
    )
    assert readings.slot_use(KEY, "aa", after(2)) == {0: SlotUse(3, 850, 3), 1: SlotUse(requests=1)}
    assert readings.slot_use(KEY, "bb", after(2)) == {}


def test_a_router_that_is_not_read_lately_says_nothing_of_slots():
    readings = read((0, counts(0, slots={"aa": {0: SlotUse(2, 800, 1)}})))
    assert RouterHistory().slot_use(KEY, "aa", NOW) == {}
    assert readings.slot_use(KEY, "aa", NOW + LATELY)
    assert readings.slot_use(KEY, "aa", NOW + LATELY + timedelta(seconds=1)) == {}


def page(reading, revision="r"):
    """A page of a hostile router: as many revisions of groups that exist as are read."""
    line = 'promptgroup_router_revision_requests_total{group="chat/%d",revision="%s%d"} %d\n'
    return "".join(line % (group, revision, number, reading) for group in range(7) for number in range(60))


def growth(readings):
    """Bytes that remain of readings of hostile pages, of two routers every five seconds."""
    found = RouterHistory()
    gc.collect()
    tracemalloc.start()
    try:
        for number, text in enumerate(readings):
            told = parse(text, lambda key: True)
            for router in "rs":
                found.add(router, told if router == "r" else parse(text, lambda key: True), after(5 * number))
        del told
        gc.collect()
        return tracemalloc.get_traced_memory()[0], found
    finally:
        tracemalloc.stop()


@pytest.mark.heavy
def test_hostile_pages_take_no_more_than_their_namespaces_share(monkeypatch, caplog):
    monkeypatch.setattr(router_history, "MEMORY", 1 << 19)
    taken, found = growth(page(number) for number in range(12))
    assert taken <= 0.6 * 2**19
    assert [each.message.split(":")[0] for each in caplog.records] == ["chat"], "said once"
    other = Key("sales", "support")
    for second in (0, 60):
        found.add("x", {other: counts(second)}, after(second))
    assert found.clients(other, "aa", 96, after(60)).requests == 1, "room is left for others"
    found.forget(after(240) + FORGOTTEN)
    assert not found._memory


@pytest.mark.heavy
def test_names_that_change_with_each_reading_are_forgotten():
    found = RouterHistory()
    for number in range(40):
        found.add("r", parse(page(number, f"{number}x"), lambda key: True), after(5 * number))
    assert max(len(group.routers["r"].rose) for group in found._groups.values()) == 60


def test_nothing_is_said_of_a_group_whose_readings_found_no_room_and_what_comes_then_is_no_news(monkeypatch):
    readings = read((0, counts(100, memory=1000), counts(10)), routers="rs")
    monkeypatch.setattr(router_history, "MEMORY", 2 * readings._memory["chat"])
    readings.add("r", {KEY: counts(130, memory=1000)}, after(5))
    readings.add("s", {KEY: counts(10)}, after(5))
    assert readings.traffic(KEY, after(5)) is readings.clients(KEY, "aa", 96, after(5)) is None
    assert readings.slot_use(KEY, "aa", after(5)) == {}
    monkeypatch.undo()
    for second in (10, 40):
        readings.add("r", {KEY: counts(130 + second)}, after(second))
        readings.add("s", {KEY: counts(10)}, after(second))
    assert readings.traffic(KEY, after(40)).flows["aa"].requests == 30


EARLIER = NOW - timedelta(hours=1)


def called(number, at=EARLIER):
    return counts(0, wake_requests=number, wake_at=at.timestamp() if number else 0)


def test_a_request_that_found_no_replica_is_told_by_the_time_at_which_its_count_grew():
    other = Key("chat", "guest")
    readings = read((0, called(0)), (1, called(0)))
    assert readings.calls((KEY, other), after(1)) == Calls(None, read=True)
    readings.add("r", {KEY: called(1), other: called(0)}, after(2))
    readings.add("r", {KEY: called(1), other: called(0)}, after(3))
    assert readings.calls((KEY, other), after(3)).at == after(2)
    readings.add("r", {KEY: called(1), other: called(4)}, after(4))
    assert readings.calls((KEY, other), after(4)).at == after(4)
    assert readings.calls((KEY,), after(4)).at == after(2)


@pytest.mark.parametrize(("at", "told"), [(EARLIER, EARLIER), (after(99), NOW)])
def test_an_operator_that_has_just_started_takes_the_routers_time_of_it(at, told):
    assert read((0, called(7, at))).calls((KEY,), NOW).at == told


@pytest.mark.parametrize("at", [-1.0, 1e300, float("inf"), float("nan")])
def test_a_time_that_is_none_is_not_taken(at):
    assert read((0, counts(0, wake_requests=1, wake_at=at))).calls((KEY,), NOW).at is None


def test_routers_that_were_not_read_lately_tell_nothing_of_now():
    readings = read((0, called(0)))
    assert readings.calls((KEY,), NOW + LATELY).read
    assert not readings.calls((KEY,), NOW + LATELY + timedelta(seconds=1)).read
    assert not RouterHistory().calls((KEY,), NOW).read
