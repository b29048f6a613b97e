"""How many replicas a described load takes, and what happens when it is another. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from promptgroup_operator.sizing import kv
from promptgroup_operator.sizing.estimate import Engine
from promptgroup_operator.sizing.expectation import Expectation, Replica, Workload, expect, least, working_set

MOST = 512
"""Replicas that are tried: more is another design."""


@dataclass(frozen=True, slots=True)
class Question:
    """What was asked."""

    name: str
    """Of the model, for people."""
    engine: Engine
    replica: Replica
    workload: Workload
    target: float
    """Seconds to the first token, p95."""
    reported: kv.Agreement | None
    """Whether the KV tokens that an engine reported are as computed; None when none were given."""
    assumed: tuple[str, ...]
    """What nobody said, a sentence each."""


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the sensitivity table."""

    what: str
    needed: int | None
    """Replicas that this case takes; None when MOST are too few."""
    expected: Expectation
    """With the replicas of the row."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What is said."""

    question: Question
    enough: bool
    """Whether a number of replicas was found; otherwise the figures are of MOST."""
    expected: Expectation
    cases: tuple[Case, ...]
    working_set: kv.WorkingSet
    pool: kv.Pool


def answer(question: Question) -> Answer:
    """Size a group."""
    workload, replica = question.workload, question.replica
    share = kv.context_share(question.engine.model.shape, workload.context)
    found = least(workload, replica, question.target, MOST, share)
    expected = found if found is not None else expect(workload, replica, MOST, share)
    wanted = working_set(workload, share)
    return Answer(
        question=question,
        enough=found is not None,
        expected=expected,
        cases=tuple(_cases(question, expected.replicas, share)),
        working_set=wanted,
        pool=kv.pool(expected.kept, workload.history, replica.prefill_rate),
    )


def _cases(question: Question, replicas: int, share: float) -> Iterator[Case]:
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
    for what, workload, count in rows:
        found = least(workload, replica, question.target, MOST, share)
        yield Case(what, found.replicas if found is not None else None, expect(workload, replica, count, share))
