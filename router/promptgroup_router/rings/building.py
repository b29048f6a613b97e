"""Builds the index of a table from the previous one, in steps between which other tasks of the event loop can run.

A table of ten thousand groups often changes by one slot. Parts that do not depend on that slot are the same objects in
both indexes.
"""

from collections.abc import Generator, Mapping, Sequence
from typing import NamedTuple

from promptgroup_contract.access import Access
from promptgroup_contract.table import Group, RoutingTable
from promptgroup_router.base.steps import at_once, sorted_steps
from promptgroup_router.rings.age import full_name
from promptgroup_router.rings.aliases import Aliases, settle_steps
from promptgroup_router.rings.group_entries import Own, group_entry, lender_steps, own_steps
from promptgroup_router.rings.ids import MemberId
from promptgroup_router.rings.index import (
    Candidates,
    ClaimConflict,
    GroupEntry,
    Member,
    ModelEntry,
    Parts,
    RoutingIndex,
    entry_age,
)
from promptgroup_router.rings.model_entries import alias_steps, model_steps
from promptgroup_router.rings.names import NameConflict, NameKeepers, keeper_steps


def build_index(table: RoutingTable) -> RoutingIndex:
    """Build the index of a table in one call."""
    return at_once(index_steps(table))


def index_steps(table: RoutingTable, before: RoutingIndex | None = None) -> Generator[None, None, RoutingIndex]:
    """Build the index of a table in steps of a group or a slot, between which other tasks can run.

    Args:
        table: the table.
        before: the previous index, whose unchanged parts are reused.
    """
    group_entries: Mapping[str, GroupEntry] = before.parts.labels if before is not None else {}
    named: dict[str, Group] = {}
    changed: dict[str, Own] = {}
    for group in table.groups:
        label = full_name(group)
        named[label] = group
        entry = group_entries.get(label)
        if entry is None or entry.group is not group:
            changed[label] = yield from own_steps(group, label, entry)
        yield
    gone = [entry for label, entry in group_entries.items() if label not in named]
    stale = gone + [group_entries[label] for label in changed if label in group_entries]
    old = before.parts.lenders if before is not None else {}
    lenders, moved = yield from lender_steps(old, stale, [(named[label], own) for label, own in changed.items()])
    labels: dict[str, GroupEntry] = {}
    fresh: list[GroupEntry] = []
    for label, group in named.items():
        entry = group_entries.get(label)
        own = changed.get(label)
        if (
            own is None
            and entry is not None
            and not (moved and any(revision.lending in moved for revision in entry.revisions))
        ):
            labels[label] = entry
            continue
        made = group_entry(group, label, own, entry, lenders)
        labels[label] = made
        if made is not entry:
            fresh.append(made)
        yield
    parts = before.parts if before is not None else None
    groups = tuple(labels.values())
    naming = yield from _naming_steps(groups, labels, fresh, bool(gone), before)
    models, conflicts = yield from _all_models(labels, fresh, stale, naming, parts)
    by_name = dict(models)
    if naming.aliases.meanings:
        by_model = yield from _grouped(labels, naming.oldest_first, None)
        for name in naming.aliases.meanings:
            by_name[name] = yield from alias_steps(name, naming.aliases, models, by_model, before)
    ready, draining = yield from _member_steps(fresh, stale, before)
    accesses, most = yield from _access_steps(groups)
    return RoutingIndex(
        table,
        groups,
        naming.names,
        by_name,
        accesses,
        ready,
        draining,
        tuple(conflict for item in conflicts.values() for conflict in item),
        most,
        {name: by_name[name].tenants[namespace] for name, namespace in naming.aliases.first.items()},
        naming.aliases.conflicts,
        naming.conflicts,
        (yield from _sleeper_steps(groups, models)),
        Parts(labels, naming.oldest_first, lenders, naming.keepers, naming.aliases, models, conflicts),
    )


def _sleeper_steps(
    groups: Sequence[GroupEntry], models: Mapping[str, ModelEntry]
) -> Generator[None, None, dict[str, Candidates]]:
    """Return id → candidates that may be scaled to zero on purpose, in steps of a group or a namespace."""
    sleepers: dict[str, Candidates] = {}
    for group in groups:
        if group.group.sleep is not None:
            sleepers |= {revision.candidates.id: revision.candidates for revision in group.revisions}
        yield
    for model in models.values():
        for tenant in model.tenants.values():
            sleepers |= {item.id: item for _, item in tenant.by_access if item.sleep is not None}
            yield
    return sleepers


def unchanged_steps(table: RoutingTable, last: RoutingTable) -> Generator[None, None, RoutingTable]:
    """Return the table with equal groups replaced by the objects of the last one, compared one in each step.

    If nothing differs, the last table itself is returned.
    """
    known = {full_name(group): group for group in last.groups}
    groups: list[Group] = []
    for group in table.groups:
        had = known.get(full_name(group))
        groups.append(had if had is not None and (had is group or had == group) else group)
        yield
    # the comparison skips groups that are the same objects
    made = RoutingTable(tuple(groups), table.version)
    return last if made == last else made


def replaced_steps(old: RoutingIndex, new: RoutingIndex) -> Generator[None, None, list[Candidates]]:
    """Return the candidates of an index that a later one does not contain, in steps of a group or a model."""
    replaced: list[Candidates] = []
    for label, entry in old.parts.labels.items():
        if new.parts.labels.get(label) is not entry:
            replaced += [revision.candidates for revision in entry.revisions]
        yield
    for name, model in old.parts.models.items():
        now = new.parts.models.get(name)
        for namespace, tenant in model.tenants.items():
            present = now.tenants.get(namespace) if now is not None else None
            if present is not tenant:
                pools = [candidates for _, candidates in present.by_access] if present is not None else []
                replaced += [had for _, had in tenant.by_access if not any(pool is had for pool in pools)]
            yield
    return replaced


class _Naming(NamedTuple):
    """The groups by name, and the data derived from names."""

    names: Mapping[str, GroupEntry]
    oldest_first: tuple[str, ...]
    """Labels, by age."""
    keepers: NameKeepers
    aliases: Aliases
    conflicts: tuple[NameConflict, ...]


def _naming_steps(
    groups: Sequence[GroupEntry],
    labels: Mapping[str, GroupEntry],
    fresh: Sequence[GroupEntry],
    some_left: bool,
    before: RoutingIndex | None,
) -> Generator[None, None, _Naming]:
    """Return the owners of names; reused unless a group was added, removed, or has another model, age or alias.

    Args:
        groups: all groups.
        labels: `namespace/name` → group.
        fresh: groups that the previous index does not contain.
        some_left: True if groups of the previous index were removed.
        before: the previous index.
    """
    if before is not None and not some_left:
        known = before.parts.labels
        if all(_named_alike(item.group, known.get(item.label)) for item in fresh):
            names = dict(before.names)
            for item in fresh:
                if names[item.group.name].label == item.label:
                    names[item.group.name] = item
                names[item.label] = item
            parts = before.parts
            return _Naming(names, parts.oldest_first, parts.keepers, parts.aliases, before.name_conflicts)
    by_age = yield from sorted_steps(groups, entry_age)
    ordered = [item.group for item in by_age]
    keepers = yield from keeper_steps(ordered)
    aliases = yield from settle_steps(ordered, keepers)
    ahead = {name: labels[aliases.meanings[name][of].group].group for name, of in aliases.first.items()}
    conflicts = yield from keepers.conflict_steps(ahead)
    group_entries: dict[str, GroupEntry] = {}
    for item in by_age:
        group_entries.setdefault(item.group.name, item)
        yield
    return _Naming(group_entries | dict(labels), tuple(item.label for item in by_age), keepers, aliases, conflicts)


def _named_alike(group: Group, entry: GroupEntry | None) -> bool:
    """Return True if a group has the names and the age that it had before."""
    if entry is None:
        return False
    known = entry.group
    return (known.model, known.created, known.aliases) == (group.model, group.created, group.aliases)


def _grouped(
    labels: Mapping[str, GroupEntry], oldest_first: Sequence[str], desired: set[str] | None
) -> Generator[None, None, dict[str, list[GroupEntry]]]:
    """Return model → its groups, the oldest first, for the models in `desired`, or for all if it is None."""
    by_model: dict[str, list[GroupEntry]] = {}
    for label in oldest_first:
        item = labels[label]
        if desired is None or item.group.model in desired:
            by_model.setdefault(item.group.model, []).append(item)
        yield
    return by_model


def _all_models(
    labels: Mapping[str, GroupEntry],
    fresh: Sequence[GroupEntry],
    stale: Sequence[GroupEntry],
    naming: _Naming,
    before: Parts | None,
) -> Generator[None, None, tuple[Mapping[str, ModelEntry], Mapping[str, tuple[ClaimConflict, ...]]]]:
    """Return the models by name, and the conflicting claims of each model's groups; unchanged ones are reused.

    Args:
        labels: `namespace/name` → group.
        fresh: groups that the previous index does not contain.
        stale: groups that this index does not contain.
        naming: the owners of names; if they have changed, every model is rebuilt.
        before: the parts of the previous index.
    """
    models: dict[str, ModelEntry] = dict(before.models) if before is not None else {}
    conflicts = dict(before.conflicts) if before is not None else {}
    touched = {item.group.model for item in fresh} | {item.group.model for item in stale}
    if before is not None and naming.keepers is not before.keepers:
        touched |= models.keys()
    by_model = yield from _grouped(labels, naming.oldest_first, touched)
    for model in touched - by_model.keys():
        models.pop(model, None)
        conflicts.pop(model, None)
    for model, groups in by_model.items():
        claim_conflicts: list[ClaimConflict] = []
        models[model] = yield from model_steps(model, groups, naming.keepers, claim_conflicts, models.get(model))
        conflicts[model] = tuple(claim_conflicts)
        yield
    ordered: dict[str, ModelEntry] = {}  # in the order of the table
    for label in labels.values():
        ordered[label.group.model] = models[label.group.model]
        yield
    return ordered, conflicts


_Members = dict[MemberId, Member]


def _member_steps(
    fresh: Sequence[GroupEntry], stale: Sequence[GroupEntry], before: RoutingIndex | None
) -> Generator[None, None, tuple[_Members, _Members]]:
    """Return the ready members and the draining members, by id."""
    ready = dict(before.ready) if before is not None else {}
    draining = dict(before.draining) if before is not None else {}
    for item in stale:
        for revision in item.revisions:
            for member in revision.candidates.ready:
                ready.pop(member.id, None)
                yield
            for member in revision.candidates.draining:
                draining.pop(member.id, None)
                yield
    for item in fresh:
        for revision in item.revisions:
            for member in revision.candidates.ready:
                ready[member.id] = member
                yield
            for member in revision.candidates.draining:
                draining[member.id] = member
                yield
    return ready, draining


def _access_steps(
    groups: Sequence[GroupEntry],
) -> Generator[None, None, tuple[tuple[tuple[Access | None, str], ...], int]]:
    """Return the distinct accesses and namespaces of groups, and the most messages that a revision declares."""
    accesses: dict[tuple[Access | None, str], None] = {}
    most = 0
    last: tuple[Access | None, str] | None = None
    for group in groups:
        access, namespace = group.group.access, group.group.namespace
        # consecutive groups mostly have the same access, and hashing one is slow
        if last is None or last[0] is not access or last[1] != namespace:
            last = access, namespace
            accesses[last] = None
        most = max([most, *(revision.revision.messages for revision in group.revisions)])
        yield
    return tuple(accesses), most
