"""Indexes a routing table: names and models, rings, and prompts in the form in which they are sent.

An index is immutable and replaced by one assignment. A request keeps the index that it began with; only the members
that it may be sent to are those of the table in use (`renewal`).

An index is made from the one before it: what a change of the table does not concern is the same object in both. A group
is the same where its `Group` is the same object, so whoever reads tables keeps the objects of groups that are equal.
"""

from bisect import bisect_left, insort
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import xxhash

from promptgroup_contract.access import Access
from promptgroup_contract.caller_rules import NO_RULES, CachedTokens, CallerRules
from promptgroup_contract.engine_tls import EngineTls
from promptgroup_contract.fingerprint import Fingerprint, ShortFingerprint
from promptgroup_contract.fingerprint import short as short_form
from promptgroup_contract.table import (
    NO_TIME_LIMITS,
    Group,
    Policy,
    ResponseCaching,
    Revision,
    RoutingTable,
    Sharing,
    Sleep,
    Slot,
    TimeLimits,
)
from promptgroup_router.apis.request import Preamble
from promptgroup_router.rings.age import Age, by_age
from promptgroup_router.rings.aliases import AliasConflict, Aliases
from promptgroup_router.rings.claims import Claims
from promptgroup_router.rings.ids import MemberId, PrefixKey, member_id, place_name, ring_place
from promptgroup_router.rings.names import NameConflict, NameKeepers
from promptgroup_router.rings.ring import Ring, preference

LENDERS = 64
"""Most members of other groups that take the overflow of one revision. Where more could, each revision has its own
choice of them, so that neither memory nor the cost of a request grows with the number of groups that share."""


LendingKey = tuple[str, str, str, Access | None, CallerRules]
"""Namespace, model, engine settings, access and rules for callers. Replicas that are equal in these take each other's
requests: a caller who may not use a group gets none of its replicas by the overflow of another one, and an engine gets
nothing that its own group's rules keep from it."""


class Validity:
    """The mark of candidates, and of all copies of them, that a later table has replaced."""

    __slots__ = ("ended",)

    def __init__(self) -> None:
        self.ended = False
        """True once a table has others in their place."""


@dataclass(frozen=True, slots=True)
class Member:
    """A slot that can be routed to, or one data-parallel rank of the engine there."""

    id: MemberId
    group: str
    """`namespace/group`."""
    fingerprint: Fingerprint
    slot: int
    address: str
    incarnation: str
    credential: str = ""
    """Secret and key (`name/key`) of what its engine asks for; the Secret is in the group's namespace."""
    tls: EngineTls | None = None
    """The rule by which its engine is verified; None where it serves plain HTTP."""
    rank: int | None = None
    """Data-parallel rank, which has a KV cache of its own; None for an engine that has none."""
    slot_id: MemberId = field(init=False, compare=False)
    """The id without the rank: the key of health records, since the ranks of an engine die together."""
    label: str = field(init=False, compare=False)
    """The id with a short fingerprint, for clients and logs."""

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "label", f"{self.group}/{short_form(self.fingerprint)}/{place_name(self.slot, self.rank)}"
        )
        slot_id = self.id if self.rank is None else member_id(self.group, self.fingerprint, self.slot)
        object.__setattr__(self, "slot_id", slot_id)

    @property
    def place(self) -> int:
        """Its number on the ring."""
        return ring_place(self.slot, self.rank)


@dataclass(frozen=True, slots=True)
class Candidates:
    """The members that can serve a request, and the order in which a key prefers them."""

    id: str
    policy: Policy
    load_factor_percent: int
    ring: Ring
    """All slots of the revision, whatever their state; empty without a declared prompt."""
    ready: tuple[Member, ...]
    """The members that are warm for the prompt; without a declared prompt, all of the model."""
    lent: tuple[Member, ...] = ()
    """Members of other revisions that take overflow."""
    last_resort: "Candidates | None" = None
    """The lending members of the group's other revisions, for requests that no other member has room for. A new
    revision is judged by its own replicas, and its requests would find their prefix cold on these."""
    time_limits: TimeLimits = NO_TIME_LIMITS
    responses: ResponseCaching | None = None
    """Rules by which answers are kept; None if they are not."""
    settings: str = ""
    """Digest of the engine settings; empty while they are unknown, or differ between replicas."""
    max_resumes: int = 0
    """Most times that one answer goes on on another member."""
    unranked: frozenset[str] = frozenset()
    """APIs for which engines with data-parallel ranks choose the rank themselves; empty where none has any."""
    draining: tuple[Member, ...] = ()
    """Members that finish what they have: only what continues a response that they hold goes there."""
    rules: CallerRules = NO_RULES
    """The rules for those who send the requests."""
    access: Access | None = None
    """The access of those who send them, which says if engines get their credentials; None for the default."""
    sleep: Sleep | None = None
    """The treatment of requests while there is no member on purpose; None where that is not meant to be."""
    sleeper: str = ""
    """Label of the group that has a replica again when requests ask for it; empty where there is no `sleep`."""
    validity: Validity = field(default_factory=Validity, compare=False, repr=False)
    """Says if a later table has other members, or the same at other addresses."""
    members: tuple[Member, ...] = field(init=False, compare=False, repr=False)
    """`ready`, followed by `lent`."""
    by_id: dict[MemberId, Member] = field(init=False, compare=False, repr=False)
    """Id → member, for all `members`."""
    _by_slot: Mapping[int, Member] = field(init=False, compare=False, repr=False)
    _without_ring: tuple[tuple[Member, ...], tuple[bytes, ...]] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        set_(self, "members", self.ready + self.lent)
        set_(self, "by_id", {member.id: member for member in self.members})
        on_ring = bool(self.ring)
        set_(self, "_by_slot", {member.place: member for member in self.ready} if on_ring else {})
        # by id, because slots of several revisions share numbers; a replica that comes or goes moves only its own keys
        rest = self.lent if on_ring else self.members
        set_(self, "_without_ring", (rest, tuple(member.id.encode() for member in rest)))

    def within(self, addresses: Collection[str]) -> "Candidates":
        """Return the same candidates without the members at other addresses, `host:port` or `host` each.

        The ring stays whole, so that a session whose home is among them goes there.
        """
        ready, lent, draining = (
            tuple(
                member
                for member in members
                if member.address in addresses or member.address.rpartition(":")[0] in addresses
            )
            for members in (self.ready, self.lent, self.draining)
        )
        others = self.last_resort.within(addresses) if self.last_resort is not None else None
        if (ready, lent, draining, others) == (self.ready, self.lent, self.draining, self.last_resort):
            return self
        return replace(
            self, ready=ready, lent=lent, draining=draining, last_resort=others if others and others.members else None
        )

    def order(self, key: int) -> Iterator[Member]:
        """Yield the members in the order in which a key (64 bits) prefers them; lent members come last."""
        by_slot = self._by_slot
        for slot in self.ring.order(key):
            if slot in by_slot:
                yield by_slot[slot]
        rest, names = self._without_ring
        for index in preference(names, key):
            yield rest[index]


@dataclass(frozen=True, slots=True)
class RevisionEntry:
    """A revision and its replicas."""

    group: Group
    label: str
    """`namespace/group`."""
    revision: Revision
    prefix: PrefixKey
    candidates: Candidates
    preamble: Preamble | None = field(compare=False)
    """None until the text is known."""
    short: ShortFingerprint
    """The fingerprint in the form that people and metrics use."""
    lending: "LendingKey | None" = field(compare=False)
    """The key under which it lends and borrows replicas; None if it does neither."""


@dataclass(frozen=True, slots=True)
class GroupEntry:
    """A group and its revisions."""

    group: Group
    label: str
    """`namespace/group`."""
    revisions: tuple[RevisionEntry, ...]


@dataclass(frozen=True, slots=True)
class TenantEntry:
    """The groups and replicas of one namespace that serve a model."""

    namespace: str
    model: str
    """The name of the model, as its engines know it."""
    claims: Claims[RevisionEntry] = field(compare=False)
    """The declared prefixes."""
    by_access: tuple[tuple[Access | None, Candidates], ...]
    """An access → the replicas that serve requests of those whom it lets in and which match no declared prefix. The
    access of the oldest group comes first."""

    @property
    def candidates(self) -> Candidates:
        """The replicas for those whom the first access lets in."""
        return self.by_access[0][1]


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """The groups and replicas behind the name of a model, or behind an alias.

    What one namespace serves is kept apart from the others. A name may stand for a model in one namespace, and be an
    alias of another model in the next.
    """

    tenants: Mapping[str, TenantEntry]
    """Namespace → its part, in the order in which the namespaces first had a group of the model; those where the name
    is an alias follow."""
    claims: Claims[RevisionEntry] = field(compare=False)
    """The declared prefixes that requests which name no namespace may belong to."""
    first: TenantEntry | None
    """The namespace of requests that name none and match no declared prefix; None where something else keeps the name,
    so that such requests do not reach it."""
    everybodys: Claims[RevisionEntry] = field(compare=False)
    """The declared prefixes of all namespaces."""


@dataclass(frozen=True, slots=True)
class ClaimConflict:
    """A declared prefix that an older group has claimed."""

    group: str
    keeper: str
    fingerprint: Fingerprint


class Lenders:
    """The members that take each other's overflow, in the order of their hashes. It is not changed once it is made."""

    __slots__ = ("_ring",)

    def __init__(self, ring: "Sequence[tuple[int, str, Member]]" = ()) -> None:
        self._ring = list(ring)

    def changed(self, gone: Sequence[Member], come: Sequence[Member]) -> "Generator[None, None, Lenders]":
        """Return the lenders without some members and with others, made in steps of one."""
        made = Lenders(self._ring)
        for member in gone:
            del made._ring[bisect_left(made._ring, (hash_of(member.id), member.id))]
            yield
        for member in come:
            insort(made._ring, (hash_of(member.id), member.id, member))
            yield
        return made

    def __bool__(self) -> bool:
        return bool(self._ring)

    def lent(self, label: str, revision: Revision) -> tuple[Member, ...]:
        """Return the members that a revision borrows, none of its own group; at most LENDERS.

        Of more it gets those behind its own hash, so that neighbours belong to different groups, and a member that
        comes or goes concerns few revisions.
        """
        ring = self._ring
        start = bisect_left(ring, (hash_of(f"{label}/{revision.fingerprint}"), "")) if len(ring) > LENDERS else 0
        lent: list[Member] = []
        for at in range(start, start + len(ring)):
            member = ring[at if at < len(ring) else at - len(ring)][2]
            if member.group != label:
                lent.append(member)
                if len(lent) == LENDERS:
                    break
        return tuple(lent)


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts that an index hands on to the next one."""

    labels: Mapping[str, GroupEntry]
    """`namespace/name` → group."""
    oldest_first: tuple[str, ...]
    """The labels, by age."""
    lenders: Mapping[LendingKey, Lenders]
    keepers: NameKeepers
    aliases: Aliases
    models: Mapping[str, ModelEntry]
    """Name of a model → its groups and replicas, without what is an alias."""
    conflicts: Mapping[str, tuple[ClaimConflict, ...]]
    """Name of a model → the prefixes that its groups claim and older ones have."""


@dataclass(frozen=True, slots=True)
class RoutingIndex:
    """The indexed table."""

    table: RoutingTable
    groups: tuple[GroupEntry, ...]
    names: Mapping[str, GroupEntry]
    """`namespace/name` → group, and `name` → the oldest group that has the name."""
    models: Mapping[str, ModelEntry]
    """Name of a model, or alias → what it stands for."""
    accesses: tuple[tuple[Access | None, str], ...]
    """Each access and namespace that a group has, once."""
    ready: Mapping[MemberId, Member]
    """Id → member, for all that can be sent to."""
    draining: Mapping[MemberId, Member]
    """The same for those that finish what they have."""
    conflicts: tuple[ClaimConflict, ...]
    most_messages: int
    """Most messages that a revision declares."""
    aliases: Mapping[str, TenantEntry]
    """Alias → what it stands for in requests that name no namespace."""
    alias_conflicts: tuple[AliasConflict, ...]
    name_conflicts: tuple[NameConflict, ...]
    sleepers: Mapping[str, Candidates]
    """Id → candidates that may have no member on purpose."""
    parts: Parts = field(compare=False, repr=False)
    """The parts from which the next index is made."""

    def rules_of_replicas(self, group: Group) -> CallerRules:
        """Return the rules for what a group's replicas hold, which may be of requests that no group declares."""
        if group.sharing is Sharing.DEDICATED:
            return group.callers
        pools = self.models[group.model].tenants[group.namespace].by_access
        undeclared = next((pool.rules for access, pool in pools if access == group.access), group.callers)
        return replace(group.callers, cached_tokens=strictest((group.callers, undeclared)))

    def prefill_rates(self) -> dict[str, int]:
        """Return model → prompt tokens that a replica of it computes a second, at least; only what was measured."""
        rates: dict[str, int] = {}
        for group in self.groups:
            measured = max((revision.revision.engine.prefill_rate for revision in group.revisions), default=0)
            if measured > rates.get(group.group.model, 0):
                rates[group.group.model] = measured
        return rates


def preferred(candidates: Candidates, key: int, allowed: Sequence[Member]) -> Iterator[Member]:
    """Yield the allowed members in the order that a key prefers.

    Members of other revisions come last: one of them is home only if no member of the revision itself is left.
    """
    if len(allowed) == len(candidates.members):
        yield from candidates.order(key)
        return
    ids = {member.id for member in allowed}
    for member in candidates.order(key):
        if member.id in ids:
            yield member


def strictest(rules: Iterable[CallerRules]) -> CachedTokens:
    """Return the least that any of the rules tells of cached tokens."""
    return max((rule.cached_tokens for rule in rules), key=list(CachedTokens).index)


def ranks_of(slot: Slot) -> Sequence[int | None]:
    """Return the ranks of a slot's engine; None alone where it has one cache."""
    return range(slot.ranks) if slot.ranks > 1 else (None,)


def places_of(revision: Revision) -> dict[int, Slot]:
    """Return place on the ring → its slot, for every slot whatever its state, and each of its ranks."""
    return {ring_place(slot.index, rank): slot for slot in revision.slots for rank in ranks_of(slot)}


def hash_of(text: str) -> int:
    """Return the hash (64 bits) by which members and revisions have an order that has nothing to do with names."""
    return xxhash.xxh3_64_intdigest(text.encode())


def entry_age(entry: GroupEntry | RevisionEntry) -> tuple[Age, str]:
    """Return the key by which groups are ordered when they claim something."""
    return by_age(entry.group)
