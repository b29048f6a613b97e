"""Holds the requests that wait for a group to have a replica, in order of arrival.

They are not in the admission queue: it is scanned whenever a request ends, and these requests wait for minutes.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

MOST_HELD = 2048
"""Most requests that are held for one group."""
MOST_BYTES = 64 << 20
"""Most bytes of the bodies of the requests that are held for one group."""
CALLER_SHARE = 2
"""An identified caller may use at most one half of both limits."""

_T = TypeVar("_T")


class FullError(Exception):
    """No further request may wait for the group, by its limits or by those of the caller."""


class _Held(NamedTuple):
    caller: str
    size: int
    until: float
    item: Any  # mypyc finds no `object` where it makes a named tuple


class _Room:
    """The requests that wait for one group."""

    __slots__ = ("by_caller", "entries", "size")

    def __init__(self) -> None:
        self.entries: dict[int, _Held] = {}
        """Ticket → request, the oldest first."""
        self.size = 0
        """Bytes of the bodies of all requests."""
        self.by_caller: dict[str, tuple[int, int]] = {}
        """Caller → number of its requests, and their bytes; without callers that are not identified."""

    def fits(self, caller: str, size: int) -> bool:
        """Return True if one more request is within the limits."""
        count, taken = self.by_caller.get(caller, (0, 0))
        if caller and (count >= MOST_HELD // CALLER_SHARE or taken + size > MOST_BYTES // CALLER_SHARE):
            return False
        return len(self.entries) < MOST_HELD and self.size + size <= MOST_BYTES

    def add(self, ticket: int, held: _Held) -> None:
        """Add a request."""
        self.entries[ticket] = held
        self.size += held.size
        if held.caller:
            count, taken = self.by_caller.get(held.caller, (0, 0))
            self.by_caller[held.caller] = count + 1, taken + held.size

    def remove(self, ticket: int) -> None:
        """Remove a request, if it is still held."""
        held = self.entries.pop(ticket, None)
        if held is None:
            return
        self.size -= held.size
        if held.caller:
            count, taken = self.by_caller[held.caller]
            if count == 1:
                del self.by_caller[held.caller]
            else:
                self.by_caller[held.caller] = count - 1, taken - held.size


class HeldRequests(Generic[_T]):
    """The requests that wait for groups without replicas."""

    def __init__(self) -> None:
        self._rooms: dict[str, _Room] = {}
        """Group → the requests that wait for it; without groups for which none wait."""
        self._groups: dict[int, str] = {}
        """Ticket → group."""
        self._count = 0

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def by_group(self) -> Mapping[str, int]:
        """Group → number of requests that wait for it."""
        return {group: len(room.entries) for group, room in self._rooms.items()}

    def __iter__(self) -> Iterator[_T]:
        return (held.item for room in self._rooms.values() for held in room.entries.values())

    def put(self, item: _T, *, group: str, caller: str, size: int, until: float) -> int:
        """Hold a request.

        Args:
            item: the request.
            group: label of the group that it waits for.
            caller: the caller that sends it; empty where callers are not identified.
            size: bytes of its body.
            until: end of the longest time that it may wait, in monotonic seconds.

        Returns:
            Its ticket, for `withdraw`.

        Raises:
            FullError: a limit of the group or of the caller is reached.
        """
        room = self._rooms.get(group) or _Room()
        if not room.fits(caller, size):
            raise FullError
        self._count += 1
        self._rooms[group] = room
        self._groups[self._count] = group
        room.add(self._count, _Held(caller, size, until, item))
        return self._count

    def withdraw(self, ticket: int) -> None:
        """Remove a request whose client has left, or that is routed now."""
        group = self._groups.pop(ticket, None)
        if group is None:
            return
        room = self._rooms[group]
        room.remove(ticket)
        if not room.entries:
            del self._rooms[group]

    def waits(self, group: str) -> bool:
        """Return True if any request waits for the group."""
        return group in self._rooms

    def expire(self, now: float) -> Iterator[_T]:
        """Remove and yield the requests that have waited for too long."""
        late = [
            (ticket, held.item)
            for room in self._rooms.values()
            for ticket, held in room.entries.items()
            if now >= held.until
        ]
        for ticket, item in late:
            if ticket in self._groups:
                self.withdraw(ticket)
                yield item

    def release(self, goes: Callable[[_T], bool]) -> None:
        """Try to route every request, those of a group in order of arrival.

        Args:
            goes: returns True for a request that does not have to wait any longer.
        """
        for ticket, item in [
            (ticket, held.item) for room in self._rooms.values() for ticket, held in room.entries.items()
        ]:
            if ticket in self._groups and goes(item):
                self.withdraw(ticket)
