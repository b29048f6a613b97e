"""Find watches that no longer deliver events, by comparing them with lists. Does no I/O and reads no clock.

A watch may end, or go silent with its connection open, and look alive for ever. So a list is taken now and then. An
object whose version differs from what the watch delivered is noted; if the watch delivers nothing about it until the
next list, the watch has missed it. One list alone proves nothing, since an event may be on its way.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

Name: TypeAlias = tuple[str, str]
"""Namespace and name."""
Versions: TypeAlias = Mapping[Name, str]
"""Object → resourceVersion; versions are compared for equality only."""


@dataclass(frozen=True, slots=True)
class Gap:
    """An object whose latest version the watch did not deliver."""

    kind: str
    name: Name
    told: str
    """resourceVersion that was delivered last; empty if none was, or the deletion was."""


def gaps(kind: str, told: Versions, listed: Versions) -> frozenset[Gap]:
    """Return the objects that differ between a watch and a list: other versions, missing objects, missing deletions.

    Args:
        kind: kind of the objects.
        told: versions that the watch delivered, before or after the list was requested.
        listed: versions that the list shows.
    """
    names = told.keys() | listed.keys()
    return frozenset(Gap(kind, each, told.get(each, "")) for each in names if told.get(each) != listed.get(each))


def silent(before: frozenset[Gap], now: frozenset[Gap]) -> tuple[str, ...]:
    """Return the kinds whose watch missed something: a gap at two lists in a row, without an event between them."""
    return tuple(sorted({gap.kind for gap in before & now}))
