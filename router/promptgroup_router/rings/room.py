"""Bounds the router capacity that the routes of one namespace, and of all, use. Does no I/O and reads no clock.

A user who may write PromptRoutes in one namespace must not block the event loop, or fill the memory, for all others.
"""

from collections.abc import Mapping
from typing import NamedTuple

from promptgroup_contract.table import TableError


class Size(NamedTuple):
    """The size of some routes.

    A slot, or a rank of its engine, uses 5 KiB, and 20 µs when it is added; a revision ten times as much time.
    """

    revisions: int
    slots: int

    def plus(self, other: "Size", sign: int = 1) -> "Size":
        """Return the sum of both sizes, or the difference with the sign -1."""
        return Size(self.revisions + sign * other.revisions, self.slots + sign * other.slots)


NOTHING = Size(0, 0)
MOST_OF_NAMESPACE = Size(16_384, 32_768)
"""Most that a router serves per namespace, so that one cannot use the capacity of all others."""
MOST = Size(32_768, 65_536)
"""Most that a router serves. Ten thousand groups that each replace a revision use two thirds of it."""


class Room:
    """The sizes of the routes that are served."""

    def __init__(self) -> None:
        self._routes: dict[tuple[str, str], Size] = {}
        self._namespaces: dict[str, Size] = {}
        self._all = NOTHING

    def check(self, namespace: str, name: str, size: Size) -> None:
        """Check that a route of a size is within the limits; its present size does not count.

        Raises:
            TableError: the limits are exceeded, given the sizes of the other routes.
        """
        more = size.plus(self._routes.get((namespace, name), NOTHING), -1)
        own = self._namespaces.get(namespace, NOTHING).plus(more)
        for whose, result, most in (
            (f"namespace {namespace}", own, MOST_OF_NAMESPACE),
            ("all namespaces", self._all.plus(more), MOST),
        ):
            if result.revisions > most.revisions or result.slots > most.slots:
                raise TableError(
                    f"{namespace}/{name}: the routes of {whose} would have {result.revisions} revisions "
                    f"and {result.slots} slots, and a router serves {most.revisions} and {most.slots}: have fewer "
                    "groups or replicas there, or routers for them alone"
                )

    def take(self, namespace: str, name: str, size: Size) -> None:
        """Record the size of a route."""
        self.leave(namespace, name)
        self._routes[namespace, name] = size
        self._count(namespace, size, 1)

    def leave(self, namespace: str, name: str) -> None:
        """Record that a route was removed."""
        size = self._routes.pop((namespace, name), None)
        if size is not None:
            self._count(namespace, size, -1)

    def _count(self, namespace: str, size: Size, sign: int) -> None:
        self._all = self._all.plus(size, sign)
        own = self._namespaces.get(namespace, NOTHING).plus(size, sign)
        if own == NOTHING:
            self._namespaces.pop(namespace, None)
        else:
            self._namespaces[namespace] = own


def size_of(spec: object) -> Size:
    """Return the size of a route that is not decoded yet, by its lists and ranks; a value that is no list counts 0."""
    revisions = spec.get("revisions") if isinstance(spec, Mapping) else None
    result = revisions if isinstance(revisions, list) else []
    slots = [item.get("slots") for item in result if isinstance(item, Mapping)]
    return Size(len(result), sum(_places(slot) for item in slots if isinstance(item, list) for slot in item))


def _places(slot: object) -> int:
    """Return the number of ring positions of a slot; 1 if the value is not a slot."""
    ranks = slot.get("ranks") if isinstance(slot, Mapping) else 1
    return ranks if isinstance(ranks, int) and ranks > 1 else 1
