"""Decides which namespace a name belongs to in requests that name none: the one that had it first.

A name may be the model of one group, the name of another and the full name (`namespace/name`) of a third. Of all groups
that have it in one of these ways the oldest keeps it, so that no group which another namespace creates later takes a
request by that name, and none makes it ambiguous. The namespace that keeps it says what it means there. Aliases are
as old as themselves: `aliases` decides about them. See docs/development/decisions/0076.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

from promptgroup_contract.table import Group
from promptgroup_router.base.steps import at_once
from promptgroup_router.rings.age import by_age, full_name


@dataclass(frozen=True, slots=True)
class NameConflict:
    """A name of a group, or of its model, that another namespace keeps.

    A request whose `model` it is, and that names no namespace, does not reach the group by it.
    """

    group: str
    name: str
    keeper: str
    """`namespace/group` that keeps the name."""


class NameKeepers:
    """The groups that keep the names of a table."""

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
        """Return the oldest group that has the name as that of its model, as its own or as its full name."""
        return self._first.get(name)

    def named(self, name: str) -> Group | None:
        """Return the group that the name means where it belongs; None where it is that of a model alone.

        A model may be served by several namespaces, and requests that begin with a prompt of a later one go there. They
        do not if they name a group that was there before.
        """
        first = self._first.get(name)
        if first is None or first.model != name:
            return first
        return self._labels.get(f"{first.namespace}/{name}")

    def conflicts(self, aliases: Mapping[str, Group]) -> tuple[NameConflict, ...]:
        """Return the names that groups have and do not keep, at once: see `conflict_steps`."""
        return at_once(self.conflict_steps(aliases))

    def conflict_steps(self, aliases: Mapping[str, Group]) -> Generator[None, None, tuple[NameConflict, ...]]:
        """Return the names that groups have and do not keep, in steps of a group.

        Args:
            aliases: alias → group that has it, for those that came before each group with the name.
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
    """Return the keepers of the names of groups that come by age, in steps of a group."""
    keepers = NameKeepers(())
    for group in oldest_first:
        keepers.add(group)
        yield
    return keepers
