"""Indexes a routing table: names and models, rings, and prompts in the form in which they are sent.

An index is immutable and replaced by one assignment. A request uses the index that it began with until its end; only
its eligible members are those of the table in use (`renewal`).

An index is built from the previous one: parts that a change of the table does not affect are the same objects in both.
A group counts as unchanged if its `Group` is the same object, so readers of tables reuse the objects of equal groups.
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
    rank_numbers,
)
from promptgroup_router.apis.request import Preamble
from promptgroup_router.rings.age import Age, by_age
from promptgroup_router.rings.aliases import AliasConflict, Aliases
from promptgroup_router.rings.claims import Claims
from promptgroup_router.rings.ids import MemberId, PrefixKey, member_id, place_name, ring_place
from promptgroup_router.rings.names import NameConflict, NameKeepers
from promptgroup_router.rings.ring import NO_SLOTS, Ring, preference

LENDERS = 64
"""Most members of other groups that serve the overflow of one revision. If there are more, each revision uses its own
selection of them, so that neither memory nor the cost of a request grows with the number of groups in the pool."""


LendingKey = tuple[str, str, str, Access | None, CallerRules]
"""Namespace, model, engine settings, access and rules for callers. Groups that are equal in these lend each other
replicas: a caller without access to a group does not reach its replicas by the overflow of another one, and an engine
gets no request that its own group's rules forbid."""


class Validity:
    """A flag, shared by candidates and all copies of them, that is set when a later table replaces them."""

    __slots__ = ("ended",)

    def __init__(self) -> None:
        self.ended = False
        """True once a later table has replaced the candidates."""


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
    """Secret and key (`name/key`) of the credential for its engine; the Secret is in the group's namespace."""
    tls: EngineTls | None = None
    """The rule by which its engine's certificate is verified; None if it serves plain HTTP."""
    rank: int | None = None
    """Data-parallel rank, which has a KV cache of its own; None for an engine that has none."""
    slot_id: MemberId = field(init=False, compare=False)
    """The id without the rank: the key of health records, since the ranks of an engine fail together."""
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
        """Its position on the ring."""
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
    """Members of other revisions that serve overflow."""
    last_resort: "Candidates | None" = None
    """The lending members of the group's other revisions, for requests that no other member has capacity for. A new
    revision is judged by its own replicas, and the prefix of its requests would be cold on these."""
    time_limits: TimeLimits = NO_TIME_LIMITS
    responses: ResponseCaching | None = None
    """Rules by which answers are cached; None if they are not."""
    settings: str = ""
    """Digest of the engine settings; empty while they are unknown, or differ between replicas."""
    max_resumes: int = 0
    """Most times that one answer is resumed on another member."""
    unranked: frozenset[str] = frozenset()
    """APIs for which engines with data-parallel ranks choose the rank themselves; empty if no engine has ranks."""
    served_model: str = ""
    """Name under which the engines serve the LoRA adapter; empty without one, where they serve the group's model."""
    served_apis: frozenset[str] | None = None
    """APIs on which the engines apply that adapter; None if they do on all of them."""
    draining: tuple[Member, ...] = ()
    """Draining members: they get only requests that continue a response which they store."""
    rules: CallerRules = NO_RULES
    """The rules for the callers of the requests."""
    access: Access | None = None
    """The access of the callers, which says if engines get their credentials; None for the default."""
    sleep: Sleep | None = None
    """The treatment of requests while the group is scaled to zero on purpose; None if it never is."""
    sleeper: str = ""
    """Label of the group that is scaled up again when requests arrive; empty without `sleep`."""
    validity: Validity = field(default_factory=Validity, compare=False, repr=False)
    """Shows if a later table has other members, or the same members at other addresses."""
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
        # by id, because slots of several revisions share numbers; adding or removing a replica moves only its own keys
        rest = self.lent if on_ring else self.members
        set_(self, "_without_ring", (rest, tuple(member.id.encode() for member in rest)))

    def within(self, addresses: Collection[str]) -> "Candidates":
        """Return the same candidates without the members at other addresses, which are given as `host:port` or `host`.

        The ring is unchanged, so that a session whose home is among the addresses is sent there.
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

    def only(self, member: Member) -> "Candidates":
        """Return the same candidates without all but one member."""
        return replace(self, ring=NO_SLOTS, ready=(member,), lent=(), draining=(), last_resort=None)

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
    """None until the text has been read."""
    short: ShortFingerprint
    """The fingerprint in the form that users see and metrics use."""
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
    """The name under which the engines serve the model."""
    claims: Claims[RevisionEntry] = field(compare=False)
    """The declared prefixes."""
    by_access: tuple[tuple[Access | None, Candidates], ...]
    """An access → the replicas that serve its callers' requests without a declared prefix. The access of the oldest
    group comes first."""

    @property
    def candidates(self) -> Candidates:
        """The replicas for the callers that the first access admits."""
        return self.by_access[0][1]


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """The groups and replicas behind the name of a model, or behind an alias.

    Each namespace has an entry of its own. A name may be a model in one namespace, and an alias of another model in the
    next.
    """

    tenants: Mapping[str, TenantEntry]
    """Namespace → its entry, in the order in which the namespaces first had a group of the model, followed by those in
    which the name is an alias."""
    claims: Claims[RevisionEntry] = field(compare=False)
    """The declared prefixes that apply to requests which name no namespace."""
    first: TenantEntry | None
    """The entry for requests that name no namespace and match no declared prefix; None if another group owns the name,
    so that such requests do not reach this model."""
    everybodys: Claims[RevisionEntry] = field(compare=False)
    """The declared prefixes of all namespaces."""


@dataclass(frozen=True, slots=True)
class ClaimConflict:
    """A declared prefix that an older group has claimed."""

    group: str
    keeper: str
    fingerprint: Fingerprint


class Lenders:
    """The members that serve each other's overflow, in the order of their hashes. It is immutable once it is built."""

    __slots__ = ("_ring",)

    def __init__(self, ring: "Sequence[tuple[int, str, Member]]" = ()) -> None:
        self._ring = list(ring)

    def changed(self, gone: Sequence[Member], come: Sequence[Member]) -> "Generator[None, None, Lenders]":
        """Return the lenders without the members `gone` and with the members `come`, in steps of one."""
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

        If there are more, it borrows those that follow its own hash, so that neighbours belong to different groups,
        and an added or removed member affects few revisions.
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
    """Parts of an index that are reused to build the next one."""

    labels: Mapping[str, GroupEntry]
    """`namespace/name` → group."""
    oldest_first: tuple[str, ...]
    """The labels, by age."""
    lenders: Mapping[LendingKey, Lenders]
    keepers: NameKeepers
    aliases: Aliases
    models: Mapping[str, ModelEntry]
    """Name of a model → its groups and replicas, without aliases."""
    conflicts: Mapping[str, tuple[ClaimConflict, ...]]
    """Name of a model → the prefixes that its groups declare and older groups have claimed."""


@dataclass(frozen=True, slots=True)
class RoutingIndex:
    """The indexed table."""

    table: RoutingTable
    groups: tuple[GroupEntry, ...]
    names: Mapping[str, GroupEntry]
    """`namespace/name` → group, and `name` → the oldest group that has the name."""
    models: Mapping[str, ModelEntry]
    """Name of a model, or alias → its entry."""
    accesses: tuple[tuple[Access | None, str], ...]
    """The distinct accesses and namespaces of groups."""
    ready: Mapping[MemberId, Member]
    """Id → member, for all ready members."""
    draining: Mapping[MemberId, Member]
    """The same for draining members."""
    conflicts: tuple[ClaimConflict, ...]
    most_messages: int
    """Most messages that a revision declares."""
    aliases: Mapping[str, TenantEntry]
    """Alias → its entry for requests that name no namespace."""
    alias_conflicts: tuple[AliasConflict, ...]
    name_conflicts: tuple[NameConflict, ...]
    sleepers: Mapping[str, Candidates]
    """Id → candidates that may be scaled to zero on purpose."""
    parts: Parts = field(compare=False, repr=False)
    """The parts from which the next index is built."""

    def rules_of_replicas(self, group: Group) -> CallerRules:
        """Return the rules for the cache of a group's replicas, which may also hold prompts that no group declares."""
        if group.sharing is Sharing.DEDICATED:
            return group.callers
        pools = self.models[group.model].tenants[group.namespace].by_access
        undeclared = next((pool.rules for access, pool in pools if access == group.access), group.callers)
        return replace(group.callers, cached_tokens=strictest((group.callers, undeclared)))

    def prefill_rates(self) -> dict[str, int]:
        """Return model → the highest measured prefill rate of its revisions, in tokens per second."""
        rates: dict[str, int] = {}
        for group in self.groups:
            measured = max((revision.revision.engine.prefill_rate for revision in group.revisions), default=0)
            if measured > rates.get(group.group.model, 0):
                rates[group.group.model] = measured
        return rates


def preferred(candidates: Candidates, key: int, allowed: Sequence[Member]) -> Iterator[Member]:
    """Yield the allowed members in the order that a key prefers.

    Members of other revisions are last: one of them is home only if no member of the revision itself is allowed.
    """
    if len(allowed) == len(candidates.members):
        yield from candidates.order(key)
        return
    ids = {member.id for member in allowed}
    for member in candidates.order(key):
        if member.id in ids:
            yield member


def strictest(rules: Iterable[CallerRules]) -> CachedTokens:
    """Return the strictest of the rules on reporting cached tokens."""
    return max((rule.cached_tokens for rule in rules), key=list(CachedTokens).index)


def places_of(revision: Revision) -> dict[int, Slot]:
    """Return ring position → slot, for every slot whatever its state, and each of its ranks."""
    return {ring_place(slot.index, rank): slot for slot in revision.slots for rank in rank_numbers(slot.ranks)}


def hash_of(text: str) -> int:
    """Return the hash (64 bits) that orders members and revisions independently of their names."""
    return xxhash.xxh3_64_intdigest(text.encode())


def entry_age(entry: GroupEntry | RevisionEntry) -> tuple[Age, str]:
    """Return the key by which groups are ordered when they claim names or prefixes."""
    return by_age(entry.group)
