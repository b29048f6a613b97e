"""Predicts hit rate, utilization and time to first token of n replicas of a group. Does no I/O.

**Cache hits.** A request's prompt is Tier-1 prefix + history + turn. The prefix is cached in every replica, the turn in
none, and the history if it was not evicted since the session's last turn. By Che's approximation of a
least-recently-used cache (Che, Tung, Wang: Hierarchical Web caching systems, IEEE JSAC 20(7), 2002), with exponential
pauses between turns, KV that was not used for a time T is evicted, and T is the time in which the KV that is used fills
the capacity that running requests leave:

    capacity of n replicas - running x context = idle sessions x context x (1 - e^-x + x / (turns - 1))   x = T / pause
    share of histories that are cached = 1 - e^-x

The term 1 - e^-x is of sessions that return; x / (turns - 1) of those that ended within T, whose KV stays cached until
it is evicted. So sessions of five turns that just fit lose a third of their histories, and a cache of about twice their
KV retains nearly all.

**Utilization.** A request occupies a replica for `uncached / prefill rate`, and for the time that each token of its
answer adds to an engine step: `sequence + context / context rate`. The sum per second is the utilization u. A token of
an answer takes `step / (1 - u)`, which gives the number of running requests (Little's law). That number determines the
capacity that is left for histories, so the equations are solved by iteration.

**First token.** The time to first token is an engine step, with all concurrent decoding, and half a step of waiting for
it, plus queueing and prefill together as in an M/M/1 queue: exponential, with mean `prefill / (1 - u)`.

**Tiers.** KV that the GPUs have evicted may still be in a larger tier, whose share of histories follows from its
capacity by the same approximation. A copy takes no GPU time, since engines copy while other requests run, but its mean
is added to that of the prefill.

Once a load can be observed, the operator's model (`model.py`) is anchored to it and predicts changes only.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from promptgroup_cli.forecast.kv import WorkingSetForecast, context_share
from promptgroup_cli.forecast.model_config import ModelConfig
from promptgroup_cli.forecast.tiers import TierForecast
from promptgroup_operator.sizing.model import QUANTILE

SEQUENCE = 0.000_06
"""Seconds that a running request adds to a step at any length: sampling, scheduling (docs/research/policy.md)."""

ROUNDS = 100
CLOSE = 1e-6
"""Largest difference between two shares of histories at which the iteration ends."""


@dataclass(frozen=True, slots=True)
class Workload:
    """The requests of a group's clients; lengths are means, in tokens."""

    rate: float
    """Requests a second."""
    sessions: float
    """Sessions that are live at the same time."""
    prefix: int
    """The Tier-1 prefix: system prompt and tools."""
    history: float
    """Tokens of its session that a request repeats; the mean includes first turns, which repeat none."""
    turn: float
    """New tokens in a request."""
    answer: float

    @property
    def context(self) -> float:
        """Tokens of a session beyond the prefix, after a turn."""
        return self.history + self.turn + self.answer

    @property
    def turns(self) -> float:
        """Turns of a session: as many as make such a history where each turn is the last one equally likely."""
        return 1 + self.history / (self.turn + self.answer)

    @property
    def prompt(self) -> float:
        """Tokens of a request's prompt."""
        return self.prefix + self.history + self.turn


@dataclass(frozen=True, slots=True)
class ReplicaForecast:
    """The capacity of one replica."""

    kv_tokens: int
    prefill_rate: float
    """Prompt tokens a second."""
    step: float
    """Seconds of a decoding step of one request: reading the weights."""
    context_rate: float
    """Tokens of context a second that decoding reads."""
    shape: ModelConfig | None = None
    """Layers of the model; None when all of them keep every token."""

    def held(self, context: float) -> float:
        """Return the KV tokens that a session of so many tokens occupies, in units of one token in all layers."""
        return context * context_share(self.shape, context) if self.shape is not None else context


@dataclass(frozen=True, slots=True)
class Expectation:
    """The prediction for a number of replicas."""

    replicas: int
    use: float
    """Share of the KV cache that prefix and live sessions fill; more than 1 does not fit."""
    cached_histories: float
    """Share of sessions' histories that is cached when they return, in any tier, 0 to 1."""
    hit_rate: float
    """Share of prompt tokens that are cached, 0 to 1."""
    uncached: float
    """Tokens that a request computes, the mean."""
    utilization: float
    """Share of the time that replicas are busy; 1 and more cannot be served."""
    median: float
    """Seconds to the first token, p50; infinite when the load cannot be served."""
    ttft: float
    """The same, at the quantile that a target is about (p95)."""
    running: float
    """Requests that run at a time, on all replicas together."""


def working_set(workload: Workload, replica: ReplicaForecast) -> WorkingSetForecast:
    """Return the KV tokens that are needed again."""
    return WorkingSetForecast(workload.prefix, workload.sessions * replica.held(workload.context))


def cached_share(fill: float, turns: float) -> float:
    """Return the share of histories that are still cached when their session returns.

    Args:
        fill: capacity for idle sessions, divided by the KV of all sessions that will return.
        turns: turns of a session, more than 1.
    """
    if fill <= 0:
        return 0.0
    low, high = 0.0, fill * (turns - 1)  # the KV in use grows with x, and is more than x / (turns - 1)
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        if 1 - math.exp(-middle) + middle / (turns - 1) < fill:
            low = middle
        else:
            high = middle
    return 1 - math.exp(-high)


def expect(
    workload: Workload, replica: ReplicaForecast, replicas: int, tiers: Sequence[TierForecast] = ()
) -> Expectation:
    """Predict the figures of so many replicas; the module has the formulas.

    Args:
        workload: the requests of clients.
        replica: speed and capacity of one replica.
        replicas: at least 1.
        tiers: KV tiers beyond the GPUs' memory, the nearest first.
    """
    forecast = working_set(workload, replica)
    context = replica.held(workload.context)
    room = forecast.room(replica.kv_tokens, replicas)
    rate = workload.rate / replicas
    token = SEQUENCE + replica.held(workload.prefix + workload.context) / replica.context_rate
    decoding = rate * workload.answer * token
    # more hits shorten answers, so fewer requests run and more capacity is left: iterate down from all histories cached
    cached_histories = 1.0
    for _ in range(ROUNDS):
        uncached = workload.turn + (1 - cached_histories) * workload.history
        prefill = uncached / replica.prefill_rate
        utilization = rate * prefill + decoding
        running = min(workload.sessions, workload.rate * workload.answer * _stretch(replica.step, utilization))
        before = cached_histories
        cached_histories = _cached_histories(workload, context, room, running)
        copying = 0.0
        for tier in tiers:
            reached = max(cached_histories, _cached_histories(workload, context, tier.room, running))
            copying += (reached - cached_histories) * tier.copy(replica.held(workload.history))
            cached_histories = reached
        if before - cached_histories < CLOSE:
            break
    step = _step(replica.step, decoding, utilization)
    inf = prefill / (1 - utilization) + copying if utilization < 1 else math.inf
    return Expectation(
        replicas=replicas,
        use=forecast.use(replica.kv_tokens, replicas),
        cached_histories=cached_histories,
        hit_rate=1 - uncached / workload.prompt,
        uncached=uncached,
        utilization=utilization,
        median=_wait(step, inf, 0.5),
        ttft=_wait(step, inf, QUANTILE),
        running=running,
    )


def _cached_histories(workload: Workload, context: float, room: float, running: float) -> float:
    if not workload.history:
        return 1.0
    idle = workload.sessions - running
    left = room - running * context
    # no session is idle: those that run return at once
    return cached_share(left / (idle * context), workload.turns) if idle else float(left > 0)


def _stretch(step: float, utilization: float) -> float:
    """Return the seconds of a step, stretched by the utilization: only the idle share of time is left for it."""
    return step / (1 - utilization) if utilization < 1 else math.inf


def _step(step: float, decoding: float, utilization: float) -> float:
    """Return the seconds of a step and of the wait for it, with all concurrent decoding."""
    return 1.5 * (step + decoding * _stretch(step, utilization)) if utilization < 1 else math.inf


def _wait(step: float, mean: float, quantile: float) -> float:
    """Return the seconds to the first token: a step, and an exponential time with that mean."""
    return step - math.log(1 - quantile) * mean
