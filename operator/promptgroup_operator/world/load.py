"""Values of what a group's engines and routers did over a window.

Whoever observes (a scrape of our own, or a query of Prometheus) gives this and nothing else, so that decisions do not
know where numbers come from. Warm-ups and refreshes, which are the operator's own, are left out of all of it.
Unknown is not zero: what an engine does not say is None.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import zip_longest

from promptgroup_contract import names
from promptgroup_operator.world.samples import Histogram

PERIOD = timedelta(seconds=15)
"""Time between two passes over a group that is sized, and between readings of its engines and routers: as
HorizontalPodAutoscaler's (--horizontal-pod-autoscaler-sync-period)."""
LOAD_WINDOW = 4 * PERIOD
"""Length of the window of the operator's own readings: as far back as HorizontalPodAutoscaler's
metrics reach, four of them."""

HIT_RATE_WINDOW = timedelta(seconds=names.HIT_RATE_SECONDS)
"""The window of the hit rate in a status."""


class TierReach(enum.StrEnum):
    """The replicas that can copy from the KV tiers behind a group's engines."""

    NONE = "None"
    """There are none."""
    REPLICA = "Replica"
    """Each replica from its own, so that more replicas have more of them."""
    SHARED = "Shared"
    """All of them from one, whose size does not follow their number."""
    UNSEEN = "Unseen"
    """There are some, and engines do not say what they bring."""


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
    """Those of them found there, or in a KV tier beyond the GPU's memory."""
    generated: float
    """Tokens of answers."""
    computed: float | None
    """Prompt tokens that were computed."""
    prefill_busy: float | None
    """Seconds that requests spent in prefill: 0.5 a second is half of one replica."""
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
    """Running requests that gave their blocks back."""
    first_token: Histogram
    """Seconds from arrival to the first token, of the requests of the window (counts, not rates)."""
    kv_tokens: int
    """Tokens of KV cache of one replica, the least of them; 0 when unknown."""
    prefill_rate: float
    """Prompt tokens a second that one idle replica was measured to compute, the least of them; 0 when unknown."""
    tiered: float = 0.0
    """Those of `hits` that came from a KV tier."""
    ranks: int = 1
    """Data-parallel ranks of a replica, each of which holds the Tier-1 prefix."""

    @property
    def hit_rate(self) -> float | None:
        """Share of looked-up tokens that were found; None when nothing was looked up."""
        return min(1.0, self.hits / self.queries) if self.queries > 0 else None


@dataclass(frozen=True, slots=True)
class ClientLoad:
    """The requests of a revision over a window, as all routers together saw them. Rates are per second."""

    requests: float
    """Requests that ended."""
    errors: float
    """Those of them that failed: 5xx, or cut short by the engine."""
    prompt_tokens: float
    """Prompt tokens of the requests whose answers report them."""
    sessions: float | None
    """Sessions live at the end of the window (in flight, or ended lately and expected back)."""
    session_tokens: float | None
    """KV that all of them together need beyond the Tier-1 prefix, in tokens."""
    declared_tokens: int
    """Length of the Tier-1 prefix; 0 when unknown."""
    first_token: Histogram
    """Seconds from the whole request to the first byte of answers that are streamed, at the router (counts, not
    rates)."""
    opening: float | None = None
    """Share of the requests that open a session, 0 to 1; None when routers do not say."""
    held: float = 0.0
    """Requests that wait in routers for room, at the end of the window."""
    evicted: tuple[float, ...] = ()
    """Prompt tokens that replicas had evicted and computed again, by the bands of EVICTED_WITHIN."""
    answer_tokens: float = 0.0
    """Tokens of answers that report them."""
    looked_up: float = 0.0
    """Those of the prompt tokens whose answers report what was found in cache."""
    cached: float = 0.0
    """Those of them that were found there."""

    @property
    def hit_rate(self) -> float | None:
        """Share of prompt tokens that were found in cache, as answers report it; None where none does."""
        return min(1.0, self.cached / self.looked_up) if self.looked_up > 0 else None


def summed(loads: Sequence[ClientLoad]) -> ClientLoad | None:
    """Return what the clients of several revisions on the same engines had together; None of none.

    The declared prefix is that of a mean request, and what is unknown of one is unknown of all.
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
    """Return the mean of values by their weights; None where nothing has a weight."""
    weight = sum(part for part, _ in parts)
    return sum(part * value for part, value in parts) / weight if weight else None


@dataclass(frozen=True, slots=True)
class PromptDrift:
    """Where the prompts that requests of a group bring leave its declared prefix, as the routers count it."""

    share: float
    """Share of the group's requests that do so, 0 to 1."""
    at: int
    """Offset of the first byte that differs, in bytes of the declared system prompt's UTF-8: the median of them."""
    length: int
    """Bytes of the declared system prompt."""


@dataclass(frozen=True, slots=True)
class GroupLoad:
    """All that sizing and diagnosis may look at of one group's window."""

    seconds: float
    """Length of the window."""
    engines: EngineLoad | None
    """None when too little was read to speak of."""
    clients: ClientLoad | None = None
    """None when no router could be asked."""
    drift: PromptDrift | None = None
    """None when no router saw any."""
    stale: str = ""
    """The reason why nothing newer is known, for people ("Prometheus at … has not answered since 12:04"), or empty."""
    early: bool = False
    """True if reading began so lately that missing figures are no failure."""
    tiers: TierReach = TierReach.NONE
    """The KV tiers that the group's spec asks for."""
    is_guest: bool = False
    """True if the engines serve other groups as well, so that the figures of `engines` are the routers'."""


@dataclass(frozen=True, slots=True)
class PoolMember:
    """A group of a pool."""

    name: str
    load: GroupLoad | None
    low: int
    """Least replicas; of a group with a fixed number, that number, as is the most."""
    high: int
    current: int
    ttft: float | None = None
    """Target in seconds."""
