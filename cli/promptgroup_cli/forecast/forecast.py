"""Predicts what n replicas of a group will do. Does no I/O.

**Found in caches.** Of a request's prompt = Tier-1 prefix + history + turn the prefix is found in every replica, the
turn in none, and the history where it was not evicted since the session's last turn. By Che's approximation of a
least-recently-used cache (Che, Tung, Wang: Hierarchical Web caching systems, IEEE JSAC 20(7), 2002), with exponential
pauses between turns, what was not touched for a time T is gone, and T is the time in which what is touched fills the
room that requests which run leave:

    room of n replicas - running x context = idle sessions x context x (1 - e^-x + x / (turns - 1))       x = T / pause
    share of histories that are found = 1 - e^-x

The term 1 - e^-x is of sessions that come back; x / (turns - 1) of those that ended within T, which no cache knows. So
sessions of five turns that just fit lose a third of their histories, and about twice their KV keeps nearly all.

**Busy.** A request takes `uncached / prefill rate` of a replica, and each token of its answer what it adds to a step of
the engine: `sequence + context / context rate`. Both together per second are the utilization u. An answer's token takes
`step / (1 - u)`, which says how many requests run (Little's law), and so closes the circle with what caches keep.

**First token.** A step of the engine, with what decodes meanwhile, and half a step to wait for it; then queue and
prefill together, as of M/M/1: exponential, with mean `prefill / (1 - u)`.

**Tiers.** What the GPUs have lost may still be in a larger tier: its share of histories follows by the same
approximation from its room. A copy takes no time of the GPU, since engines copy while others run, but its mean is added
to that of the prefill.

Once there is something to observe, the operator's model (`model.py`) is anchored to it and predicts changes only.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from promptgroup_cli.forecast.kv import WorkingSetForecast, context_share
from promptgroup_cli.forecast.model_config import ModelConfig
from promptgroup_cli.forecast.tiers import TierForecast
from promptgroup_operator.sizing.model import QUANTILE

SEQUENCE = 0.000_06
"""Seconds that a running request adds to a step whatever its length: sampling, scheduling (docs/research/policy.md)."""

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
        """Return KV tokens that a session of so many tokens takes, by what all layers together keep of one token."""
        return context * context_share(self.shape, context) if self.shape is not None else context


@dataclass(frozen=True, slots=True)
class Expectation:
    """The prediction for a number of replicas."""

    replicas: int
    use: float
    """Share of the KV cache that prefix and live sessions fill; more than 1 does not fit."""
    kept: float
    """Share of sessions' histories that is found when they come back, in any tier, 0 to 1."""
    hit_rate: float
    """Share of prompt tokens that are found in caches, 0 to 1."""
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


def kept_share(fill: float, turns: float) -> float:
    """Return the share of histories that are still in the cache when a session comes back.

    Args:
        fill: room for idle sessions over the KV of all that will come back.
        turns: of a session, more than 1.
    """
    if fill <= 0:
        return 0.0
    low, high = 0.0, fill * (turns - 1)  # what is touched grows with x, and is more than x / (turns - 1)
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
    """Predict what so many replicas will do; the module has the formulas.

    Args:
        workload: what clients send.
        replica: what one can do.
        replicas: at least 1.
        tiers: where else KV is kept, the nearest first.
    """
    forecast = working_set(workload, replica)
    context = replica.held(workload.context)
    room = forecast.room(replica.kv_tokens, replicas)
    rate = workload.rate / replicas
    token = SEQUENCE + replica.held(workload.prefix + workload.context) / replica.context_rate
    decoding = rate * workload.answer * token
    # more that is found makes shorter answers, fewer that run, and more room: from everything found, down to the circle
    kept = 1.0
    for _ in range(ROUNDS):
        uncached = workload.turn + (1 - kept) * workload.history
        prefill = uncached / replica.prefill_rate
        utilization = rate * prefill + decoding
        running = min(workload.sessions, workload.rate * workload.answer * _stretch(replica.step, utilization))
        before = kept
        kept = _kept(workload, context, room, running)
        copying = 0.0
        for tier in tiers:
            reached = max(kept, _kept(workload, context, tier.room, running))
            copying += (reached - kept) * tier.copy(replica.held(workload.history))
            kept = reached
        if before - kept < CLOSE:
            break
    step = _step(replica.step, decoding, utilization)
    inf = prefill / (1 - utilization) + copying if utilization < 1 else math.inf
    return Expectation(
        replicas=replicas,
        use=forecast.use(replica.kv_tokens, replicas),
        kept=kept,
        hit_rate=1 - uncached / workload.prompt,
        uncached=uncached,
        utilization=utilization,
        median=_wait(step, inf, 0.5),
        ttft=_wait(step, inf, QUANTILE),
        running=running,
    )


def _kept(workload: Workload, context: float, room: float, running: float) -> float:
    if not workload.history:
        return 1.0
    idle = workload.sessions - running
    left = room - running * context
    # nobody who is idle: those who run come back at once
    return kept_share(left / (idle * context), workload.turns) if idle else float(left > 0)


def _stretch(step: float, utilization: float) -> float:
    """Return the seconds of a step with all that is done in it: time goes to decoding in the share that is left."""
    return step / (1 - utilization) if utilization < 1 else math.inf


def _step(step: float, decoding: float, utilization: float) -> float:
    """Return the seconds of a step and of the wait for it, with all that decodes."""
    return 1.5 * (step + decoding * _stretch(step, utilization)) if utilization < 1 else math.inf


def _wait(step: float, mean: float, quantile: float) -> float:
    """Return the seconds to the first token: a step, and an exponential time of that mean."""
    return step - math.log(1 - quantile) * mean
