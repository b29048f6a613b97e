"""Tells which of two groups came first."""

from promptgroup_contract.table import Group

Age = tuple[bool, str]
"""Key by which times are compared (RFC 3339 in UTC): unknown ones come last."""


def age_of(time: str) -> Age:
    """Return the age of what has existed since a time; empty if that is unknown."""
    return (not time, time)


def full_name(group: Group) -> str:
    """Return `namespace/name`."""
    return f"{group.namespace}/{group.name}"


def by_age(group: Group) -> tuple[Age, str]:
    """Return the key by which groups are ordered when they claim something: by time of creation, then by name."""
    return age_of(group.created), full_name(group)
