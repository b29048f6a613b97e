"""Indexes a routing table: names and models, rings, and prompts in the form in which they are sent.

An index is immutable and replaced by one assignment. A request keeps the index that it began with; only the members
that it may be sent to are those of the table in use (`renewal`).
"""

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import xxhash

from promptgroup_contract.access import Access
from promptgroup_contract.caller_rules import NO_RULES, CachedTokens, CallerRules
from promptgroup_contract.engine_tls import EngineTls
from promptgroup_contract.fingerprint import Fingerprint, ShortFingerprint
from promptgroup_contract.fingerprint import short as short_form
from promptgroup_contract.table import (
    LOAD_FACTOR_PERCENT,
    NO_TIME_LIMITS,
    Group,
    OwnInstructions,
    Policy,
    ResponseCaching,
    Revision,
    RoutingTable,
    Sharing,
    Slot,
    SlotState,
    TimeLimits,
)
from promptgroup_router.apis.request import Preamble
from promptgroup_router.apis.request import preamble as preamble_of
from promptgroup_router.base.steps import at_once
from promptgroup_router.rings.age import Age, by_age
from promptgroup_router.rings.aliases import AliasConflict, Aliases, settle
from promptgroup_router.rings.claims import Claim, Claims
from promptgroup_router.rings.ids import MemberId, PrefixKey, member_id, place_name, ring_place
from promptgroup_router.rings.names import NameConflict, NameKeepers
from promptgroup_router.rings.ring import NO_SLOTS, Ring, preference, ring_of

LENDERS = 64
"""Most members of other groups that take the overflow of one revision. Where more could, each revision has its own
choice of them, so that neither memory nor the cost of a request grows with the number of groups that share."""
_NO_TABLE = RoutingTable()


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
    unranked: frozenset[str] = frozenset()
    """APIs for which engines with data-parallel ranks choose the rank themselves; empty where none has any."""
    draining: tuple[Member, ...] = ()
    """Members that finish what they have: only what continues a response that they hold goes there."""
    rules: CallerRules = NO_RULES
    """The rules for those who send the requests."""
    access: Access | None = None
    """The access of those who send them, which says if engines get their credentials; None for the default."""
    table: RoutingTable = field(default=_NO_TABLE, compare=False, repr=False)
    """The table that the members are of: in another one they may have left, or have other addresses."""
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


@dataclass(frozen=True, slots=True)
class ClaimConflict:
    """A declared prefix that an older group has claimed."""

    group: str
    keeper: str
    fingerprint: Fingerprint


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


def build_index(table: RoutingTable) -> RoutingIndex:
    """Build the index of a table at once."""
    return at_once(index_steps(table))


def index_steps(table: RoutingTable) -> Generator[None, None, RoutingIndex]:
    """Build the index of a table in steps of a group or a model, so that others have their turn between them."""
    lenders: dict[_LendingKey, list[Member]] = {}
    members = {}
    for group in table.groups:
        for revision in group.revisions:
            ready = yield from _members(group, revision, SlotState.READY)
            members[group.namespace, group.name, revision.fingerprint] = ready
            if revision.lends and (kind := _lending_key(group, revision)) is not None:
                lenders.setdefault(kind, []).extend(ready.values())
        yield
    for lending in lenders.values():
        if len(lending) > LENDERS:
            lending.sort(key=lambda member: _hash(member.id))
    groups = []
    for group in table.groups:
        groups.append(_build_group(table, group, members, lenders))
        yield
    revisions = [item for group in groups for item in group.revisions]
    labels = {group.label: group for group in groups}
    names: dict[str, GroupEntry] = {}
    by_model: dict[str, list[GroupEntry]] = {}
    for group_entry in groups:
        by_model.setdefault(group_entry.group.model, []).append(group_entry)
    for group_entry in sorted(groups, key=_age):
        names.setdefault(group_entry.group.name, group_entry)
    keepers = NameKeepers(table.groups)
    conflicts: list[ClaimConflict] = []
    models = {}
    for model, group_entries in by_model.items():
        models[model] = _build_model(table, model, group_entries, keepers, conflicts)
        yield
    accesses = tuple(dict.fromkeys((group.access, group.namespace) for group in table.groups))
    most = max((item.messages for group in table.groups for item in group.revisions), default=0)
    aliases = settle(table.groups, keepers)
    models |= {name: _build_alias(name, aliases, models, by_model) for name in aliases.meanings}
    ahead = {name: labels[aliases.meanings[name][of].group].group for name, of in aliases.first.items()}
    return RoutingIndex(
        table,
        tuple(groups),
        names | labels,
        models,
        accesses,
        {member.id: member for revision_entry in revisions for member in revision_entry.candidates.ready},
        {member.id: member for revision_entry in revisions for member in revision_entry.candidates.draining},
        tuple(conflicts),
        most,
        {name: models[name].tenants[namespace] for name, namespace in aliases.first.items()},
        aliases.conflicts,
        keepers.conflicts(ahead),
    )


_LendingKey = tuple[str, str, str, Access | None, CallerRules]
"""Namespace, model, engine settings, access and rules for callers. Replicas that are equal in these take each other's
requests: a caller who may not use a group gets none of its replicas by the overflow of another one, and an engine gets
nothing that its own group's rules keep from it."""


def _lending_key(group: Group, revision: Revision) -> _LendingKey | None:
    """Return the key under which a revision lends and borrows replicas, or None if it does neither."""
    if group.sharing is Sharing.DEDICATED or not revision.engine.settings:
        return None
    return group.namespace, group.model, revision.engine.settings, group.access, group.callers.without_limits


def _members(group: Group, revision: Revision, state: SlotState) -> Generator[None, None, dict[int, Member]]:
    """Return place on the ring → member, for the slots in this state and their ranks, made one in each step."""
    label = f"{group.namespace}/{group.name}"
    members = {}
    for slot in revision.slots:
        for rank in ranks_of(slot) if slot.state is state else ():
            members[ring_place(slot.index, rank)] = Member(
                id=member_id(label, revision.fingerprint, slot.index, rank),
                group=label,
                fingerprint=revision.fingerprint,
                slot=slot.index,
                address=slot.address,
                incarnation=slot.incarnation,
                credential=slot.credential,
                tls=slot.tls,
                rank=rank,
            )
            yield
    return members


def ranks_of(slot: Slot) -> Sequence[int | None]:
    """Return the ranks of a slot's engine; None alone where it has one cache."""
    return range(slot.ranks) if slot.ranks > 1 else (None,)


def places_of(revision: Revision) -> dict[int, Slot]:
    """Return place on the ring → its slot, for every slot whatever its state, and each of its ranks."""
    return {ring_place(slot.index, rank): slot for slot in revision.slots for rank in ranks_of(slot)}


def _build_group(
    table: RoutingTable,
    group: Group,
    members: Mapping[tuple[str, str, Fingerprint], Mapping[int, Member]],
    lenders: Mapping[_LendingKey, Sequence[Member]],
) -> GroupEntry:
    label = f"{group.namespace}/{group.name}"
    ready = {item.fingerprint: members[group.namespace, group.name, item.fingerprint] for item in group.revisions}
    revisions = []
    for revision in group.revisions:
        own = tuple(ready[revision.fingerprint].values())
        key = _lending_key(group, revision)
        siblings: tuple[Member, ...] = ()
        lent: tuple[Member, ...] = ()
        if key is not None:
            siblings = tuple(
                member
                for item in group.revisions
                if item is not revision and item.lends and _lending_key(group, item) == key
                for member in ready[item.fingerprint].values()
            )
            lent = _lent(lenders.get(key, ()), label, revision)
        candidates = _revision_candidates(table, group, label, revision, own, lent=lent, siblings=siblings)
        revisions.append(_revision_entry(group, label, revision, candidates))
    return GroupEntry(group, label, tuple(revisions))


def _lent(lending: Sequence[Member], label: str, revision: Revision) -> tuple[Member, ...]:
    """Return the members that a revision borrows, none of its own group; at most LENDERS."""
    if len(lending) <= LENDERS:
        return tuple(member for member in lending if member.group != label)
    # the members are ordered by their hashes, so that neighbours belong to different groups
    start = _hash(f"{label}/{revision.fingerprint}") % len(lending)
    lent: list[Member] = []
    for step in range(len(lending)):
        member = lending[(start + step) % len(lending)]
        if member.group != label:
            lent.append(member)
            if len(lent) == LENDERS:
                break
    return tuple(lent)


def _hash(text: str) -> int:
    return xxhash.xxh3_64_intdigest(text.encode())


def _revision_candidates(
    table: RoutingTable,
    group: Group,
    label: str,
    revision: Revision,
    ready: tuple[Member, ...],
    *,
    lent: tuple[Member, ...],
    siblings: tuple[Member, ...],
) -> Candidates:
    # while a release is under way the group's own other revisions come last: see Candidates.last_resort
    if not ready and not lent:
        lent, siblings = siblings, ()
    candidates = Candidates(
        id=f"{label}/{revision.fingerprint}",
        policy=group.policy,
        load_factor_percent=group.load_factor_percent,
        # every slot, whatever its state: the keys of an absent one go to the next and come back with it
        ring=ring_of(frozenset(places_of(revision))),
        ready=ready,
        lent=lent,
        time_limits=group.time_limits,
        responses=group.responses,
        settings=revision.engine.settings,
        unranked=revision.engine.unranked,
        draining=tuple(at_once(_members(group, revision, SlotState.DRAINING)).values()),
        rules=group.callers,
        access=group.access,
        table=table,
    )
    if siblings:
        fallback = replace(candidates, ring=NO_SLOTS, ready=(), lent=siblings)
        candidates = replace(candidates, last_resort=fallback)
    return candidates


def _revision_entry(group: Group, label: str, revision: Revision, candidates: Candidates) -> RevisionEntry:
    return RevisionEntry(
        group=group,
        label=label,
        revision=revision,
        short=short_form(revision.fingerprint),
        prefix=PrefixKey(_hash(revision.fingerprint)),
        candidates=candidates,
        preamble=preamble_of(revision.prompt, appends=group.own_instructions is OwnInstructions.APPEND)
        if revision.prompt is not None
        else None,
    )


def _build_model(
    table: RoutingTable,
    model: str,
    groups: Iterable[GroupEntry],
    keepers: NameKeepers,
    conflicts: list[ClaimConflict],
) -> ModelEntry:
    by_namespace: dict[str, list[GroupEntry]] = {}
    oldest_first = sorted(groups, key=_age)
    for group in oldest_first:
        by_namespace.setdefault(group.group.namespace, []).append(group)
    claims = _claims_of(oldest_first, conflicts)
    everybodys = Claims(claims)
    tenants = {}
    for namespace, theirs in by_namespace.items():
        alone = len(by_namespace) == 1
        own = everybodys if alone else Claims(claim for claim in claims if claim.namespace == namespace)
        label = f"-/{model}" if alone else f"-/{namespace}/{model}"
        by_access: dict[Access | None, list[GroupEntry]] = {}
        for group in theirs:
            by_access.setdefault(group.group.access, []).append(group)
        pools = [
            (access, _model_candidates(table, f"{label}#{number}" if number else label, admitting, access))
            for number, (access, admitting) in enumerate(by_access.items())
        ]
        tenants[namespace] = TenantEntry(namespace, model, own, tuple(pools))
    keeper, named = keepers.first(model), keepers.named(model)
    first = tenants.get(keeper.namespace) if keeper is not None else None
    if first is None:
        return ModelEntry(tenants, Claims(()), None)
    kept = claims
    if named is not None:
        kept = [claim for claim in claims if claim.namespace == first.namespace or _age(claim.entry) < by_age(named)]
    return ModelEntry(tenants, everybodys if len(kept) == len(claims) else Claims(kept), first)


def _build_alias(
    name: str, aliases: Aliases, models: Mapping[str, ModelEntry], by_model: Mapping[str, Sequence[GroupEntry]]
) -> ModelEntry:
    """Return what an alias stands for, besides the model of that name in other namespaces if there is one.

    Its parts are those of the models themselves: sessions, limits and kept answers are the same under each name.
    """
    real, meanings = models.get(name), aliases.meanings[name]
    tenants = dict(real.tenants) if real is not None else {}
    tenants |= {namespace: models[meaning.model].tenants[namespace] for namespace, meaning in meanings.items()}
    namespace = aliases.first.get(name)
    if namespace is None:
        claims, first = (real.claims, real.first) if real is not None else (Claims(()), None)
        return ModelEntry(tenants, claims, first)
    first = tenants[namespace]
    if real is None:
        return ModelEntry(tenants, first.claims, first)
    # the alias came before each group of the model of this name, so no age is greater than that of the name
    theirs = [group_entry for group_entry in by_model[first.model] if group_entry.group.namespace == namespace]
    oldest_first = sorted([*by_model[name], *theirs], key=_age)
    return ModelEntry(tenants, Claims(_claims_of(oldest_first, [])), first)


def _claims_of(groups: Iterable[GroupEntry], conflicts: list[ClaimConflict]) -> list[Claim[RevisionEntry]]:
    """Return the declared prefixes of groups, which come in the order in which they claim them."""
    claims: dict[tuple[str, Fingerprint], Claim[RevisionEntry]] = {}
    for group in groups:
        for revision in group.revisions:
            key = revision.group.namespace, revision.revision.fingerprint
            if key in claims:
                conflicts.append(ClaimConflict(group.label, claims[key].entry.label, revision.revision.fingerprint))
            elif revision.revision.system_bytes or revision.revision.tools or revision.revision.messages:
                claims[key] = _claim(revision)
    return list(claims.values())


def _claim(entry: RevisionEntry) -> Claim[RevisionEntry]:
    prompt = entry.preamble
    return Claim(
        entry=entry,
        namespace=entry.group.namespace,
        fingerprint=entry.revision.fingerprint,
        system_bytes=entry.revision.system_bytes,
        system=prompt.system if prompt is not None else None,
        tools=prompt.canonical_tools if prompt is not None else "",
        messages=entry.revision.messages,
    )


def _model_candidates(
    table: RoutingTable, label: str, groups: Sequence[GroupEntry], access: Access | None
) -> Candidates:
    shared = [group for group in groups if group.group.sharing is Sharing.POOL]
    revisions = [revision for group in shared for revision in group.revisions]
    lending = [member for revision in revisions if revision.revision.lends for member in revision.candidates.ready]
    # a replica that lends nothing is still better than no answer
    others = [member for revision in revisions if not revision.revision.lends for member in revision.candidates.ready]
    return Candidates(
        id=label,
        policy=Policy.EXPECTED_TTFT,
        load_factor_percent=LOAD_FACTOR_PERCENT,
        ring=NO_SLOTS,
        ready=tuple(lending or others),
        unranked=frozenset().union(*(revision.candidates.unranked for revision in revisions)),
        draining=tuple(member for revision in revisions for member in revision.candidates.draining),
        rules=_unmatched_rules([group.group.callers for group in groups]),
        access=access,
        table=table,
    )


def _unmatched_rules(groups: Sequence[CallerRules]) -> CallerRules:
    """Return the rules for requests that no group declares, from those of the groups whose engines serve them.

    One group that isolates its callers, or hides something from them, is enough: their other prompts are cached by the
    same engines. Where their engines take a salt on different APIs, such requests are served on none. No field of
    engines and no further header passes: no group answers for their clients. The limits are those of the first group,
    the oldest.
    """
    first = groups[0]
    isolating = [group.salted for group in groups if group.salted is not None]
    return CallerRules(
        salted=frozenset.intersection(*isolating) if isolating else None,
        cached_tokens=strictest(groups),
        default=first.default,
        named=first.named,
    )


def strictest(rules: Iterable[CallerRules]) -> CachedTokens:
    """Return the least that any of the rules tells of cached tokens."""
    return max((rule.cached_tokens for rule in rules), key=list(CachedTokens).index)


def _age(entry: GroupEntry | RevisionEntry) -> tuple[Age, str]:
    return by_age(entry.group)
