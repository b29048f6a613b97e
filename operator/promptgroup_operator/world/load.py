"""Values of the load of a group's engines and routers over a window.

Both sources (the operator's own scrapes, and Prometheus) return exactly these values, so that decisions do not depend
on the source. Warm-ups and refreshes, which are the operator's own requests, are excluded from all of them.
Unknown is not zero: a value that an engine does not report is None.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import zip_longest

from promptgroup_contract import names
from promptgroup_operator.world.samples import Histogram

PERIOD = timedelta(seconds=15)
"""Time between two passes over a group that is sized, and between readings of its engines and routers; the same as
HorizontalPodAutoscaler's (--horizontal-pod-autoscaler-sync-period)."""
LOAD_WINDOW = 4 * PERIOD
"""Length of the window of the operator's own readings: four periods, as long as the metrics of
HorizontalPodAutoscaler reach back."""

HIT_RATE_WINDOW = timedelta(seconds=names.HIT_RATE_SECONDS)
"""The window of the hit rate in a status."""


class TierReach(enum.StrEnum):
    """The replicas that can load from the KV tiers behind a group's engines."""

    NONE = "None"
    """There are no tiers."""
    REPLICA = "Replica"
    """Each replica loads from its own tier, so that the tiers grow with the number of replicas."""
    SHARED = "Shared"
    """All replicas load from one tier, whose size does not depend on their number."""
    UNSEEN = "Unseen"
    """There are tiers, but engines do not report the tokens loaded from them."""


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """The engines of one revision over a window. Rates are sums over all of its replicas, per second."""

    replicas: float
    """Replicas that were read, as a mean over the window: 4 when it began and 5 since its middle are 4.5."""
    coverage: float
    """Share of the replica-seconds of the window that readings cover, 0 to 1; gaps and missing replicas lower it."""
    requests: float
    """Requests that ended."""
    queries: float
    """Prompt tokens looked up in the prefix cache."""
    hits: float
    """Those of `queries` that were served from the prefix cache, or from a KV tier beyond the GPU's memory."""
    generated: float
    """Tokens of answers."""
    computed: float | None
    """Prompt tokens that were computed."""
    prefill_busy: float | None
    """Seconds that requests spent in prefill: 0.5 per second is half of one replica."""
    decode_busy: float | None
    """Seconds that requests spent in decode; several run at once in a replica, so this may exceed their number."""
    queue_busy: float | None
    """Seconds that requests spent waiting in engines: the mean length of all queues together."""
    running: float
    """Requests in the batches of all replicas together, as a mean."""
    waiting: float
    """Requests in the queues of all replicas together, as a mean."""
    usage: float
    """Share of the KV cache that running requests hold, the mean over replicas and time, 0 to 1."""
    preemptions: float | None
    """Running requests that were preempted and lost their KV blocks."""
    first_token: Histogram
    """Seconds from arrival to the first token, of the requests of the window (counts, not rates)."""
    kv_tokens: int
    """KV cache of one replica in tokens, the lowest of all replicas; 0 when unknown."""
    prefill_rate: float
    """Measured prompt tokens per second of one idle replica, the lowest of all replicas; 0 when unknown."""
    tiered: float = 0.0
    """Those of `hits` that came from a KV tier."""
    ranks: int = 1
    """Data-parallel ranks of a replica, each of which holds the Tier-1 prefix."""

    @property
    def hit_rate(self) -> float | None:
        """Share of looked-up tokens that were cached; None when nothing was looked up."""
        return min(1.0, self.hits / self.queries) if self.queries > 0 else None


@dataclass(frozen=True, slots=True)
class ClientLoad:
    """The requests of a revision over a window, as all routers together count them. Rates are per second."""

    requests: float
    """Requests that ended."""
    errors: float
    """Requests that failed: with status 5xx, or cut short by the engine."""
    prompt_tokens: float
    """Prompt tokens of the requests whose responses report them."""
    sessions: float | None
    """Sessions live at the end of the window (with a request in flight, or with one that ended recently)."""
    session_tokens: float | None
    """KV that all live sessions need beyond the Tier-1 prefix, in tokens."""
    declared_tokens: int
    """Length of the Tier-1 prefix; 0 when unknown."""
    first_token: Histogram
    """Seconds from the complete request to the first byte of streamed responses, measured at the router (counts, not
    rates)."""
    opening: float | None = None
    """Share of the requests that open a session, 0 to 1; None when routers do not report it."""
    held: float = 0.0
    """Requests that wait in routers for capacity, at the end of the window."""
    evicted: tuple[float, ...] = ()
    """Prompt tokens that replicas had evicted and recomputed, by the bands of EVICTED_WITHIN."""
    answer_tokens: float = 0.0
    """Output tokens of the responses that report them."""
    looked_up: float = 0.0
    """Those of the prompt tokens whose responses report cached tokens."""
    cached: float = 0.0
    """Those of `looked_up` that were served from cache."""

    @property
    def hit_rate(self) -> float | None:
        """Share of prompt tokens that were served from cache, as responses report it; None where none does."""
        return min(1.0, self.cached / self.looked_up) if self.looked_up > 0 else None


def summed(loads: Sequence[ClientLoad]) -> ClientLoad | None:
    """Return the sum of the client loads of several revisions on the same engines; None without any.

    The declared prefix is the mean over requests, and sessions that are unknown for one revision are unknown for all.
    """
    if len(loads) < 2:
        return loads[0] if loads else None
    opening = [(load.requests, load.opening) for load in loads if load.opening is not None]
    client_loads = [load for load in loads if load.sessions is not None and load.session_tokens is not None]
    whole = len(client_loads) == len(loads)
    return ClientLoad(
        requests=sum(load.requests for load in loads),
        errors=sum(load.errors for load in loads),
        prompt_tokens=sum(load.prompt_tokens for load in loads),
        sessions=sum(load.sessions or 0.0 for load in client_loads) if whole else None,
        session_tokens=sum(load.session_tokens or 0.0 for load in client_loads) if whole else None,
        declared_tokens=round(_mean([(load.requests, load.declared_tokens) for load in loads]) or 0.0),
        first_token=sum((load.first_token for load in loads), Histogram()),
        opening=_mean(opening),
        held=sum(load.held for load in loads),
        evicted=tuple(map(sum, zip_longest(*(load.evicted for load in loads), fillvalue=0.0))),
        answer_tokens=sum(load.answer_tokens for load in loads),
        looked_up=sum(load.looked_up for load in loads),
        cached=sum(load.cached for load in loads),
    )


def _mean(parts: Sequence[tuple[float, float]]) -> float | None:
    """Return the weighted mean; None where all weights are zero."""
    weight = sum(part for part, _ in parts)
    return sum(part * value for part, value in parts) / weight if weight else None


@dataclass(frozen=True, slots=True)
class PromptDrift:
    """The point at which the prompts of a group's requests differ from its declared prefix, as routers report it."""

    share: float
    """Share of the group's requests that differ, 0 to 1."""
    at: int
    """Median offset of the first byte that differs, in bytes of the declared system prompt's UTF-8."""
    length: int
    """Bytes of the declared system prompt."""


@dataclass(frozen=True, slots=True)
class GroupLoad:
    """The load of one group over a window: the only load that sizing and diagnosis use."""

    seconds: float
    """Length of the window."""
    engines: EngineLoad | None
    """None when there are too few readings."""
    clients: ClientLoad | None = None
    """None when no router could be read."""
    drift: PromptDrift | None = None
    """None when no router counted a near miss."""
    stale: str = ""
    """The reason why there is no newer data, for users ("Prometheus at … has not answered since 12:04"), or empty."""
    early: bool = False
    """True if readings began so recently that missing figures are no failure."""
    tiers: TierReach = TierReach.NONE
    """The KV tiers that the group's spec asks for."""
    is_guest: bool = False
    """True if the engines serve other groups as well, so that the figures of `engines` come from routers."""


@dataclass(frozen=True, slots=True)
class PoolMember:
    """A group of a pool."""

    name: str
    load: GroupLoad | None
    low: int
    """Minimum number of replicas; for a group with a fixed number, `low` and `high` are both that number."""
    high: int
    current: int
    ttft: float | None = None
    """Target in seconds."""
