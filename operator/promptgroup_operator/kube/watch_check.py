"""Whether the watches still tell what happens: what they told of, compared with lists of the same objects.

A watch may end, or go silent with its connection open, and look alive for ever. So a list is taken now and then; an
object that stands otherwise than the watch has told is noted, and if it was told of no further until the next list,
the watch has missed it. One list alone proves nothing: an event may be on its way. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

Name: TypeAlias = tuple[str, str]
"""Namespace and name."""
Versions: TypeAlias = Mapping[Name, str]
"""Objects of one kind → resourceVersion; versions are compared for equality only."""


@dataclass(frozen=True, slots=True)
class Gap:
    """An object of which the watch did not tell how it stands."""

    kind: str
    name: Name
    told: str
    """resourceVersion that was told last, empty when it was never told of, or told of as deleted."""


def gaps(kind: str, told: Versions, listed: Versions) -> frozenset[Gap]:
    """Objects that a list shows otherwise than the watch told: other versions, untold ones, untold deletions.

    Args:
        kind: of the objects.
        told: as the watch told last, before the list was asked for or after.
        listed: as the list shows them.
    """
    names = told.keys() | listed.keys()
    return frozenset(Gap(kind, each, told.get(each, "")) for each in names if told.get(each) != listed.get(each))


def silent(before: frozenset[Gap], now: frozenset[Gap]) -> tuple[str, ...]:
    """Kinds whose watch missed something: a gap at two lists in a row, with nothing told of the object between them."""
    return tuple(sorted({gap.kind for gap in before & now}))
