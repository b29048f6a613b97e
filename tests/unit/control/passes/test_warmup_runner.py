"""Warm-ups beside the passes, with engines that answer at once."""

import queue
from dataclasses import replace

import pytest

from promptgroup_contract.table import Prompt
from promptgroup_operator.adapters.identity import Adapter
from promptgroup_operator.api.prompt_group import EngineType
from promptgroup_operator.base.errors import EngineError
from promptgroup_operator.passes.warmup_runner import WarmupRunner
from promptgroup_operator.world.snapshot import Key
from promptgroup_operator.world.warming import Evidence, WarmReason, Warmup
from support.builders import NOW, TEXT

KEY = Key("chat", "support")
WARM = Evidence(shared_tokens=96, prompt_tokens=128, cached_tokens=96, step=16, caching=True)


def a_job(name, **fields):
    return Warmup(
        name, f"uid-{name}", name, "a:1", EngineType.VLLM, "llama", Prompt(TEXT), "c", 0, False, NOW, **fields
    )


class Engines:
    """Engines that all answer a proof as told."""

    def __init__(self, answer):
        self.answer, self.asked, self.ranks, self.models = answer, [], [], []

    def of(self, group, container):
        self.asked.append(container)
        return self

    def prove(self, address, dialect, model, prompt, rank=None):
        self.ranks.append(rank)
        self.models.append(model)
        answer = self.answer[rank] if isinstance(self.answer, list) else self.answer
        if isinstance(answer, Exception):
            raise answer
        return answer


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


RANKED = replace(WARM, ranks=3)
RANKS = {
    "each rank holds the prefix": ([RANKED] * 3, WarmReason.PROVEN, [0, 1, 2]),
    "one does not": ([RANKED, replace(RANKED, cached_tokens=0), RANKED], WarmReason.NOT_CACHED, [0, 1]),
    "one took nothing": ([RANKED, replace(RANKED, reached=False), RANKED], WarmReason.NOT_CACHED, [0, 1]),
    "there are more": ([replace(WARM, ranks=4)] * 3, WarmReason.RANKS_DIFFER, [0, 1, 2]),
    "there are fewer": ([RANKED, EngineError("out of range", status=400), RANKED], WarmReason.REFUSED, [0, 1]),
    "an engine shows a rank with its first request": (
        [replace(WARM, ranks=1), replace(WARM, ranks=2), RANKED],
        WarmReason.PROVEN,
        [0, 1, 2],
    ),
}


@pytest.mark.parametrize(
    ("told", "reason", "asked"), [((answer,), *rest) for answer, *rest in RANKS.values()], indirect=["told"], ids=RANKS
)
def test_a_replica_is_proven_once_each_of_its_ranks_is(told, reason, asked):
    told.runner.want(KEY, [a_job("p0", ranks=3)], NOW)
    while (line := told.next())[0] != "report":
        assert line == ("spend", "p0")
    assert line == ("report", "p0", reason)
    assert told.engines.ranks == asked


def test_an_adapter_that_is_refused_is_told_and_nothing_is_proven(told):
    adapter = Adapter("tone", "example/tone")
    told.engines.ask = lambda *_: {"data": [{"id": adapter.served, "root": "/elsewhere", "parent": "llama"}]}
    told.runner.want(KEY, [replace(a_job("p0"), loads=adapter)], NOW)
    assert told.next() == ("report", "p0", WarmReason.NO_ADAPTER)
    assert told.engines.ranks == []


@pytest.mark.parametrize(("engine", "expected"), [(EngineType.VLLM, "{}"), (EngineType.SGLANG, "llama:{}")])
def test_the_proof_asks_for_the_adapter_as_requests_do(told, engine, expected):
    adapter = Adapter("tone", "example/tone")
    told.runner.want(KEY, [replace(a_job("p0"), engine=engine, adapter=adapter)], NOW)
    while told.next()[0] != "report":
        pass
    assert told.engines.models == [expected.format(adapter.served)]
