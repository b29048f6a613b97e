"""Expected TTFT: a session stays at home unless its first token, and the price of computing again, come cheaper. Pure.

The cost of a replica, in seconds:

    wait + step · (1 + (wait + prefill) · rate / step_tokens) + (1 + PRICE) · prefill

`wait` is the prefill that was sent there and is not known to be done, `prefill` that of this request with what should
be cached there, `step` what a step takes with all that runs there: the term counts the steps until the first token,
and tells idle replicas from busy ones when nothing else does. PRICE stands for those who will queue behind this
request: work that a cache saves is saved for all of them.

The idea of a cost of queue plus uncached prefill is NVIDIA Dynamo's; the home on the ring, the price, the terms for
decoding and for a cold prefix, and how far a record is believed come from simulation: docs/policy.md.
"""

from collections.abc import Mapping, Sequence
from itertools import islice

from promptgroup_router.demand import Demand
from promptgroup_router.ledger import Replica
from promptgroup_router.places import Place, Places
from promptgroup_router.view import Member, Pool, walk
from promptgroup_router.workingset import LIVE_SHARE, NEW_SHARE, RETURNING_SHARE, WorkingSet

PRICE = 2.0
"""1 to 4 do alike; 0 is unstable near saturation, where every request that is computed anew delays all others."""
COLD_SHARE = 0.1
"""Of a cold Tier-1 prefix, what the request that warms it is charged: those after it have it too."""
TRUST = 0.7
"""Share of a cache that may be written anew before a record of it is void. What is believed too long costs more than
what is forgotten: requests wait at replicas that have evicted their cache."""
MARGIN = 0.02
"""Seconds that leaving home must save: less is noise, and several routers must agree."""
ANSWER = 150
"""Tokens that an answer is expected to have: what a request needs in the cache beside its prompt."""
SCANNED = 64
"""Replicas that are all looked at. Of more, a few are: home and its successors, where the session was, a sample."""
SUCCESSORS = 2
SAMPLE = 16

_FIRST, _LEAST_TRUST_STEP = 0.5, 0.02


class ExpectedTtft:
    """Chooses the replica with the least cost."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._turn = 0
        self.home_trust = _FIRST
        """How much of a session's history is found at home when nothing is recorded of it, 0 to 1."""
        self._learned = 0

    def choose(
        self, pool: Pool, demand: Demand, allowed: Sequence[Member], replicas: Mapping[str, Replica], now: float
    ) -> Member | None:
        """The cheapest member that has room for the session; None when it must wait."""
        order = walk(pool, demand.session, allowed)
        home = next(order)
        place = self._places.recall(demand.session, now)
        here = place.member if place is not None else home.id if demand.history else ""
        before = place.before if place is not None else ""
        if len(allowed) > SCANNED:
            allowed = self._few(allowed, [home, *islice(order, SUCCESSORS)], here, before)
        prompt, prefix = demand.prompt, demand.prefix
        best, least = None, float("inf")
        own = prompt - demand.tier1 + ANSWER
        share = RETURNING_SHARE if demand.history else NEW_SHARE
        costs = None
        for member in allowed:
            id_ = member.id
            replica = replicas[id_]
            if replica.costs is not costs:
                costs = replica.costs
                warm = costs.prefill(demand.tier1, prompt)
                charged = warm + COLD_SHARE * (costs.prefill(0, prompt) - warm)
                steps = costs.rate / costs.step_tokens
                depth = TRUST * costs.kv_tokens
                overhead, sequence, context = costs.overhead, costs.sequence, costs.context
                room = costs.cache_tokens
            live = replica.live
            if live.tokens + own > share * room and not self._fits(live, demand, own, share, room, now):
                continue
            if id_ in (here, before):
                prefill = costs.prefill(self.cached(demand, id_, replica, place, home=member is home), prompt)
            else:
                touched = replica.prefixes.get(prefix)
                fresh = touched is not None and replica.written + replica.peer_written - touched < depth
                prefill = warm if fresh else charged
            pending = replica.queued - replica.done + replica.peer_pending
            wait = pending - now + replica.since if pending > 0 else 0.0
            if wait < 0:
                wait = 0.0
            if replica.answers:
                wait += replica.late(now)
            step = (
                overhead
                + sequence * (replica.in_flight + replica.peer_in_flight)
                + context * (replica.context + replica.peer_context)
            )
            cost = wait + step * (1 + (wait + prefill) * steps) + (1 + PRICE) * prefill
            if member is home:
                cost -= MARGIN
            if cost < least:
                best, least = member, cost
        return best

    @staticmethod
    def _fits(live: WorkingSet, demand: Demand, own: float, share: float, room: float, now: float) -> bool:
        """Whether a session may have so many tokens of its own on a replica with so much room."""
        live.expire(now)
        if not live or live.in_flight(demand.session):
            return True
        if demand.session in live:
            share = LIVE_SHARE
        return live.tokens + live.need(demand.session, demand.prefix, demand.tier1, own) <= share * room

    def cached(self, demand: Demand, id_: str, replica: Replica, place: Place | None, *, home: bool) -> float:
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

    def _few(self, allowed: Sequence[Member], order: Sequence[Member], here: str, before: str) -> list[Member]:
        few = {member.id: member for member in order}
        if here or before:
            few |= {member.id: member for member in allowed if member.id in (here, before)}
        self._turn = (self._turn + SAMPLE) % len(allowed)
        window = (*allowed[self._turn : self._turn + SAMPLE], *allowed[: max(0, self._turn + SAMPLE - len(allowed))])
        few |= {member.id: member for member in window}
        return list(few.values())
