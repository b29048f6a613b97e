"""Predicts the load of a group's engines with another number of replicas from the observed load.

The model is anchored: for the observed number of replicas it returns the observed load, so it predicts only changes.

hit ratio     h(n) = tier_one + history r(n),  r(n) = min(1, n (SHARE kv - prefix) / working set)
              Sessions that fit are cached, the others are recomputed. With least recently used eviction and sessions
              that return equally often, the share that is cached is the share that fits (Che, Tung, Wang, IEEE JSAC
              2002, with one popularity; Denning, CACM 1968, for the working set).
              KV tiers behind the GPUs' memory hold the tokens that were loaded from them, and all that are used more
              often, since they are written through and evict the least recently used. Per-replica tiers grow with n; a
              shared tier does not, so the sessions that it holds or evicts do not require more replicas.
demand        D(n) = U(n) / R + B,  U(n) = (1 - h(n)) prompt tokens/s
              replica-seconds per second: prefill of uncached tokens, and decoding.
decoding      B = m (1 - U/(R m)) k u / (1 + k u) at the m replicas observed, u their KV usage
              A decode step reads the weights and the KV of running requests: its duration grows as 1 + k u, k = KV
              cache over weights in bytes (Pope et al., MLSys 2023, "Efficiently scaling transformer inference":
              decoding is bound by memory). The time above that of an empty step is the cost of decoding.
utilisation   rho(n) = D(n) / n
first token   T(n) = own(n) + excess(n): own(n) is the request's uncached prefill at rate R; the excess follows
              S(n) - own(n) + W(n), with S = own / (1 - B/n) and Sakasegawa's wait in M/G/n,
              W = V S rho^(sqrt(2(n+1)) - 1) / (n (1 - rho))  (Sakasegawa, Ann. Inst. Stat. Math. 29, 1977).
queue         where requests wait, the running ones are all that a replica can run: (running + waiting) / running m / n

The prefill rate R is measured by the proof of warmth, and lowered by requests' own prefill times (`prefill_rate`).
"""

import math
from dataclasses import dataclass, replace

from promptgroup_operator.sizing.max_hit_rate import SLACK, ceiling
from promptgroup_operator.sizing.prefill_rate import KV_OVER_WEIGHTS, interference, prefill_rate
from promptgroup_operator.world.load import GroupLoad, TierReach
from promptgroup_operator.world.samples import Histogram, quantile

SHARE = 0.75
"""Maximum share of a KV cache for live sessions: above it routers admit no new session (`NEW_SHARE` of their
admission), and hits begin to fall before the cache is full, since sessions are not distributed evenly."""
SATURATED = 0.98
"""Maximum utilisation for which waits are computed, since they would be infinite at 1."""
VARIABILITY = 2.0
"""(ca^2 + cs^2) / 2 of Sakasegawa's formula: arrivals in waves, prefills from a few tokens to a whole history."""
QUANTILE = 0.95
"""Quantile of the times to first token to which the target applies."""
TAIL = -math.log(1 - QUANTILE)
"""Ratio of that quantile to the mean, for an exponential distribution."""
FEW = 30
"""Minimum number of first tokens for a meaningful 95th percentile: with fewer, only the model is used."""
TIERED = 0.01
"""Minimum share of prompt tokens loaded from KV tiers for them to count as holding sessions; less is ignored."""
NO_QUEUE = 0.5
"""Waiting requests per replica that do not count as a queue: they begin with the next step."""


@dataclass(frozen=True, slots=True)
class Model:
    """A load and the engines' behaviour under it. Rates are per second, over all replicas together."""

    observed: float
    """Number of replicas with which the load was observed."""
    requests: float
    prompt_tokens: float
    tier_one: float
    """Share of prompt tokens that is served from the cached Tier-1 prefix, which every replica has."""
    history: float
    """Share of prompt tokens that is cached beyond the prefix when all live sessions fit."""
    prefix_tokens: int
    """Tokens that the Tier-1 prefix takes on a replica, once in each of its caches; 0 when unknown."""
    working_set: float | None
    """Tokens of the live sessions beyond the prefix, including sessions that wait for capacity; None when unknown."""
    kv_tokens: int
    """KV cache of one replica in tokens; 0 when unknown."""
    tiers: TierReach
    """The replicas that can load from the KV tiers, if any tokens were loaded; else NONE."""
    carried: float
    """Tokens of the working set that were cached at the observed number, in GPUs or tiers; 0 without such tiers."""
    rate: float
    """Prompt tokens per second of a replica that does nothing else."""
    decode: float
    """Replica-seconds per second that decoding takes."""
    running: float
    """Requests in the engines' batches."""
    queue: float
    """Requests that wait in engines, without those that begin with the next step and those that wait in routers."""
    prefill: float
    """Seconds that a request spent in prefill, as a mean; 0 when unknown."""
    first_token: float | None
    """Observed 95th percentile in seconds; None when there were too few requests."""

    def room(self) -> float | None:
        """Return the KV tokens of a replica that live sessions may take; None when unknown."""
        return max(0.0, SHARE * self.kv_tokens - self.prefix_tokens) if self.kv_tokens else None

    @property
    def sessions_need_replicas(self) -> bool:
        """Return True if more replicas increase the capacity for sessions, which they do not with a shared tier."""
        return self.tiers is not TierReach.SHARED

    def capacity(self, n: float) -> float | None:
        """Return the KV tokens of live sessions that `n` replicas and their tiers can hold; None when unknown."""
        room = self.room()
        if room is None:
            return None
        share = n / self.observed if self.tiers is TierReach.REPLICA else 1.0
        return max(n * room, share * self.carried)

    def filled(self, n: float) -> float | None:
        """Return the working set over its capacity; above 1 it does not fit. None when unknown."""
        capacity = self.capacity(n)
        return self.working_set / capacity if self.working_set is not None and capacity else None

    def resident(self, n: float) -> float:
        """Share of the live sessions that fits `n` replicas; if unknown, all observed capacity counts as needed."""
        capacity = self.capacity(n)
        if self.working_set is None or capacity is None:
            return min(1.0, n / self.observed)
        return min(1.0, capacity / self.working_set) if self.working_set > 0 else 1.0

    def hit_rate(self, n: float) -> float:
        """Share of prompt tokens served from cache."""
        return min(1.0, self.tier_one + self.history * self.resident(n))

    def prefilling(self, n: float) -> float:
        """Return the replica-seconds per second of uncached prefill."""
        return self.prompt_tokens * (1 - self.hit_rate(n)) / self.rate

    def own(self, n: float) -> float:
        """Return the mean seconds of a request's uncached prefill, alone on its replica."""
        return self.prefilling(n) / self.requests if self.requests > 0 else 0.0

    def demand(self, n: float) -> float:
        """Return the total replica-seconds per second."""
        return self.prefilling(n) + self.decode

    def utilisation(self, n: float) -> float:
        """Share of their time that `n` replicas are busy; above 1 the queue grows without limit."""
        return self.demand(n) / n

    def queueing(self, n: float) -> float:
        """Return the requests that run or wait, over those that `n` replicas can run; 0 without a queue.

        A waiting request begins when a running one ends, so at a ratio of 1 the queue is served.
        """
        running = max(self.running, self.observed)  # at least one per replica
        return (1 + self.queue / running) * self.observed / n if self.queue > 0 else 0.0

    def excess(self, n: float) -> float:
        """Return the modelled mean seconds to first token beyond the request's own prefill: sharing and waiting."""
        slowed = self.own(n) / (1 - min(SATURATED, self.decode / n))
        rho = min(SATURATED, self.utilisation(n))
        wait = VARIABILITY * slowed * math.pow(rho, math.sqrt(2 * (n + 1)) - 1) / (n * (1 - rho))
        return slowed - self.own(n) + wait

    def ttft(self, n: float) -> float:
        """Return the 95th percentile of the time to first token, in seconds."""
        shared, constant = self._seen()
        before = self.excess(self.observed)
        ratio = self.excess(n) / before if before > 0 else self.observed / n
        late = shared * ratio
        if n < self.observed:  # little delay was observed so far, so the ratio would underestimate it
            late = max(late, shared + TAIL * (self.excess(n) - before))
        return self._tail() * self.own(n) + constant + late

    def _tail(self) -> float:
        """Return the percentile of a request's own prefill over its mean; the observed first tokens limit it."""
        own = self.own(self.observed)
        return min(TAIL, self.first_token / own) if self.first_token is not None and own > 0 else TAIL

    def _seen(self) -> tuple[float, float]:
        """Return the parts of the observed excess that depend on the number of replicas, and that do not.

        The first part is the modelled excess, or the observed one: requests that queued, or took longer in prefill than
        alone. The rest is overhead, and prompts that are longer than in an exponential distribution; it does not change
        with the number of replicas.
        """
        modelled = TAIL * self.excess(self.observed)
        if self.first_token is None:
            return modelled, 0.0
        excess = max(0.0, self.first_token - self._tail() * self.own(self.observed))
        queued = self.queue / self.requests if self.requests else 0.0  # seconds: Little's law
        slowed = max(0.0, self.prefill - self.own(self.observed))
        shared = min(excess, max(modelled, TAIL * (queued + slowed)))
        return shared, excess - shared


def fit(load: GroupLoad) -> Model | None:
    """Return the model that reproduces the observed load; None where a measurement is missing."""
    engines, clients = load.engines, load.clients
    if engines is None or engines.replicas <= 0:
        return None
    rate = prefill_rate(load)
    if not rate and engines.queries > 0:
        return None
    rate = rate or 1.0  # there are no prompts
    hit_rate = engines.hit_rate or 0.0
    prefix = clients.declared_tokens if clients is not None else 0
    length = engines.queries / engines.requests if engines.requests > 0 else 0.0
    tier_one = min(hit_rate, prefix / length) if length > 0 else 0.0
    base = Model(
        observed=engines.replicas,
        requests=engines.requests,
        prompt_tokens=engines.queries,
        tier_one=tier_one,
        history=0.0,
        prefix_tokens=prefix * engines.ranks,
        working_set=None,
        kv_tokens=engines.kv_tokens,
        tiers=load.tiers if engines.tiered > TIERED * engines.queries else TierReach.NONE,
        carried=0.0,
        rate=rate,
        decode=_decode(load, rate),
        running=engines.running,
        queue=max(0.0, engines.waiting - NO_QUEUE * engines.replicas),
        prefill=(engines.prefill_busy or 0.0) / engines.requests if engines.requests > 0 else 0.0,
        first_token=_first_token(load),
    )
    most = (ceiling(load) or 1.0) - SLACK - tier_one
    seen = min(1.0, (hit_rate - tier_one) / most) if most > 0 else 1.0
    room = base.room() if base.tiers is TierReach.NONE else None
    working_set = _working_set(load, room, seen)
    carried = seen * working_set if working_set is not None and base.tiers is not TierReach.NONE else 0.0
    sized = replace(base, working_set=working_set, carried=carried)
    resident = sized.resident(engines.replicas)
    history = (hit_rate - tier_one) / resident if resident > 0 else 0.0
    return replace(sized, history=min(history, 1 - tier_one))


def credited(load: GroupLoad, hits: float) -> GroupLoad:
    """Return the load as it would have been with `hits` cached tokens, if that is more than were observed.

    Decoding keeps its cost in more available time, so it holds less of the KV cache. The observed times of first tokens
    and prefills are removed, since they would have been shorter.
    """
    engines, clients, nothing = load.engines, load.clients, Histogram()
    if engines is None or hits <= engines.hits:
        return load
    rate = prefill_rate(load)
    engine_load = replace(engines, hits=hits, prefill_rate=rate, computed=None, prefill_busy=None, first_token=nothing)
    spare = engines.replicas - (engines.queries - hits) / rate if rate else 0.0
    decoding = _decode(load, rate) / spare if spare > 0 and rate else 0.0
    usage = decoding / (1 - decoding) / KV_OVER_WEIGHTS if decoding < 1 else engines.usage
    served = replace(engine_load, usage=min(engines.usage, usage))
    return replace(load, engines=served, clients=replace(clients, first_token=nothing) if clients is not None else None)


def _decode(load: GroupLoad, rate: float) -> float:
    engines = load.engines
    if engines is None:
        return 0.0
    prefill = (engines.queries - min(engines.hits, engines.queries)) / rate
    return max(0.0, engines.replicas - prefill) * interference(engines.usage)


def _working_set(load: GroupLoad, room: float | None, seen: float) -> float | None:
    """Return the tokens of the live sessions beyond the Tier-1 prefix, including sessions that wait for capacity.

    Routers estimate the tokens of a session. `seen`, the share of the history that was cached, limits the estimate
    where the GPUs' memory is the only capacity, since cached sessions must fit.
    """
    clients, engines = load.clients, load.engines
    if clients is None or engines is None or clients.session_tokens is None or clients.sessions is None:
        return None
    item = clients.session_tokens / clients.sessions if clients.sessions > 0 else 0.0
    live = clients.session_tokens
    if room is not None and seen > 0:
        live = min(live, engines.replicas * room / seen)
    return live + clients.held * item


def _first_token(load: GroupLoad) -> float | None:
    """Return the time to first token as routers measured it, or as engines did if there are too few from routers."""
    histograms = [load.clients.first_token] if load.clients is not None else []
    histograms += [load.engines.first_token] if load.engines is not None else []
    histogram = next((item for item in histograms if _tells(item)), None)
    return quantile(histogram, QUANTILE) if histogram is not None else None


def _tells(first_token: Histogram) -> bool:
    return first_token.total >= FEW and len(first_token.bounds) > 0
