"""Computes how many replicas a described load needs, and the same for other loads. Does no I/O."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from promptgroup_cli.forecast import kv
from promptgroup_cli.forecast.estimate import EngineEstimate
from promptgroup_cli.forecast.forecast import Expectation, ReplicaForecast, Workload, expect, working_set
from promptgroup_cli.forecast.preview import least_replicas
from promptgroup_operator.sizing.limits import Limit

MOST = 512
"""Largest number of replicas that is tried: more is another design."""


@dataclass(frozen=True, slots=True)
class SizeQuestion:
    """A load to size for, and the engine that serves it."""

    name: str
    """Name of the model, for people."""
    engine: EngineEstimate
    replica: ReplicaForecast
    workload: Workload
    target: float
    """Target for the seconds to the first token, 95th percentile."""
    reported: kv.Agreement | None
    """Comparison of the KV tokens that an engine reported with those computed; None when none were given."""
    assumed: tuple[str, ...]
    """Assumptions in place of flags that were not given, a sentence each."""


@dataclass(frozen=True, slots=True)
class SizeCase:
    """One row of the sensitivity table."""

    what: str
    needed: int | None
    """Replicas that this case needs; None when MOST are too few."""
    expected: Expectation
    """Prediction for the replicas of the row."""


@dataclass(frozen=True, slots=True)
class SizeAnswer:
    """The answer."""

    question: SizeQuestion
    replicas: int | None
    """None when no number up to MOST keeps the target."""
    bound: Limit | None
    """Limit that one replica less would not keep; without a number, that MOST do not keep."""
    expected: Expectation
    """Prediction for these replicas; without a number, for as many as bear the load, or MOST."""
    cases: tuple[SizeCase, ...]
    working_set: kv.WorkingSetForecast
    offload: kv.Offload | None
    """None without a number."""


def answer(question: SizeQuestion) -> SizeAnswer:
    """Size a group."""
    workload, replica = question.workload, question.replica
    replicas, bound = least_replicas(workload, replica, question.target, MOST)
    given = replicas or least_replicas(workload, replica, None, MOST)[0] or MOST
    offload = None
    if replicas is not None:
        with_pool, _ = least_replicas(workload, replica, question.target, replicas, pooled=True)
        offload = kv.offload(replicas, with_pool or replicas, workload.history, replica.prefill_rate)
    return SizeAnswer(
        question=question,
        replicas=replicas,
        bound=bound,
        expected=expect(workload, replica, given),
        cases=tuple(_cases(question, given)),
        working_set=working_set(workload, replica),
        offload=offload,
    )


def _cases(question: SizeQuestion, replicas: int) -> Iterator[SizeCase]:
    asked, replica = question.workload, question.replica
    rows = [("as asked", asked, replicas)]
    if replicas > 1:
        rows.append(("one replica less", asked, replicas - 1))
    rows += [
        ("one replica more", asked, replicas + 1),
        ("half the sessions and rate", replace(asked, sessions=asked.sessions / 2, rate=asked.rate / 2), replicas),
        ("twice the sessions and rate", replace(asked, sessions=asked.sessions * 2, rate=asked.rate * 2), replicas),
        ("twice the prompt", replace(asked, prefix=asked.prefix * 2), replicas),
        ("twice the history", replace(asked, history=asked.history * 2), replicas),
    ]
    for what, workload, given in rows:
        needed, _ = least_replicas(workload, replica, question.target, MOST)
        yield SizeCase(what, needed, expect(workload, replica, given))
