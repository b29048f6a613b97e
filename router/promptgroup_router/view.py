"""A routing table made ready to be asked: names and models indexed, rings built, prompts serialised. Pure.

A view is immutable and replaced by one assignment; a request keeps the one that it began with.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import xxhash

from promptgroup_router.contract import fingerprint
from promptgroup_router.contract.table import Group, Policy, Revision, RoutingTable, SlotState
from promptgroup_router.payload import Preamble, preamble
from promptgroup_router.ring import preference, ring_of


@dataclass(frozen=True, slots=True)
class Member:
    """A slot that requests may be sent to."""

    id: str
    """`namespace/group/fingerprint/slot`: what load and health are kept by; it outlives pods and tables."""
    group: str
    """`namespace/group`."""
    fingerprint: str
    slot: int
    state: SlotState
    address: str
    incarnation: str

    @property
    def ready(self) -> bool:
        """Whether new requests may go there."""
        return self.state is SlotState.READY

    @property
    def label(self) -> str:
        """What clients and logs are told: the id with a short fingerprint."""
        return f"{self.group}/{fingerprint.short(self.fingerprint)}/{self.slot}"


@dataclass(frozen=True, slots=True)
class Pool:
    """Members that can serve the same requests, and the order in which a key prefers them."""

    id: str
    policy: Policy
    load_factor_percent: int
    ready: tuple[Member, ...]
    order: Callable[[int], Iterator[Member]]
    """Key (64 bits) → ready members, best first."""


@dataclass(frozen=True, slots=True)
class RevisionView:
    """A revision and its replicas."""

    group: Group
    label: str
    """`namespace/group`."""
    revision: Revision
    prefix: int
    """Hash of the fingerprint (64 bits)."""
    pool: Pool
    preamble: Preamble | None
    """None while the text is not known."""


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group and its revisions."""

    group: Group
    label: str
    """`namespace/group`."""
    revisions: tuple[RevisionView, ...]


@dataclass(frozen=True, slots=True)
class ModelView:
    """What serves a model."""

    claims: tuple[RevisionView, ...]
    """Declared prefixes, longest first; one claim a fingerprint."""
    pool: Pool
    """Every ready replica of the model, for requests that match no declared prefix."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """A declared prefix that an older group has already."""

    group: str
    keeper: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class View:
    """The table, indexed."""

    table: RoutingTable
    names: Mapping[str, GroupView]
    """By `namespace/name`, and by `name` where only one group has it."""
    ambiguous: Mapping[str, tuple[str, ...]]
    """Names that several groups have → their full names."""
    models: Mapping[str, ModelView]
    conflicts: tuple[Conflict, ...]


def view_of(table: RoutingTable) -> View:
    """Index a table."""
    groups = [_group(group) for group in table.groups]
    names = {group.label: group for group in groups}
    by_name: dict[str, list[GroupView]] = {}
    by_model: dict[str, list[GroupView]] = {}
    for group in groups:
        by_name.setdefault(group.group.name, []).append(group)
        by_model.setdefault(group.group.model, []).append(group)
    names |= {name: found[0] for name, found in by_name.items() if len(found) == 1}
    conflicts: list[Conflict] = []
    models = {model: _model(model, found, conflicts) for model, found in by_model.items()}
    ambiguous = {name: tuple(each.label for each in found) for name, found in by_name.items() if len(found) > 1}
    return View(table, names, ambiguous, models, tuple(conflicts))


def _group(group: Group) -> GroupView:
    label = f"{group.namespace}/{group.name}"
    return GroupView(group, label, tuple(_revision(group, label, revision) for revision in group.revisions))


def _revision(group: Group, label: str, revision: Revision) -> RevisionView:
    members = {
        slot.index: Member(
            id=f"{label}/{revision.fingerprint}/{slot.index}",
            group=label,
            fingerprint=revision.fingerprint,
            slot=slot.index,
            state=slot.state,
            address=slot.address,
            incarnation=slot.incarnation,
        )
        for slot in revision.slots
    }
    # all slots, whatever their state: keys of one that is away walk on, and come back with it
    ring = ring_of(frozenset(members))
    return RevisionView(
        group=group,
        label=label,
        revision=revision,
        prefix=xxhash.xxh3_64_intdigest(revision.fingerprint.encode()),
        pool=Pool(
            id=f"{label}/{revision.fingerprint}",
            policy=group.policy,
            load_factor_percent=group.load_factor_percent,
            ready=tuple(member for member in members.values() if member.ready),
            order=lambda key: (member for slot in ring.order(key) if (member := members[slot]).ready),
        ),
        preamble=preamble(revision.prompt.system, revision.prompt.tools) if revision.prompt is not None else None,
    )


def _model(model: str, groups: Iterable[GroupView], conflicts: list[Conflict]) -> ModelView:
    claims: dict[str, RevisionView] = {}
    ready: list[Member] = []
    for group in sorted(groups, key=_age):
        for each in group.revisions:
            ready += each.pool.ready
            full = each.revision.fingerprint
            if full in claims:
                conflicts.append(Conflict(group.label, claims[full].label, full))
            elif each.revision.system_bytes or each.revision.tools:
                claims[full] = each
    longest_first = sorted(claims.values(), key=lambda claim: (-claim.revision.system_bytes, claim.pool.id))
    members = tuple(ready)
    # by id, since slots of several revisions share numbers; a replica that comes or goes moves only its own keys
    ids = [member.id.encode() for member in members]
    pool = Pool(
        id=f"-/{model}",
        policy=Policy.BOUNDED_LOAD,
        load_factor_percent=125,
        ready=members,
        order=lambda key: (members[index] for index in preference(ids, key)),
    )
    return ModelView(tuple(longest_first), pool)


def _age(group: GroupView) -> tuple[bool, str, str]:
    """Order in which groups get their claims: by time of creation (RFC 3339 in UTC sorts as text), unknown last."""
    return (not group.group.created, group.group.created, group.label)
