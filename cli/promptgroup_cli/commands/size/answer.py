"""Computes how many replicas a described load needs, and the same for other loads."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from promptgroup_cli.forecast import forecast as forecasts
from promptgroup_cli.forecast import kv
from promptgroup_cli.forecast import tiers as kv_tiers
from promptgroup_cli.forecast.estimate import EngineEstimate
from promptgroup_cli.forecast.forecast import (
    Expectation,
    ReplicaForecast,
    Workload,
    expect,
)
from promptgroup_cli.forecast.measured import Between, span
from promptgroup_cli.forecast.preview import TiersOf, least_replicas
from promptgroup_cli.forecast.reuse import ReuseCurve
from promptgroup_cli.forecast.tiers import KINDS, PoolVerdict, Tier, TierForecast, TierRow
from promptgroup_operator.sizing.limits import PROMPTS, Limit

PREFILL, TIER = "prefill", "tier"
MOST = 512
"""Largest number of replicas that is tried: more is another design."""


@dataclass(frozen=True, slots=True)
class MeasuredFigure:
    """A measured figure and its reliability."""

    name: str
    """PREFILL or TIER."""
    rate: float
    """Tokens a second."""
    error: float
    """Largest distance of a request from the line of the fit, as a share of its time."""
    between: Between

    @property
    def sureness(self) -> str:
        """The figure's error in words."""
        rates = f"{span(self.between)} tokens/s if one length is left out"
        return f"{rates}, requests are within {self.error:.0%} of the line"


@dataclass(frozen=True, slots=True)
class PromptsFit:
    """The prompts that a replica keeps warm, against its KV cache."""

    count: int
    tokens: int
    """Tokens of all of them."""
    kv_tokens: int
    """KV cache of the replica."""

    @property
    def share(self) -> float:
        """Share of the KV cache that they take."""
        return self.tokens / self.kv_tokens

    @property
    def fits(self) -> bool:
        """True if the condition PromptsFit of the groups would be True."""
        return self.share <= PROMPTS


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
    tiers: tuple[Tier, ...] = ()
    """KV tiers beyond the GPUs' memory to compare, the nearest first."""
    reuse: ReuseCurve | None = None
    """Hit rates of all cache sizes for a trace; None without a trace."""
    gpu_hour: float | None = None
    """Price of a GPU for an hour; None when none was given."""
    measured: tuple[MeasuredFigure, ...] = ()
    """Figures of the question that were measured."""
    longest: int | None = None
    """Tokens of the longest request that engines take (max_model_len); None when none were given."""
    prompts: PromptsFit | None = None
    """The prompts of all groups on a replica; its `kv_tokens` are without those of others. None if not given."""


@dataclass(frozen=True, slots=True)
class LongestSessions:
    """The KV of sessions that have grown to the longest request that engines take."""

    length: int
    fit: int
    """Such sessions that one replica holds beside the prompt that they share."""
    tokens: float
    """Tokens of all sessions of the load, if each were so long."""

    def shares(self, working_set: float) -> float:
        """Return how many times the working set these tokens are."""
        return self.tokens / working_set if working_set else math.inf


def longest_sessions(question: SizeQuestion) -> LongestSessions | None:
    """Return the KV of sessions of the greatest length; None where that length is not given."""
    if question.longest is None:
        return None
    workload, replica = question.workload, question.replica
    own = max(1.0, replica.held(question.longest) - workload.prefix)
    fit = int((replica.kv_tokens - workload.prefix) // own)
    return LongestSessions(question.longest, max(1, fit), workload.sessions * own)


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
    """None when no number up to MOST meets the target."""
    bound: Limit | None
    """Limit that one replica fewer would not meet; without a number, the limit that MOST do not meet."""
    expected: Expectation
    """Prediction for these replicas; without a number, for as many as bear the load, or MOST."""
    cases: tuple[SizeCase, ...]
    working_set: kv.WorkingSetForecast
    tiers: tuple[TierRow, ...]
    """The GPUs' memory alone, then with each tier in turn; empty when neither tiers nor a trace were given."""
    pool: PoolVerdict | None
    """None without a number of replicas, and where tiers were given."""


def answer(question: SizeQuestion) -> SizeAnswer:
    """Size a group."""
    workload, replica = question.workload, question.replica
    replicas, bound = least_replicas(workload, replica, question.target, MOST)
    given = replicas or least_replicas(workload, replica, None, MOST)[0] or MOST
    return SizeAnswer(
        question=question,
        replicas=replicas,
        bound=bound,
        expected=expect(workload, replica, given),
        cases=tuple(_cases(question, given)),
        working_set=forecasts.working_set(workload, replica),
        tiers=tuple(_rows(question, given)) if question.tiers or question.reuse else (),
        pool=_pool(question, replicas) if replicas is not None and not question.tiers else None,
    )


def _tiers_of(question: SizeQuestion, chosen: Sequence[Tier]) -> TiersOf:
    engine, prefix = question.engine, question.workload.prefix

    def of(replicas: int) -> Sequence[TierForecast]:
        return kv_tiers.forecasts(chosen, replicas, prefix, engine.token_bytes, engine.gpu.link * engine.gpus)

    return of


def _pool(question: SizeQuestion, replicas: int) -> PoolVerdict:
    """Judge a pool without bounds over the slowest of networks, where no tiers were given."""
    workload, replica = question.workload, question.replica
    pool = Tier(KINDS["tcp"], math.inf)
    of = _tiers_of(question, (pool,))
    needed, _ = least_replicas(workload, replica, question.target, replicas, of)
    compute = workload.history / replica.prefill_rate
    copy = of(replicas)[0].copy(replica.held(workload.history))
    return kv_tiers.judge(replicas, needed or replicas, compute, copy, pool.kind.text)


def _rows(question: SizeQuestion, given: int) -> Iterator[TierRow]:
    workload, replica, engine = question.workload, question.replica, question.engine
    reach = replica.kv_tokens * given
    for count in range(len(question.tiers) + 1):
        of = _tiers_of(question, question.tiers[:count])
        tier = question.tiers[count - 1] if count else None
        forecast = of(given)[-1] if tier is not None else None
        tokens = tier.size / engine.token_bytes if tier is not None else float(replica.kv_tokens)
        if tier is not None:
            reach = max(reach, round(tokens * (1 if tier.kind.shared else given)))
        expected = expect(workload, replica, given, of(given))
        needed, _ = least_replicas(workload, replica, question.target, MOST, of)
        compute, held = workload.history / replica.prefill_rate, replica.held(workload.history)
        yield TierRow(
            tier=tier,
            tokens=tokens,
            cached_histories=expected.cached_histories,
            hit_rate=expected.hit_rate,
            traced=question.reuse.hit_rate(reach) if question.reuse is not None else None,
            copy=forecast.copy(held) if forecast is not None else None,
            break_even=kv_tiers.break_even(forecast, replica.prefill_rate) if forecast is not None else None,
            uses=kv_tiers.uses_to_pay(forecast, held, compute) if forecast is not None else None,
            saved=(compute - forecast.copy(held)) * engine.gpus if forecast is not None else None,
            needed=needed,
        )


def _cases(question: SizeQuestion, replicas: int) -> Iterator[SizeCase]:
    requested, replica = question.workload, question.replica
    rows = [("as asked", requested, replica, replicas)]
    if replicas > 1:
        rows.append(("one replica less", requested, replica, replicas - 1))
    twice, half = (replace(requested, sessions=requested.sessions * by, rate=requested.rate * by) for by in (2, 0.5))
    rows += [
        ("one replica more", requested, replica, replicas + 1),
        ("half the sessions and rate", half, replica, replicas),
        ("twice the sessions and rate", twice, replica, replicas),
        ("twice the prompt", replace(requested, prefix=requested.prefix * 2), replica, replicas),
        ("twice the history", replace(requested, history=requested.history * 2), replica, replicas),
    ]
    for figure in question.measured:
        if figure.name == PREFILL:
            lowest = replace(replica, prefill_rate=figure.between[0])
            rows.append(("the lowest measured prefill rate", requested, lowest, replicas))
    for subject, workload, one, given in rows:
        needed, _ = least_replicas(workload, one, question.target, MOST)
        yield SizeCase(subject, needed, expect(workload, one, given))
