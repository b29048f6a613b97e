"""Defines the order of groups by age."""

from promptgroup_contract.table import Group

Age = tuple[bool, str]
"""Sort key of a time (RFC 3339 in UTC): unknown times sort last."""


def age_of(time: str) -> Age:
    """Return the sort key of an object that has existed since `time`, which is empty if it is unknown."""
    return (not time, time)


def full_name(group: Group) -> str:
    """Return `namespace/name`."""
    return f"{group.namespace}/{group.name}"


def by_age(group: Group) -> tuple[Age, str]:
    """Return the key by which groups are ordered when they claim names or prefixes: time of creation, then name."""
    return age_of(group.created), full_name(group)
