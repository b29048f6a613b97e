"""Workloads with their capacity and policies with their settings, by name."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from promptgroup_cli.reach.trace import BLOCK, read
from promptgroup_contract.table import Policy
from promptgroup_research.policies.cache_aware import CacheAware
from promptgroup_research.policies.dynamo import Dynamo
from promptgroup_research.policies.late_binding import LateBinding
from promptgroup_research.policies.oracle import Oracle
from promptgroup_research.policies.ours import Ours
from promptgroup_research.policies.random_choice import PowerOfTwo, RandomChoice
from promptgroup_research.policies.scorer import Scorer
from promptgroup_research.policies.session_ring import BoundedRing, SessionRing
from promptgroup_research.policies.sticky import Sticky
from promptgroup_research.simulator import shared_prefixes, trace, workloads
from promptgroup_research.simulator.engine import Model
from promptgroup_research.simulator.turns import Session
from promptgroup_research.simulator.world import Router

WARM_UP = 120.0
"""Seconds before requests are measured."""
SLOW_WARM_UP = 420.0
"""The same where sessions take minutes: a policy that spreads them fills every cache with copies, and collapses only
then."""
LENGTH = 300.0
"""Seconds that are measured."""
QUICK_LENGTH = 60.0
TUNING, JUDGING = (1, 2, 3), (11, 12, 13, 14, 15)
"""Seeds that parameters may be chosen on, and those that they are judged by."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Sessions for a rate of requests, and the engines they are for."""

    title: str
    capacity: float
    """Requests a second at which the oracle's mean wait is twice the mean own prefill: see `capacity.py`. Recompute
    with `python -m promptgroup_research --capacity`."""
    write: Callable[[float, float, int], list[Session]]
    """Rate, seconds, seed → sessions."""
    replicas: int = 8
    model: Model = field(default_factory=Model)
    warm_up: float = WARM_UP
    seeds: int = len(JUDGING)
    """Most seeds that are worth a run: those of a trace differ in its jitter and the sessions' keys alone."""
    whole: int = 0
    """Requests of a trace that is run from end to end; 0 for a workload of any length."""

    def length(self, rate: float, *, quick: bool) -> float:
        """Seconds of arrivals, the warm-up included."""
        if self.whole:
            return self.whole / rate / (4 if quick else 1)
        return self.warm_up + (QUICK_LENGTH if quick else LENGTH)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A trace in a file."""

    path: Path
    capacity: float = 0.0
    """Its `Workload.capacity`; 0 until `capacity.of_file` has measured it."""


def workload(name: str, recorded: Recorded | None = None) -> Workload:
    """Return the workload of this name; the trace is synthetic when no file is named.

    Raises:
        TraceError: the file is no trace.
    """
    if name == "trace":
        return _trace(recorded)
    return {
        "chat": Workload("task groups + chat", 65.9, workloads.chat, warm_up=SLOW_WARM_UP),
        "agents": Workload("agents, in bursts", 26.5, workloads.agents),
        "prompts": Workload("150 system prompts that no group declares", 16.0, _undeclared(workloads.SAAS)),
        "prefixes": Workload("the same in the one user message", 16.0, _undeclared(workloads.SAAS_IN_MESSAGE)),
        "documents": Workload("400 documents, then a question", 61.3, _undeclared(workloads.DOCUMENTS)),
        "helpers": Workload("helpers that share a task of 30,000 tokens", 12.0, workloads.subagents),
        "popular": Workload("400 prefixes, a few of them in most requests", 28.6, shared_prefixes.popular),
        "drifting": Workload("prefixes that are in use for two minutes", 58.7, shared_prefixes.drifting),
        "threads": Workload("conversations that begin with a shared prefix", 94.4, shared_prefixes.threads),
        "retrieval": Workload("four documents in any order", 16.0, shared_prefixes.retrieval),
        "examples": Workload("the first few examples of a template", 80.0, shared_prefixes.examples),
        "hot": Workload("one prefix in 70 % of requests", 60.0, shared_prefixes.hot),
        "tenants": Workload("tenants with a time of day", 40.0, shared_prefixes.tenants),
        "long": Workload(
            "chat beside documents of 20,000 tokens that nobody shares", 15.5, _beside_documents, warm_up=SLOW_WARM_UP
        ),
        "mixed": Workload("declared agents beside undeclared prefixes", 33.0, shared_prefixes.mixed),
    }[name]


def _beside_documents(rate: float, until: float, seed: int) -> list[Session]:
    return workloads.chat(rate, until, seed, shared=0.9, unique=(20_000, 0.6, 4000, 80_000))


def _undeclared(shape: workloads.Sharing) -> Callable[[float, float, int], list[Session]]:
    return lambda rate, until, seed: workloads.undeclared(rate, until, seed, shape)


SESSIONS = ("chat", "agents", "trace")
SHARING = ("prompts", "prefixes", "documents", "helpers")
"""Workloads of undeclared shared prefixes. Their capacity is not measured: three quarters of it are the
rates of published runs."""
OTHERS = ("popular", "drifting", "threads", "retrieval", "examples", "hot", "tenants", "mixed", "long")
"""Workloads without a gate, in which other rules of sharing may go wrong. The capacities of the first three were
measured in short runs, those of the others were not."""
GATED = (*SESSIONS, *SHARING)
"""The workloads that run by default."""
WORKLOADS = (*GATED, *OTHERS)


@cache
def _trace(recorded: Recorded | None) -> Workload:
    rows = read(recorded.path) if recorded else trace.synthetic(0)
    return Workload(
        f"trace {recorded.path.stem}" if recorded else "synthetic trace",
        recorded.capacity if recorded else 3.42,
        lambda rate, until, seed: [session for session in trace.sessions(rows, rate, seed) if session.began < until],
        model=Model(block=BLOCK),
        seeds=3,
        whole=len(rows),
    )


POLICIES: dict[str, Callable[[int], Router]] = {
    "round-robin": lambda _: Ours(Policy.ROUND_ROBIN),
    "random": RandomChoice,
    "least-request": lambda _: Ours(Policy.LEAST_REQUEST),
    "power-of-two": PowerOfTwo,
    "prefix-hash": lambda _: Ours(Policy.PREFIX_HASH),
    "session-ring": lambda _: SessionRing(),
    "kubeai-chwbl": lambda _: BoundedRing(),
    "sglang": lambda _: CacheAware(),
    "sglang-0.5": lambda _: CacheAware(0.5),
    "gie": lambda seed: Scorer(seed=seed),
    "gie-nocap": lambda seed: Scorer(None, seed),
    "llm-d-sticky": Sticky,
    "dynamo": lambda seed: Dynamo(seed=seed),
    "dynamo-w30": lambda seed: Dynamo(30, seed=seed),
    "dynamo-events-w30": lambda seed: Dynamo(30, events=True, seed=seed),
    "bounded-load": lambda _: Ours(Policy.BOUNDED_LOAD),
    "promptgroup": lambda _: Ours(),
    "promptgroup-2-routers": lambda seed: Ours(routers=2, seed=seed),
    "promptgroup-4-routers": lambda seed: Ours(routers=4, seed=seed),
    "late-binding": lambda seed: LateBinding(seed=seed),
    "late-binding-4-routers": lambda seed: LateBinding(routers=4, seed=seed),
    "oracle": lambda _: Oracle(),
}
"""Name → a new router, from a seed."""
