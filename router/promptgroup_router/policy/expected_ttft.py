"""Expected TTFT: a session stays at its home unless another replica has a lower cost.

The cost of a replica, in seconds:

    wait + step · (1 + (wait + prefill) · rate / step_tokens) + (1 + PRICE) · prefill + crowding

`wait` is the prefill that was sent to the replica and is not known to be computed, the time until a running request
ends if the engine runs as many as it can, and what an overdue first token shows. `prefill` is that of this request,
given its expected cache hits there. `step` is the time of one engine step with the current load; its term counts the
steps until the first token, and distinguishes idle replicas from busy ones if all else is equal. PRICE stands for the
requests that will queue behind this one: work that a cache saves is saved for all of them.

`crowding` is 0 unless the steps of a replica take clearly longer than those of the others: see CROWDED. It counts for
the first request of a session only: a session that has begun does not leave its cache for it.

If requests queue on all replicas, PRICE grows with their number: see FEW. For a session that has begun and that no
record places, it grows with the requests that a replica has: see COMPANY.

The idea of a cost of queue plus uncached prefill is NVIDIA Dynamo's. The home on the ring, the price, the terms for
decoding and for a cold prefix, and the trust in records come from simulation: docs/research/policy.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from promptgroup_router.policy.costs import EngineCosts
from promptgroup_router.policy.demand import Demand
from promptgroup_router.policy.replica_load import ReplicaLoad
from promptgroup_router.policy.session_locations import Placement, SessionLocations
from promptgroup_router.policy.working_set import KEPT_SHARE, LARGEST_SHARE, LIVE_SHARE, NEW_SHARE, RETURNING_SHARE
from promptgroup_router.rings.ids import MemberId
from promptgroup_router.rings.index import Candidates, Member, preferred

PRICE = 1.5
"""Weight of the prefill that later requests wait for. Values from 1.5 to 2.5 give similar results. Without it sessions
leave their caches for small differences, and every recomputed prompt delays all other requests."""
TRUST = 0.6
"""Share of a cache that may be overwritten before a record of its content is void. A record trusted for too long costs
more than one dropped too early: requests wait for replicas that have evicted their cache."""
MARGIN = 0.005
"""Seconds that leaving the current replica must save. Smaller differences are noise, and several routers must agree."""
INHERITED_MARGIN = 1.0
"""The same for a session whose slot another process took over. The cache of the previous process is lost, so that every
idle replica has the same cost. But in a rolling update the next replica is replaced as well, and a session that moved
there recomputes its history once more. Staying is worth more than a second."""
ANSWER = 150
"""Expected tokens of an answer, which a request needs in the cache in addition to its prompt."""
SCANNED = 64
"""Most replicas that are all compared. If there are more, only the home and its successors, the replica of the session,
and a sample are compared."""
SUCCESSORS = 2
SAMPLE = 16

_FIRST, _LEAST_TRUST_STEP = 0.5, 0.02
_INFINITE = float("inf")
_WEIGHT = 1 + PRICE
FEW = 2
"""Requests without a first token that a busy replica usually has. Each further one that all replicas have adds 1 to the
weight of prefill, because all of them wait for it. Otherwise waits of seconds would differ by more than the cost of a
prefix, requests would leave their caches, and recomputed prompts would increase the overload."""
CROWDED = 1.25
"""Multiple of the mean step of all replicas beyond which a replica is crowded by decoding requests. Answers take longer
there, so that even more requests are in flight; in the end its KV cache is full of running requests, and others wait
for theirs to end. No backlog of prefill shows that in advance. Below this multiple differences are chance."""
LASTING = 30.0
"""Seconds of an answer from which on its crowding counts in full. Where answers are short, a crowd is soon gone."""
DECODE = 0.2
"""Weight of the seconds by which an answer takes longer on a crowded replica. Values of 0.1 and 0.2 give similar
results."""
COMPANY = 0.06
"""Weight of the prefill of a session that has begun and has no record, for each request that the replica has. Such a
session goes on, and so do those that run there: their next turns will wait for this prefill, and its next turns for
theirs. Without it, a branch of a conversation goes to a home that has eight requests, while others are idle."""
_NO_COSTS = EngineCosts()


@dataclass(slots=True)
class ReplicaCost:
    """The parts of a replica's cost: tokens, and seconds."""

    cached: float
    """Tokens of the prompt that are expected to be cached there."""
    copied: float
    """Further tokens that are expected from a KV tier."""
    wait: float
    """Seconds until the engine can begin: its backlog and the wait for a place, or a copy that takes longer."""
    prefill: float
    """Prefill of the uncached tokens; of a cold Tier 1 only the share that this request is charged."""
    step: float
    """All steps until the first token."""
    crowding: float
    """Cost of the longer decoding on a replica that has more of it than the others."""
    margin: float
    """Advantage of the replica that has the session."""
    total: float
    """The sum that is compared; of a replica without capacity, with what the request evicts there."""


def _anchor(
    candidates: Candidates, demand: Demand, allowed: Sequence[Member], place: Placement | None
) -> tuple[Member, Member | None]:
    """Return the member that served a session last, or its home, and the member before that, if they are allowed."""
    last = before = None
    if place is not None:
        last, before = candidates.by_id.get(place.member), candidates.by_id.get(place.before)
        if len(allowed) < len(candidates.members):
            last, before = last if last in allowed else None, before if before in allowed else None
    return last or next(preferred(candidates, _home_key(demand), allowed)), before


def _home_key(demand: Demand) -> int:
    """Return the key of the home; for a new session it is a prefix that it may share, so that all routers agree.

    It is neither the first prefix, with which most prompts may begin, nor the last, which no other prompt may have. It
    is the middle one, by powers of two, so that it is the same for prompts of about the same length.
    """
    count = len(demand.marks)
    if not count or demand.history:
        return demand.session
    middle = 1
    while 4 * middle <= count:
        middle *= 2
    return demand.marks[middle - 1]


def _weight(replicas: Mapping[MemberId, ReplicaLoad], anchor: Member, allowed: Sequence[Member]) -> float:
    """Return the weight of prefill, which is higher if requests queue on every replica, even the least loaded one.

    If one replica is idle, work on it delays no other request. With the mean queue instead of the shortest one, a
    single replica with a long queue would raise the weight, and thereby hold the requests that should leave it.
    """
    least = replicas[anchor.id].queue
    for member in allowed:
        if least <= FEW:
            return _WEIGHT
        least = min(least, replicas[member.id].queue)
    return _WEIGHT + max(0, least - FEW)


def _usual_step(replicas: Mapping[MemberId, ReplicaLoad], allowed: Sequence[Member]) -> float:
    """Return the seconds of a step beyond which a replica is crowded."""
    compared = allowed if len(allowed) <= SCANNED else allowed[:SCANNED]
    total = 0.0
    for member in compared:
        total += replicas[member.id].step
    return CROWDED * total / len(compared)


def _crowding(costs: EngineCosts, step: float, usual: float) -> float:
    """Return the cost of a replica's decoding: of the time by which an answer takes longer than it usually does."""
    if step <= usual:
        return 0.0
    return DECODE * costs.answer * (step - usual) * min(1.0, costs.answer * step / LASTING)


def _eviction(costs: EngineCosts, own: float, weight: float) -> float:
    """Return the cost of a request on a full replica: the prefill of the tokens of others that its own ones evict."""
    return weight * costs.prefill(0, own)


def has_been(place: Placement | None, id_: MemberId) -> bool:
    """Return True if a session with this record was served by a member last, or before its last move."""
    return place is not None and id_ in (place.member, place.before)


def _company(demand: Demand, place: Placement | None) -> float:
    """Return by how much a request of a replica raises the weight of prefill there."""
    return COMPANY if place is None and demand.history else 0.0


def _need(demand: Demand) -> tuple[float, float]:
    """Return the unshared tokens that a session needs, and the share of a cache that all sessions may fill with it."""
    return demand.prompt - demand.tier1 + ANSWER, RETURNING_SHARE if demand.history else NEW_SHARE


def held(demand: Demand, place: Placement | None) -> float:
    """Return the tokens of the prompt that some replica has computed for the session, by its record.

    It is 0 if these are not more than the Tier-1 prefix.
    """
    if place is None:
        return 0.0
    tokens = min(place.tokens, demand.history or demand.prompt)
    return tokens if tokens > demand.tier1 else 0.0


class ExpectedTtft:
    """Chooses the replica with the least cost."""

    def __init__(self, locations: SessionLocations) -> None:
        self._locations = locations
        self.home_trust = _FIRST
        """Share of a session's history, from 0 to 1, that is expected in the cache of its home if the session has no
        record: of what lies beyond Tier 1, and beyond the prefixes that are known to be cached there."""
        self._learned = 0

    def choose(
        self,
        candidates: Candidates,
        demand: Demand,
        allowed: Sequence[Member],
        replicas: Mapping[MemberId, ReplicaLoad],
        *,
        now: float,
        turn: int,
    ) -> Member | None:
        """Return the cheapest member, or None if no member has capacity for the session, so that it must wait.

        A member without capacity is chosen if another one has capacity, but costs more even than what the request
        evicts. Otherwise the only replica with capacity would get all requests, however long its queue is.
        """
        place = self._locations.get_by_origin(demand.record, demand.origin, now)
        anchor, before = _anchor(candidates, demand, allowed, place)
        own, share = _need(demand)
        weight = _weight(replicas, anchor, allowed)
        usual = _INFINITE if demand.history else _usual_step(replicas, allowed)
        best = full = None
        least = least_full = _INFINITE
        for member in (anchor, before):
            if member is None:
                continue
            replica, stays = replicas[member.id], member is anchor
            cost = self._cost(demand, member, replica, place, now, weight=weight, usual=usual, stays=stays).total
            if self._fits(replica, demand, own, share, now, been=has_been(place, member.id)):
                if cost < least:
                    best, least = member, cost
            else:
                cost += _eviction(replica.costs, own, weight)
                if cost < least_full:
                    full, least_full = member, cost
        costs = replicas[anchor.id].costs
        copied = costs.copied(demand.tier1, held(demand, place)) if costs.copy_rate else 0.0
        most = max(demand.tier1, demand.lengths[-1]) if demand.marks else demand.tier1
        bound = costs.overhead + weight * costs.prefill(most + copied, demand.prompt)
        if copied:
            bound += costs.copy(copied)
        if least <= bound:
            return best  # no other costs less: this is the cost of an idle replica with all shareable prefixes
        if len(allowed) > SCANNED:
            allowed = _candidate_sample(candidates, _home_key(demand), allowed, turn)
        rest = [member for member in allowed if member is not anchor and member is not before]
        if copied:
            return self._cheapest_copying(
                demand, rest, replicas, place, now, own=own, share=share, weight=weight, usual=usual,
                best=best, least=least, full=full, least_full=least_full,
            )  # fmt: skip
        return self._cheapest(
            demand, rest, replicas, now, own=own, share=share, weight=weight, company=_company(demand, place),
            usual=usual, best=best, least=least, full=full, least_full=least_full,
        )  # fmt: skip

    def _cheapest(
        self, demand: Demand, rest: Sequence[Member], replicas: Mapping[MemberId, ReplicaLoad], now: float, *,
        own: float, share: float, weight: float, company: float, usual: float,
        best: Member | None, least: float, full: Member | None, least_full: float,
    ) -> Member | None:  # fmt: skip
        """Return the cheapest of `rest`, which hold no session state, `best` and `full`.

        `best` has capacity and costs `least`; `full` has none, and costs `least_full` with what the request evicts.
        """
        prefix, marks, costs = demand.prefix, demand.marks, _NO_COSTS
        for member in rest:
            replica = replicas[member.id]
            if replica.costs is not costs:
                costs = replica.costs
                warm = costs.prefill(demand.tier1, demand.prompt)
                cold = warm + costs.in_use.cold_share(prefix, declared=demand.declared) * (
                    costs.prefill(0, demand.prompt) - warm
                )
                steps = costs.rate / costs.step_tokens
                tight = share * costs.cache_tokens - own
                sequences = costs.sequences
            fits = replica.live.tokens + replica.peer_unplaced <= tight
            fits = fits or self._fits(replica, demand, own, share, now)
            prefixes = replica.prefixes
            prefill = warm if prefix in prefixes else cold
            shared = prefixes.longest(marks) if marks else 0
            if shared:
                prefill = min(prefill, costs.prefill(demand.lengths[shared - 1], demand.prompt))
            wait = replica.wait(now) if replica.pending > 0 else 0.0
            load = replica.in_flight + replica.peer_in_flight
            if load >= sequences:
                wait += costs.wait_for_place(load, replica.step)
            answers = replica.answers
            if answers and answers[0].due < now:
                wait += replica.late(now)
            step = replica.step
            cost = wait + step * (1 + (wait + prefill) * steps) + (weight + company * load) * prefill
            if step > usual:
                cost += _crowding(costs, step, usual)
            if fits:
                if cost < least:
                    best, least = member, cost
            elif cost < least_full:
                cost += _eviction(costs, own, weight)
                if cost < least_full:
                    full, least_full = member, cost
        return full if best is not None and least_full < least else best

    def _cheapest_copying(
        self, demand: Demand, rest: Sequence[Member], replicas: Mapping[MemberId, ReplicaLoad],
        place: Placement | None, now: float, *, own: float, share: float, weight: float, usual: float,
        best: Member | None, least: float, full: Member | None, least_full: float,
    ) -> Member | None:  # fmt: skip
        """Return the same as `_cheapest` where replicas may copy the session from a KV tier."""
        for member in rest:
            replica = replicas[member.id]
            cost = self._cost(demand, member, replica, place, now, weight=weight, usual=usual, stays=False).total
            if not self._fits(replica, demand, own, share, now):
                cost += _eviction(replica.costs, own, weight)
                if cost < least_full:
                    full, least_full = member, cost
            elif cost < least:
                best, least = member, cost
        return full if best is not None and least_full < least else best

    def costs_by_member(
        self,
        candidates: Candidates,
        demand: Demand,
        allowed: Sequence[Member],
        replicas: Mapping[MemberId, ReplicaLoad],
        now: float,
    ) -> dict[MemberId, tuple[ReplicaCost, bool]]:
        """Return id of each allowed member → the cost that `choose` compares, and whether it has capacity."""
        place = self._locations.get_by_origin(demand.record, demand.origin, now)
        anchor, _ = _anchor(candidates, demand, allowed, place)
        own, share = _need(demand)
        weight = _weight(replicas, anchor, allowed)
        usual = _INFINITE if demand.history else _usual_step(replicas, allowed)
        result: dict[MemberId, tuple[ReplicaCost, bool]] = {}
        for member in allowed:
            replica = replicas[member.id]
            stays = member is anchor
            cost = self._cost(demand, member, replica, place, now, weight=weight, usual=usual, stays=stays)
            fits = self._fits(replica, demand, own, share, now, been=has_been(place, member.id))
            if not fits:
                cost.total += _eviction(replica.costs, own, weight)
            result[member.id] = cost, fits
        return result

    def _cost(
        self, demand: Demand, member: Member, replica: ReplicaLoad, place: Placement | None, now: float, *,
        weight: float, usual: float, stays: bool,
    ) -> ReplicaCost:  # fmt: skip
        """Return the cost of any member.

        For members that hold no state of the session, `_cheapest` computes the same in fewer steps.
        """
        costs = replica.costs
        cached = self.cached(demand, member.id, replica, place, home=stays and place is None)
        copied = costs.copied(cached, held(demand, place)) if costs.copy_rate else 0.0
        result = cached + copied
        prefill = costs.prefill(result, demand.prompt)
        if result < demand.tier1:
            warm = costs.prefill(demand.tier1, demand.prompt)
            charged = costs.in_use.cold_share(demand.prefix, declared=demand.declared)
            prefill = warm + charged * (prefill - warm)
        wait = replica.wait(now) + costs.wait_for_place(replica.load, replica.step) + replica.late(now)
        if copied:
            wait = max(wait, costs.copy(copied))
        step = replica.step * (1 + (wait + prefill) * costs.rate / costs.step_tokens)
        crowding = _crowding(costs, replica.step, usual)
        margin = 0.0
        if stays:
            margin = MARGIN if place is None or place.seen > replica.inherited else INHERITED_MARGIN
        weight += _company(demand, place) * replica.load
        total = wait + step + weight * prefill + crowding - margin
        return ReplicaCost(cached, copied, wait, prefill, step, crowding, margin, total)

    @staticmethod
    def _fits(
        replica: ReplicaLoad, demand: Demand, own: float, share: float, now: float, *, been: bool = False
    ) -> bool:
        """Return True if a replica has capacity for `own` unshared tokens; `been` if it served the session before."""
        live = replica.live
        if replica.admitted <= share * replica.costs.cache_tokens - own - demand.tier1:
            return True
        live.expire(now)
        if not live or live.in_flight(demand.record):
            return True
        if demand.history and not replica.load:
            return True  # sessions between two turns must not keep an engine idle
        cache = replica.costs.cache_tokens
        if live.seldom_returns(later=demand.history > 0) and live.kept <= KEPT_SHARE * cache:
            return True  # it occupies cache only while it runs, and the engine's own queue limits that
        shared = replica.shared(demand, been=been)
        if shared > demand.tier1 or demand.record in live:
            share = LIVE_SHARE  # the tokens that it shares are cached already
        own += demand.tier1 - shared
        need = min(live.need(demand.record, demand.prefix, demand.tier1, own), LARGEST_SHARE * cache)
        return replica.admitted + need <= share * cache

    def cached(
        self, demand: Demand, id_: MemberId, replica: ReplicaLoad, place: Placement | None, *, home: bool
    ) -> float:
        """Return the tokens of the prompt that a replica is expected to have cached."""
        depth = TRUST * replica.costs.kv_tokens
        written = replica.tokens_written
        prefixes = replica.prefixes
        result = float(demand.tier1) if demand.prefix in prefixes else 0.0
        shared = prefixes.longest(demand.marks) if demand.marks else 0
        if shared:
            result = max(result, float(demand.lengths[shared - 1]))
        most = demand.history or demand.prompt
        if place is None:
            if home and demand.history:
                known = _known(demand, shared)
                result = max(result, known + self.home_trust * max(0, demand.history - known))
        elif place.member == id_:
            age = written - place.written
            if age < depth:
                result = max(result, min(place.tokens, most, replica.space_for(demand.session) - age))
        elif place.before == id_:
            age = written - place.before_written
            if age < depth:
                result = max(result, min(place.before_tokens, most, replica.space_for(demand.session) - age))
        return result

    def learn(self, demand: Demand, cached: float, shared: int) -> None:
        """Learn the reported share of the history that the home had cached, from a session without a record.

        Only what was not known to be cached there counts. If that is less than half of the history, nothing is learned:
        the report has the end of a prefix that other requests share, which marks do not tell exactly.

        Args:
            demand: the request.
            cached: tokens that were cached.
            shared: number of its marks that were known to be cached there when it was sent.
        """
        known = _known(demand, shared)
        rest = demand.history - known
        if rest <= 0 or 2 * rest < demand.history - demand.tier1:
            return
        share = min(1.0, max(0.0, (cached - known) / rest))
        self._learned += 1
        self.home_trust += max(_LEAST_TRUST_STEP, 1 / (1 + self._learned)) * (share - self.home_trust)


def _known(demand: Demand, shared: int) -> int:
    """Return the tokens that a replica has cached of a prompt: Tier 1, or as many of its marks as are `shared`."""
    return max(demand.tier1, demand.lengths[shared - 1]) if shared else demand.tier1


def _candidate_sample(candidates: Candidates, key: int, allowed: Sequence[Member], turn: int) -> list[Member]:
    """Return the members to compare with the session's: home, its successors and a sample that rotates by `turn`."""
    few = {member.id: member for member in islice(preferred(candidates, key, allowed), 1 + SUCCESSORS)}
    start = turn * SAMPLE % len(allowed)
    sample = (*allowed[start : start + SAMPLE], *allowed[: max(0, start + SAMPLE - len(allowed))])
    few |= {member.id: member for member in sample}
    return list(few.values())
