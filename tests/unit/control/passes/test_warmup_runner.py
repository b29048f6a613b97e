"""Warm-ups beside the passes, with engines that answer at once."""

import queue

import pytest

from promptgroup_contract.table import Prompt
from promptgroup_operator.api.prompt_group import EngineType
from promptgroup_operator.base.errors import EngineError
from promptgroup_operator.passes.warmup_runner import WarmupRunner
from promptgroup_operator.world.snapshot import Key
from promptgroup_operator.world.warming import Evidence, WarmReason, Warmup
from support.builders import NOW, TEXT

KEY = Key("chat", "support")
WARM = Evidence(shared_tokens=96, prompt_tokens=128, cached_tokens=96, step=16, caching=True)


def a_job(name):
    return Warmup(name, f"uid-{name}", name, "a:1", EngineType.VLLM, "llama", Prompt(TEXT), "c", 0, False, NOW)


class Engines:
    """Engines that all answer a proof as told."""

    def __init__(self, answer):
        self.answer, self.asked = answer, []

    def of(self, group, container):
        self.asked.append(container)
        return self

    def prove(self, address, dialect, model, prompt, rank=None):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Told:
    """What the runner tells, in order."""

    def __init__(self, answer, fails=0):
        self.engines, self.lines, self.fails = Engines(answer), queue.Queue(), fails
        self.runner = WarmupRunner(self.engines, 1, self.report, self.spend)

    def report(self, key, job, outcome):
        self.lines.put(("report", job.pod, outcome.reason))
        if self.fails:
            self.fails -= 1
            raise ValueError("a fault of our own")

    def spend(self, container, spent):
        self.lines.put(("spend", container))

    def next(self):
        return self.lines.get(timeout=10)


@pytest.fixture
def told(request):
    found = Told(*getattr(request, "param", (WARM,)))
    yield found
    found.runner.close()


FAILURES = {
    "nobody answers": (EngineError("x"), WarmReason.UNREACHABLE),
    "the request is wrong": (EngineError("x", status=400), WarmReason.REFUSED),
    "there is no such model": (EngineError("x", status=404), WarmReason.REFUSED),
    "the last status of the client's faults": (EngineError("x", status=499), WarmReason.REFUSED),
    "it took too long": (EngineError("x", status=408), WarmReason.UNREACHABLE),
    "there are too many": (EngineError("x", status=429), WarmReason.UNREACHABLE),
    "the engine has a fault": (EngineError("x", status=500), WarmReason.UNREACHABLE),
    "it redirects": (EngineError("x", status=302), WarmReason.UNREACHABLE),
    "its certificate is another's": (EngineError("x", untrusted=True), WarmReason.UNTRUSTED),
}


@pytest.mark.parametrize(("told", "reason"), [((error,), why) for error, why in FAILURES.values()], indirect=["told"])
def test_a_proof_that_fails_says_if_to_try_again_helps(told, reason):
    told.runner.want(KEY, [a_job("p0")], NOW)
    assert told.next() == ("report", "p0", reason)


def test_what_a_proof_spent_is_told_before_its_outcome_and_then_the_next_begins(told):
    told.runner.want(KEY, [a_job("p0"), a_job("p1")], NOW)
    lines = [told.next() for _ in range(4)]
    assert lines == [
        ("spend", "p0"),
        ("report", "p0", WarmReason.PROVEN),
        ("spend", "p1"),
        ("report", "p1", WarmReason.PROVEN),
    ]


@pytest.mark.parametrize("told", [(WARM, 1)], indirect=True)
def test_a_report_that_fails_keeps_no_replica_waiting(told):
    told.runner.want(KEY, [a_job("p0"), a_job("p1")], NOW)
    assert [told.next()[1] for _ in range(4)] == ["p0", "p0", "p1", "p1"]


def test_after_the_end_nothing_begins(told):
    told.runner.close()
    told.runner.want(KEY, [a_job("p0")], NOW)
    assert not told.engines.asked
