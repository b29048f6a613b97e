"""Decides which namespace a name belongs to in requests that name none: the one that had it first.

A name may be the model of one group, the name of another and the full name (`namespace/name`) of a third. Of all groups
that have it in one of these ways the oldest owns it, so that a group which another namespace creates later neither
receives requests by that name nor makes it ambiguous. The name has the meaning that it has in the namespace of its
owner. An alias has an age of its own: `aliases` decides about aliases. See docs/development/decisions/0076.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

from promptgroup_contract.table import Group
from promptgroup_router.base.steps import at_once
from promptgroup_router.rings.age import by_age, full_name


@dataclass(frozen=True, slots=True)
class NameConflict:
    """A name of a group, or of its model, that another namespace owns.

    A request with this name as its `model` that names no namespace does not reach the group.
    """

    group: str
    name: str
    keeper: str
    """`namespace/group` that owns the name."""


class NameKeepers:
    """The groups that own the names of a table."""

    __slots__ = ("_first", "_labels")

    def __init__(self, groups: Sequence[Group]) -> None:
        self._labels: dict[str, Group] = {}
        self._first: dict[str, Group] = {}
        for group in sorted(groups, key=by_age):
            self.add(group)

    def add(self, group: Group) -> None:
        """Add a group that is younger than all before."""
        label = full_name(group)
        self._labels[label] = group
        for name in (group.model, group.name, label):
            self._first.setdefault(name, group)

    def first(self, name: str) -> Group | None:
        """Return the oldest group that has the name as its model, its own name or its full name."""
        return self._first.get(name)

    def named(self, name: str) -> Group | None:
        """Return the group that the name means in the namespace of its owner; None if it is only the name of a model.

        A model may be served by several namespaces, and requests that begin with a prompt of a later namespace are sent
        to it. They are not if the name is also that of an older group.
        """
        first = self._first.get(name)
        if first is None or first.model != name:
            return first
        return self._labels.get(f"{first.namespace}/{name}")

    def conflicts(self, aliases: Mapping[str, Group]) -> tuple[NameConflict, ...]:
        """Return the names that groups have but do not own, in one call: see `conflict_steps`."""
        return at_once(self.conflict_steps(aliases))

    def conflict_steps(self, aliases: Mapping[str, Group]) -> Generator[None, None, tuple[NameConflict, ...]]:
        """Return the names that groups have but do not own, in steps of a group.

        Args:
            aliases: alias → group that has it, for aliases older than each group with the name.
        """
        result = []
        for label, group in self._labels.items():
            keepers = {name: aliases.get(name) or self._first[name] for name in (group.name, label)}
            named = self.named(group.model)
            if named is not None and group.model not in aliases and by_age(named) < by_age(group):
                keepers[group.model] = named
            result += [
                NameConflict(label, name, full_name(keeper))
                for name, keeper in keepers.items()
                if keeper.namespace != group.namespace
            ]
            yield
        return tuple(result)


def keeper_steps(oldest_first: Sequence[Group]) -> Generator[None, None, NameKeepers]:
    """Return the owners of the names of groups, which are given by age, in steps of a group."""
    keepers = NameKeepers(())
    for group in oldest_first:
        keepers.add(group)
        yield
    return keepers
