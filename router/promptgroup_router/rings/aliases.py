"""Decides which model an alias stands for, in each namespace and for requests that name no namespace.

A group's aliases are names of its model in its own namespace. There, a model or group of that name has precedence:

| the alias is also              | then it stands for                       |
|--------------------------------|------------------------------------------|
| a model of the namespace       | that model                               |
| the name of a group there      | that group                               |
| the full name of any group     | that group                               |
| an alias of several models     | the model of the oldest group            |

In a request that names no namespace, the name has its meaning in the namespace that had it first, whether as a model, a
group or an alias. The age of an alias is its own, not that of its group: a spec can be changed at any time, and a team
could otherwise add the names of another team's groups to an old group. See docs/development/decisions/0073.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

from promptgroup_contract.table import Group
from promptgroup_router.base.steps import at_once
from promptgroup_router.rings.age import Age, age_of, by_age, full_name
from promptgroup_router.rings.names import NameKeepers


@dataclass(frozen=True, slots=True)
class Meaning:
    """The model that an alias stands for in a namespace."""

    model: str
    age: Age
    """Time since which the namespace has the alias."""
    group: str
    """`namespace/group` of the oldest group that has it."""


@dataclass(frozen=True, slots=True)
class AliasConflict:
    """An alias that does not stand for the model of its group, or does so only for requests that name the namespace."""

    group: str
    alias: str
    keeper: str
    """`namespace/group` that owns the name."""


@dataclass(frozen=True, slots=True)
class Aliases:
    """The aliases of a table."""

    meanings: Mapping[str, Mapping[str, Meaning]]
    """Alias → namespace → its meaning there."""
    first: Mapping[str, str]
    """Alias → the namespace whose meaning applies to requests that name none; absent if a group owns the name."""
    conflicts: tuple[AliasConflict, ...]


NO_ALIASES = Aliases({}, {}, ())


def settle(groups: Sequence[Group], everywhere: NameKeepers) -> Aliases:
    """Return the meanings of groups' aliases in one call: see `settle_steps`."""
    return at_once(settle_steps(sorted(groups, key=by_age), everywhere))


def settle_steps(oldest_first: Sequence[Group], everywhere: NameKeepers) -> Generator[None, None, Aliases]:
    """Return the meanings of groups' aliases, in steps of a group or an alias.

    Args:
        oldest_first: the groups of a table, by age.
        everywhere: the groups that own names other than aliases.
    """
    if not any(group.aliases for group in oldest_first):
        return NO_ALIASES
    owners: dict[tuple[str, str], Group] = {}
    labels: dict[str, Group] = {}
    for group in oldest_first:
        labels[full_name(group)] = group
        for name in (group.model, group.name):
            owners.setdefault((group.namespace, name), group)
        yield
    meanings: dict[str, dict[str, Meaning]] = {}
    conflicts: list[AliasConflict] = []
    for group in oldest_first:
        for alias in group.aliases:
            owner = owners.get((group.namespace, alias.name)) or labels.get(alias.name)
            there = meanings.setdefault(alias.name, {}) if owner is None else {}
            earlier = there.get(group.namespace)
            if owner is not None:
                conflicts.append(AliasConflict(full_name(group), alias.name, full_name(owner)))
            elif earlier is None:
                there[group.namespace] = Meaning(group.model, age_of(alias.since), full_name(group))
            elif earlier.model == group.model:
                age = min(earlier.age, age_of(alias.since))
                there[group.namespace] = Meaning(earlier.model, age, earlier.group)
            else:
                conflicts.append(AliasConflict(full_name(group), alias.name, earlier.group))
        yield
    first: dict[str, str] = {}
    for name, result in meanings.items():
        namespace, meaning = min(result.items(), key=lambda item: (item[1].age, item[0]))
        other = everywhere.first(name)
        keeper = meaning.group
        if other is None or meaning.age < age_of(other.created):
            first[name] = namespace
        else:
            keeper = full_name(other)
        conflicts += [
            AliasConflict(item.group, name, keeper)
            for where, item in sorted(result.items())
            if where != first.get(name)
        ]
        yield
    return Aliases(meanings, first, tuple(conflicts))
