"""Expected TTFT: a session stays at home unless its first token, and the price of computing again, come cheaper. Pure.

The cost of a replica, in seconds:

    wait + step · (1 + (wait + prefill) · rate / step_tokens) + (1 + PRICE) · prefill

`wait` is the prefill that was sent there and is not known to be done, `prefill` that of this request with what should
be cached there, `step` what a step takes with all that runs there: the term counts the steps until the first token,
and tells idle replicas from busy ones when nothing else does. PRICE stands for those who will queue behind this
request: work that a cache saves is saved for all of them.

The idea of a cost of queue plus uncached prefill is NVIDIA Dynamo's; the home on the ring, the price, the terms for
decoding and for a cold prefix, and how far a record is believed come from simulation: docs/research/policy.md.
"""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from promptgroup_router.policy.costs import EngineCosts
from promptgroup_router.policy.demand import Demand
from promptgroup_router.policy.replica_load import ReplicaLoad
from promptgroup_router.policy.session_locations import Placement, SessionLocations
from promptgroup_router.policy.working_set import LARGEST_SHARE, LIVE_SHARE, NEW_SHARE, RETURNING_SHARE
from promptgroup_router.rings.index import Candidates, Member, preferred

PRICE = 1.5
"""1 to 4 do alike; 0 is unstable near saturation, where every request that is computed anew delays all others."""
COLD_SHARE = 0.1
"""Of a cold Tier-1 prefix, what the request that warms it is charged: those after it have it too."""
TRUST = 0.6
"""Share of a cache that may be written anew before a record of it is void. What is believed too long costs more than
what is forgotten: requests wait at replicas that have evicted their cache."""
MARGIN = 0.005
"""Seconds that leaving home must save: less is noise, and several routers must agree."""
INHERITED_MARGIN = 1.0
"""The same for a session whose slot another process took over. What it had cached is gone everywhere, so every idle
replica looks as good; but in an update of all of them the next one is replaced as well, and who went there computes its
history once more. More than a second is worth that."""
ANSWER = 150
"""Tokens that an answer is expected to have: what a request needs in the cache beside its prompt."""
SCANNED = 64
"""Replicas that are all looked at. Of more, a few are: home and its successors, where the session was, a sample."""
SUCCESSORS = 2
SAMPLE = 16

_FIRST, _LEAST_TRUST_STEP = 0.5, 0.02
_INFINITE = float("inf")
_WEIGHT = 1 + PRICE
_NO_COSTS = EngineCosts()


class ReplicaCost(NamedTuple):
    """What a replica's cost is made of: tokens, and seconds."""

    cached: float
    """Tokens of the prompt that should be found there."""
    wait: float
    prefill: float
    """Of what is not cached; of a cold Tier 1 what this request is charged."""
    step: float
    """Of all steps until the first token."""
    margin: float
    """What it is better than others for being where the session is."""
    total: float


def _anchor(
    candidates: Candidates, demand: Demand, allowed: Sequence[Member], place: Placement | None
) -> tuple[Member, Member | None]:
    """Where a session was last, else its home, and where it was before, of the members that may be sent to."""
    last = before = None
    if place is not None:
        last, before = candidates.by_id.get(place.member), candidates.by_id.get(place.before)
        if len(allowed) < len(candidates.members):
            last, before = last if last in allowed else None, before if before in allowed else None
    return last or next(preferred(candidates, demand.session, allowed)), before


def _need(demand: Demand) -> tuple[float, float]:
    """Tokens of its own that a session has, and the share of a cache that they must fit."""
    return demand.prompt - demand.tier1 + ANSWER, RETURNING_SHARE if demand.history else NEW_SHARE


class ExpectedTtft:
    """Chooses the replica with the least cost."""

    def __init__(self, locations: SessionLocations) -> None:
        self._locations = locations
        self._turn = 0
        self.home_trust = _FIRST
        """How much of a session's history is found at home when nothing is recorded of it, 0 to 1."""
        self._learned = 0

    def choose(
        self,
        candidates: Candidates,
        demand: Demand,
        allowed: Sequence[Member],
        replicas: Mapping[str, ReplicaLoad],
        now: float,
    ) -> Member | None:
        """The cheapest member that has room for the session; None when it must wait."""
        place = self._locations.get_by_origin(demand.session, demand.origin, now)
        anchor, before = _anchor(candidates, demand, allowed, place)
        own, share = _need(demand)
        best, least = None, _INFINITE
        for member in (anchor, before):
            if member is None:
                continue
            replica = replicas[member.id]
            if self._fits(replica, demand, own, share, now):
                cost = self._cost(demand, member, replica, place, now, stays=member is anchor).total
                if cost < least:
                    best, least = member, cost
        costs = replicas[anchor.id].costs
        if least <= costs.overhead + _WEIGHT * costs.prefill(demand.tier1, demand.prompt):
            return best  # an idle replica that has Tier 1 alone would cost as much: no need to look at others
        if len(allowed) > SCANNED:
            allowed = self._candidate_sample(candidates, demand.session, allowed)
        rest = [member for member in allowed if member is not anchor and member is not before]
        return self._cheapest(demand, rest, replicas, now, own=own, share=share, best=best, least=least)

    def _cheapest(
        self, demand: Demand, rest: Sequence[Member], replicas: Mapping[str, ReplicaLoad], now: float, *,
        own: float, share: float, best: Member | None, least: float,
    ) -> Member | None:  # fmt: skip
        """Of members where nothing of the session is, the cheapest with room; `best` when none costs less."""
        prefix, costs = demand.prefix, _NO_COSTS
        for member in rest:
            replica = replicas[member.id]
            if replica.costs is not costs:
                costs = replica.costs
                warm = costs.prefill(demand.tier1, demand.prompt)
                cold = warm + COLD_SHARE * (costs.prefill(0, demand.prompt) - warm)
                steps, depth = costs.rate / costs.step_tokens, TRUST * costs.kv_tokens
                tight = share * costs.cache_tokens - own
            if replica.live.tokens > tight and not self._fits(replica, demand, own, share, now):
                continue
            touched = replica.prefixes.get(prefix)
            prefill = warm if touched is not None and replica.written + replica.peer_written - touched < depth else cold
            pending = replica.pending
            wait = pending - now + replica.since if pending > 0 else 0.0
            if wait < 0:
                wait = 0.0
            answers = replica.answers
            if answers and answers[0].due < now:
                wait += replica.late(now)
            cost = wait + replica.step * (1 + (wait + prefill) * steps) + _WEIGHT * prefill
            if cost < least:
                best, least = member, cost
        return best

    def costs_by_member(
        self,
        candidates: Candidates,
        demand: Demand,
        allowed: Sequence[Member],
        replicas: Mapping[str, ReplicaLoad],
        now: float,
    ) -> dict[str, tuple[ReplicaCost, bool]]:
        """Id of each allowed member → what it costs, and whether it has room: what `choose` weighs, to be shown."""
        place = self._locations.get_by_origin(demand.session, demand.origin, now)
        anchor, _ = _anchor(candidates, demand, allowed, place)
        own, share = _need(demand)
        return {
            member.id: (
                self._cost(demand, member, replicas[member.id], place, now, stays=member is anchor),
                self._fits(replicas[member.id], demand, own, share, now),
            )
            for member in allowed
        }

    def _cost(
        self, demand: Demand, member: Member, replica: ReplicaLoad, place: Placement | None, now: float, *, stays: bool
    ) -> ReplicaCost:
        """Of any member; where nothing of the session is, `_cheapest` has the same in fewer steps."""
        costs = replica.costs
        cached = self.cached(demand, member.id, replica, place, home=stays and place is None)
        prefill = costs.prefill(cached, demand.prompt)
        if cached < demand.tier1:
            warm = costs.prefill(demand.tier1, demand.prompt)
            prefill = warm + COLD_SHARE * (prefill - warm)
        wait = replica.wait(now) + replica.late(now)
        step = replica.step * (1 + (wait + prefill) * costs.rate / costs.step_tokens)
        margin = 0.0
        if stays:
            margin = MARGIN if place is None or place.seen > replica.inherited else INHERITED_MARGIN
        return ReplicaCost(cached, wait, prefill, step, margin, wait + step + _WEIGHT * prefill - margin)

    @staticmethod
    def _fits(replica: ReplicaLoad, demand: Demand, own: float, share: float, now: float) -> bool:
        """Whether a session may have so many tokens of its own on a replica."""
        live = replica.live
        if live.tokens <= share * replica.costs.cache_tokens - own - demand.tier1:
            return True
        live.expire(now)
        if not live or live.in_flight(demand.session):
            return True
        if demand.session in live:
            share = LIVE_SHARE
        cache = replica.costs.cache_tokens
        need = min(live.need(demand.session, demand.prefix, demand.tier1, own), LARGEST_SHARE * cache)
        return live.tokens + need <= share * cache

    def cached(self, demand: Demand, id_: str, replica: ReplicaLoad, place: Placement | None, *, home: bool) -> float:
        """Tokens of the prompt that a replica should have cached."""
        depth = TRUST * replica.costs.kv_tokens
        written = replica.tokens_written
        touched = replica.prefixes.get(demand.prefix)
        found = float(demand.tier1) if touched is not None and written - touched < depth else 0.0
        most = demand.history or demand.prompt
        if place is None:
            if home and demand.history:
                found = max(found, demand.tier1 + self.home_trust * max(0, demand.history - demand.tier1))
        elif place.member == id_:
            if written - place.written < depth:
                found = max(found, min(place.tokens, most))
        elif place.before == id_ and written - place.before_written < depth:
            found = max(found, min(place.before_tokens, most))
        return found

    def learn(self, demand: Demand, cached: float) -> None:
        """An engine says how much of a session without a record was cached at its home."""
        if demand.history <= demand.tier1:
            return
        share = min(1.0, max(0.0, (cached - demand.tier1) / (demand.history - demand.tier1)))
        self._learned += 1
        self.home_trust += max(_LEAST_TRUST_STEP, 1 / (10 + self._learned)) * (share - self.home_trust)

    def _candidate_sample(self, candidates: Candidates, session: int, allowed: Sequence[Member]) -> list[Member]:
        """Those worth a look beside where the session was: home and what follows, and a sample that moves on."""
        few = {member.id: member for member in islice(preferred(candidates, session, allowed), 1 + SUCCESSORS)}
        self._turn = turn = (self._turn + SAMPLE) % len(allowed)
        sample = (*allowed[turn : turn + SAMPLE], *allowed[: max(0, turn + SAMPLE - len(allowed))])
        few |= {member.id: member for member in sample}
        return list(few.values())
