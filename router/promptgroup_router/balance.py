"""Which replica of a pool gets a request: one function a policy, and the loads that they look at. Pure.

A policy is asked for one member out of those that may be sent to. `Balancer` finds these (ready, not tried yet, not
ejected; all of them when all are ejected), counts a request at the pick and takes it off exactly once.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from promptgroup_router.contract import table
from promptgroup_router.health import Health
from promptgroup_router.view import Member, Pool

LEAST_CAP = 8
"""Requests that any member may have. An engine runs hundreds in one batch, so at a few requests each the mean says
nothing about load, and leaving home for it would throw caches away. (SGLang's cache_aware allows 10 over the mean.)"""


@dataclass(frozen=True, slots=True)
class Keys:
    """What placement depends on, 64-bit hashes."""

    session: int
    prefix: int


@dataclass(slots=True)
class Pick:
    """A request counted on a member, until it is released."""

    member: Member
    counted: bool = True


class Policy(Protocol):
    """Chooses among `allowed`: members of the pool that may be sent to, by slot, never empty."""

    def choose(self, pool: Pool, keys: Keys, allowed: Sequence[Member], loads: Mapping[str, int]) -> Member:
        """The member that gets the request."""


class BoundedLoad:
    """Home on the ring unless it is over its bound, then the next that is not (Mirrokni et al., SODA 2018)."""

    def choose(self, pool: Pool, keys: Keys, allowed: Sequence[Member], loads: Mapping[str, int]) -> Member:
        """The first member under the cap."""
        cap = load_cap([loads.get(member.id, 0) for member in allowed], pool.load_factor_percent)
        # there is one: loads add up to less than the caps
        return next(member for member in _walk(pool, keys.session, allowed) if loads.get(member.id, 0) < cap)


class LeastRequest:
    """Fewest requests in flight; of several, the one that the session prefers."""

    def choose(self, pool: Pool, keys: Keys, allowed: Sequence[Member], loads: Mapping[str, int]) -> Member:
        """The least loaded member."""
        least = min(loads.get(member.id, 0) for member in allowed)
        idle = [member for member in allowed if loads.get(member.id, 0) == least]
        return next(_walk(pool, keys.session, idle))


class RoundRobin:
    """One after the other."""

    def __init__(self) -> None:
        self._turns: dict[str, int] = {}

    def choose(self, pool: Pool, keys: Keys, allowed: Sequence[Member], loads: Mapping[str, int]) -> Member:
        """The next member by slot."""
        turn = self._turns.get(pool.id, 0)
        self._turns[pool.id] = turn + 1
        return allowed[turn % len(allowed)]

    def keep(self, pools: Collection[str]) -> None:
        """Forget all other pools."""
        self._turns = {pool: turn for pool, turn in self._turns.items() if pool in pools}


class PrefixHash:
    """All requests of a prefix to one place on the ring, whatever its load."""

    def choose(self, pool: Pool, keys: Keys, allowed: Sequence[Member], loads: Mapping[str, int]) -> Member:
        """The first member after the prefix's hash."""
        return next(_walk(pool, keys.prefix, allowed))


def _walk(pool: Pool, key: int, allowed: Sequence[Member]) -> Iterator[Member]:
    """Allowed members in the order that a key prefers; lazily, since the first is nearly always taken."""
    if len(allowed) == len(pool.ready):
        return pool.order(key)
    ids = {member.id for member in allowed}
    return (member for member in pool.order(key) if member.id in ids)


class Balancer:
    """Picks members by each pool's policy, over the loads of this router."""

    def __init__(self, health: Health) -> None:
        self.loads: dict[str, int] = {}
        """Member id → requests in flight; only members that have some."""
        self._health = health
        self._round_robin = RoundRobin()
        self._policies: Mapping[table.Policy, Policy] = {
            table.Policy.BOUNDED_LOAD: BoundedLoad(),
            table.Policy.LEAST_REQUEST: LeastRequest(),
            table.Policy.ROUND_ROBIN: self._round_robin,
            table.Policy.PREFIX_HASH: PrefixHash(),
        }

    def pick(self, pool: Pool, keys: Keys, now: float, tried: Collection[str] = ()) -> Pick | None:
        """Count a request on a member of the pool; None when there is none that was not tried."""
        untried = [each for each in pool.ready if each.id not in tried] if tried else pool.ready
        if not untried:
            return None
        allowed = untried
        if not self._health.all_well():
            well = [each for each in untried if self._health.available(each.id, each.incarnation, now)]
            # fail open: with all of them ejected, one that may answer is better than an error
            allowed = well or untried
        member = self._policies[pool.policy].choose(pool, keys, allowed, self.loads)
        self.loads[member.id] = self.loads.get(member.id, 0) + 1
        return Pick(member)

    def release(self, pick: Pick) -> None:
        """Take the request off its member; a second time does nothing."""
        if not pick.counted:
            return
        pick.counted = False
        left = self.loads[pick.member.id] - 1
        if left:
            self.loads[pick.member.id] = left
        else:
            del self.loads[pick.member.id]

    def keep(self, pools: Iterable[Pool]) -> None:
        """Forget what was learned about pools that the table has no more; loads end by themselves."""
        self._round_robin.keep({pool.id for pool in pools})


def load_cap(loads: Sequence[int], factor_percent: int) -> int:
    """Requests that a member may have once the next is placed: the mean then, times the factor, rounded up."""
    return max(LEAST_CAP, -(-factor_percent * (sum(loads) + 1) // (100 * len(loads))))
