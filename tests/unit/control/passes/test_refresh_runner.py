"""The memory of touches and what they tell, with engines that answer at once."""

import threading
from datetime import timedelta

import pytest
from prometheus_client import Counter

from promptgroup_contract.table import Prompt
from promptgroup_operator.base.errors import EngineError
from promptgroup_operator.passes.refresh_runner import FORGOTTEN, UNKNOWN_SPENT, RefreshRunner
from promptgroup_operator.warmth import refresh
from promptgroup_operator.world.snapshot import Key, Spent
from promptgroup_operator.world.warming import RefreshAnswer
from support.builders import NOW, TEXT, ago, pod, reading, spec

KEY = Key("chat", "support")
EVERY = timedelta(minutes=5)


class Scripted:
    """Engines that answer a touch as told, once they may."""

    def __init__(self, answer):
        self.answer, self.may, self.asked = answer, threading.Event(), 0

    def of(self, group, container):
        return self

    def refresh(self, address, dialect, model, prompt, needed, *, any_tier=False, rank=None):
        self.asked += 1
        assert self.may.wait(5)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def counter():
    return Counter("touches", "By what they found.", ["outcome"], registry=None)


class Told:
    """What the runner reports, in order."""

    def __init__(self, engines):
        self.lines = []
        self.ended = counter()
        self.runner = RefreshRunner(engines, self.report, self.spend, self.ended, lambda _: 0.0)

    def counted(self):
        samples = (each for family in self.ended.collect() for each in family.samples if each.name.endswith("_total"))
        return {each.labels["outcome"]: each.value for each in samples}

    def report(self, key, touch, outcome):
        self.lines.append(("report", key, touch.pod, outcome.reason))

    def spend(self, container, spent):
        self.lines.append(("spend", container, spent, self.runner.runs(container)))


@pytest.fixture
def run():
    """Run one touch of a replica to its end; gives what was told and the runner."""
    runners = []

    def run(answer, times=1):
        engines = Scripted(answer)
        told = Told(engines)
        runners.append(told.runner)
        told.runner.record(pod(), reading(), ago(minutes=6))
        seen = told.runner.last_seen(pod().container_id, pod().fingerprint)
        touch = refresh.due_refresh(pod(last_seen=seen), Prompt(TEXT), spec(), EVERY, NOW)
        for _ in range(times):
            told.runner.start(KEY, [touch])
        assert told.runner.runs(touch.container_id)
        engines.may.set()
        told.runner._pool._pool.shutdown(wait=True)
        assert not told.runner.runs(touch.container_id)
        return told, touch, engines

    yield run
    for runner in runners:
        runner.close()


def test_what_a_touch_spent_is_told_before_the_engine_may_be_read_again(run):
    told, touch, _ = run(RefreshAnswer(reading(10), 96, 96, Spent(100, 96)))
    assert told.lines == [("spend", touch.container_id, Spent(100, 96), True)]


def test_a_touch_that_found_the_prefix_gone_is_reported_and_remembered(run):
    told, _, _ = run(RefreshAnswer(reading(10), 0, 96, Spent(200, 96)))
    assert told.lines[1:] == [("report", KEY, "p0", "PrefixEvicted")]
    seen = told.runner.last_seen(pod().container_id, pod().fingerprint)
    assert seen.then == reading(10)
    assert seen.lost is not None


def test_a_touch_that_failed_is_tried_again_in_its_time_and_what_it_spent_is_not_known(run):
    told, touch, _ = run(EngineError("/metrics: ReadTimeoutError"))
    assert told.lines == [("spend", touch.container_id, UNKNOWN_SPENT, True)]
    seen = told.runner.last_seen(pod().container_id, pod().fingerprint)
    assert seen.at > touch.last_seen.at
    assert (seen.then, seen.lost) == (touch.last_seen.then, None)


OUTCOMES = {
    "PrefixCached": RefreshAnswer(reading(10), 96, 96, Spent(100, 96)),
    "PrefixEvicted": RefreshAnswer(reading(10), 0, 96, Spent(200, 96)),
    "CachedTokensNotReported": RefreshAnswer(reading(10), None, None, Spent(100, None)),
    "EngineUnreachable": EngineError("/metrics: ReadTimeoutError"),
}


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_touches_are_counted_by_what_they_found(run, outcome):
    told, _, _ = run(OUTCOMES[outcome])
    assert told.counted() == {outcome: 1}


def test_one_replica_has_one_touch_at_a_time(run):
    _, _, engines = run(RefreshAnswer(reading(10), 96, 96, Spent(100, 96)), times=3)
    assert engines.asked == 1


def test_readings_after_a_touch_do_not_move_what_it_saw():
    runner = RefreshRunner(Scripted(None), lambda *_: None, lambda *_: None, counter(), lambda _: 0.0)
    assert runner.last_seen(pod().container_id, pod().fingerprint) is None
    runner.record(pod(), reading(1), NOW)
    runner.record(pod(), reading(2), NOW + EVERY)
    seen = runner.last_seen(pod().container_id, pod().fingerprint)
    assert (seen.at, seen.then, seen.last) == (NOW, reading(1), reading(2))
    runner.close()


def test_containers_that_are_gone_are_forgotten_and_others_kept():
    runner = RefreshRunner(Scripted(None), lambda *_: None, lambda *_: None, counter(), lambda _: 0.0)
    runner.record(pod("p0"), reading(), NOW)
    runner.record(pod("p1"), reading(), NOW + FORGOTTEN)
    runner.forget(NOW + FORGOTTEN + timedelta(seconds=1))
    assert runner.last_seen(pod("p0").container_id, pod("p0").fingerprint) is None
    assert runner.last_seen(pod("p1").container_id, pod("p1").fingerprint) is not None
    runner.close()
