"""Queues the requests that wait in the router for room, and shares the room among callers by weight.

Each caller of each group has a queue of its own. A caller's virtual time grows with the work that it was admitted with,
divided by its weight, and the caller with the least goes first: start-time fair queueing (Goyal, Vin and Cheng, 1996),
with tokens as the unit of work, as the virtual token counter has it (Sheng et al., Fairness in Serving Large Language
Models, 2024). One who was idle begins at the time of those who wait, so that nobody saves up for a burst. So neither
many requests nor long ones of one caller delay those of others.

Within a caller's queue sessions that have begun come before new ones: what they have computed is lost when they leave,
and only finished sessions make room. Then the order is first come, first served. Does no I/O and reads no clock.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

WAIT_SECONDS = 8.0
"""Seconds that a request of a running session waits before it is refused."""
NEW_SECONDS = 2.0
"""Seconds that a request of a new session waits. In an overload an early refusal does less harm."""
PASSED_OVER = 4
"""Requests of one caller without room that `admit` passes over before it goes on to the next caller."""
LOOKS = 32
"""The same of all callers, before it gives up."""

_T = TypeVar("_T")


class Share(NamedTuple):
    """The caller of a request that waits, and the share of room that it has."""

    group: str
    caller: str
    weight: int = 1
    work: float = 1.0
    """Tokens that the request makes an engine compute."""


NOBODYS = Share("", "")
"""The share of requests whose callers are not told apart."""


class _Entry(NamedTuple):
    new: bool
    since: float
    ticket: int
    item: Any  # mypyc finds no `object` where it makes a named tuple
    work: float


class _Flow:
    """The requests of one caller."""

    __slots__ = ("heap", "start", "weight")

    def __init__(self, start: float) -> None:
        self.heap: list[_Entry] = []
        self.start = start
        """Virtual time at which its next request begins."""
        self.weight = 1


class AdmissionQueue(Generic[_T]):
    """The requests that wait, in the order in which they are admitted."""

    def __init__(self) -> None:
        self._flows: dict[tuple[str, str], _Flow] = {}
        """Group and caller → requests; also of callers whose last request waits no longer, until others catch up."""
        self._now = 0.0
        """Virtual time: that at which the last admitted request began."""
        self._waiting: dict[int, str] = {}
        """Ticket → group."""
        self._groups: Counter[str] = Counter()
        """Group → its requests that wait."""
        self._count = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[_T]:
        return (entry.item for entry in self._entries())

    def put(self, item: _T, now: float, *, new: bool, share: Share = NOBODYS) -> int:
        """Add a request.

        Returns:
            Its ticket, for `withdraw`.
        """
        self._count += 1
        key = share.group, share.caller
        flow = self._flows.get(key)
        if flow is None:
            flow = self._flows[key] = _Flow(self._now)
        elif not flow.heap:
            flow.start = max(flow.start, self._now)
        flow.weight = share.weight
        heapq.heappush(flow.heap, _Entry(new, now, self._count, item, share.work))
        self._enter(self._count, share.group)
        return self._count

    def waits(self, group: str) -> bool:
        """Return True if a request of a group waits."""
        return group in self._groups

    def withdraw(self, ticket: int) -> None:
        """Remove a request whose client has left, or that was placed or refused by other means."""
        self._leave(ticket)

    def expire(self, now: float) -> Iterator[_T]:
        """Remove and yield the requests that have waited for too long."""
        for entry in list(self._entries()):
            if entry.ticket in self._waiting and now - entry.since > (NEW_SECONDS if entry.new else WAIT_SECONDS):
                self.withdraw(entry.ticket)
                yield entry.item
        self._compact()

    def admit(self, fits: Callable[[_T], bool]) -> None:
        """Offer room to the requests in order.

        Args:
            fits: places a request and returns True, or returns False if no replica has room for it.
        """
        order = [(flow.start, flow.heap[0].ticket, flow) for flow in self._flows.values() if flow.heap]
        heapq.heapify(order)
        passed: list[tuple[_Flow, _Entry]] = []
        over: dict[int, int] = {}
        while order and len(passed) < LOOKS:
            _, _, flow = heapq.heappop(order)
            entry = heapq.heappop(flow.heap)
            if (group := self._leave(entry.ticket)) is not None:
                if fits(entry.item):
                    self._now = max(self._now, flow.start)
                    flow.start += entry.work / flow.weight
                else:
                    self._enter(entry.ticket, group)
                    passed.append((flow, entry))
                    over[id(flow)] = over.get(id(flow), 0) + 1
            if flow.heap and over.get(id(flow), 0) < PASSED_OVER:
                heapq.heappush(order, (flow.start, flow.heap[0].ticket, flow))
        for flow, entry in passed:
            heapq.heappush(flow.heap, entry)

    def _enter(self, ticket: int, group: str) -> None:
        self._waiting[ticket] = group
        self._groups[group] += 1

    def _leave(self, ticket: int) -> str | None:
        group = self._waiting.pop(ticket, None)
        if group is not None:
            self._groups[group] -= 1
            if not self._groups[group]:
                del self._groups[group]
        return group

    def _entries(self) -> Iterator[_Entry]:
        for flow in self._flows.values():
            for entry in flow.heap:
                if entry.ticket in self._waiting:
                    yield entry

    def _compact(self) -> None:
        """Forget what was withdrawn, and callers who have no advantage of being forgotten."""
        for key, flow in list(self._flows.items()):
            if any(entry.ticket not in self._waiting for entry in flow.heap):
                flow.heap = [entry for entry in flow.heap if entry.ticket in self._waiting]
                heapq.heapify(flow.heap)
            if not flow.heap and flow.start <= self._now:
                del self._flows[key]
        if not self._waiting:
            self._flows.clear()  # nobody waits: there is nothing to share
