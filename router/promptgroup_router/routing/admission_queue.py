"""Queues the requests that wait in the router for capacity, and shares the capacity among callers by weight.

Each caller of each group's revision has a queue of its own. A caller's virtual time grows with the work that it was
admitted with, divided by its weight, and the caller with the least goes first: start-time fair queueing (Goyal, Vin and
Cheng, 1996), with tokens as the unit of work, as in the virtual token counter (Sheng et al., Fairness in Serving Large
Language Models, 2024). A caller that was idle begins at the time of those who wait, so that no caller saves up capacity
for a burst. So neither many requests nor long ones of one caller delay those of others.

Callers have classes, and a higher one goes first. A caller behind a higher class who has waited for AGE_SECONDS without
being served gets a turn in between, but only one turn in TURNS is for such callers: so no caller starves, and however
many wait in lower classes, the higher ones get most of the capacity. Each class has a virtual time of its own.

Within a caller's queue running sessions have priority over new ones: their cached prefixes are lost when they leave,
and only finished sessions free capacity. Then the order is first come, first served.

The revisions of groups have replicas of their own, so a full revision says nothing about the others. Each attempt to
place a request costs a decision of the policy, and an `admit` may fail only few times: some of these attempts are
reserved for each revision, and the rest follows the order.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from math import inf
from typing import Any, Generic, NamedTuple, TypeVar

WAIT_SECONDS = 8.0
"""Seconds that a request of a running session waits before it is refused."""
NEW_SECONDS = 2.0
"""Seconds that a request of a new session waits. In an overload an early refusal does less harm."""
PASSED_OVER = 4
"""Requests of one caller that `admit` fails to place before it continues with the next caller."""
LOOKS = 24
"""Failed attempts for all callers together, after which an `admit` ends."""
AGE_SECONDS = 1.0
"""Wait after which a caller of a lower class may take a turn; a new session waits for twice as long."""
TURNS = 4
"""One of so many admissions is for those who have waited in lower classes."""

_T = TypeVar("_T")


class Share(NamedTuple):
    """The caller of a waiting request, and its share of the capacity."""

    group: str
    caller: str
    weight: int = 1
    work: float = 1.0
    """Tokens that the request makes an engine compute."""
    rank: int = 0
    """The caller's class: 0 goes first."""
    revision: str = ""
    """The group's revision whose replicas the request waits for."""

    @property
    def place(self) -> "_Place":
        """The group and revision whose capacity the request waits for."""
        return self.group, self.revision


_Place = tuple[str, str]
"""A group and its revision."""


NOBODYS = Share("", "")
"""The share of requests whose callers are not distinguished."""


class _Entry(NamedTuple):
    new: bool
    since: float
    ticket: int
    item: Any  # mypyc finds no `object` where it makes a named tuple
    work: float
    seconds: float


class _Flow:
    """The requests of one caller."""

    __slots__ = ("heap", "place", "rank", "served", "start", "weight")

    def __init__(self, place: _Place, rank: int) -> None:
        self.place = place
        self.heap: list[_Entry] = []
        self.start = 0.0
        """Virtual time at which its next request begins."""
        self.weight = 1
        self.rank = rank
        self.served = -inf
        """The time at which it was served last."""


_Turn = tuple[int, float, int, _Flow]
"""Class, virtual time (or the moment since when it waits), ticket, and the caller: the least goes first."""


def _line_up(flow: _Flow, order: list[_Turn], old: list[_Turn], highest: int, now: float) -> None:
    """Add a caller's next request to `order`, or to `old` if the caller has aged behind the highest class."""
    head = flow.heap[0]
    if flow.rank > highest and now - max(head.since, flow.served) >= AGE_SECONDS:
        heapq.heappush(old, (0, head.since, head.ticket, flow))
    else:
        heapq.heappush(order, (flow.rank, flow.start, head.ticket, flow))


class AdmissionQueue(Generic[_T]):
    """The requests that wait, in the order in which they are admitted."""

    def __init__(self) -> None:
        self._flows: dict[tuple[_Place, str], _Flow] = {}
        """Place and caller → requests; also of callers whose last request waits no longer, until others catch up."""
        self._now: dict[int, float] = {}
        """Class → virtual time: that at which its last admitted request began."""
        self._turns = 0
        """Admissions since one was for a caller who had waited in a lower class."""
        self._waiting: dict[int, _Place] = {}
        """Ticket → place."""
        self._places: dict[_Place, int] = {}
        """Place → requests that wait for it; first the places that `admit` has tried the longest ago."""
        self._groups: Counter[str] = Counter()
        """Group → its requests that wait."""
        self._count = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[_T]:
        return (entry.item for entry in self._entries())

    def put(self, item: _T, now: float, *, new: bool, share: Share = NOBODYS, seconds: float = 0.0) -> int:
        """Add a request.

        Args:
            item: the request.
            now: monotonic seconds.
            new: whether it begins a session.
            share: its caller, and where it waits.
            seconds: its longest wait; 0 for that of its session.

        Returns:
            Its ticket, for `withdraw`.
        """
        self._count += 1
        key = share.place, share.caller
        flow = self._flows.get(key)
        if flow is None or (flow.rank != share.rank and not flow.heap):
            flow = self._flows[key] = _Flow(share.place, share.rank)
        if not flow.heap:
            flow.start = max(flow.start, self._now.get(flow.rank, 0.0))
        flow.weight = share.weight
        heapq.heappush(flow.heap, _Entry(new, now, self._count, item, share.work, seconds))
        self._enter(self._count, share.place)
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
            longest = entry.seconds or (NEW_SECONDS if entry.new else WAIT_SECONDS)
            if entry.ticket in self._waiting and now - entry.since > longest:
                self.withdraw(entry.ticket)
                yield entry.item
        self._compact()

    def admit(self, fits: Callable[[_T], bool], now: float = 0.0) -> None:
        """Admit waiting requests in order, as far as replicas have capacity.

        At most `LOOKS` attempts fail in one call. A place is a group's revision. While requests wait for no more than
        `LOOKS` places, the first of each place is tried in every call, however full the others are. If requests wait
        for n places when a place gets its first request, the first of that place is tried in one of the next ⌈2(n + 1)
        / LOOKS⌉ calls, whatever arrives later.

        Args:
            fits: places a request and returns True, or returns False if no replica has capacity for it.
            now: monotonic seconds, by which those who wait in lower classes age.
        """
        flows = [flow for flow in self._flows.values() if flow.heap]
        highest = min((flow.rank for flow in flows), default=0)
        order: list[_Turn] = []
        old: list[_Turn] = []
        for flow in flows:
            _line_up(flow, order, old, highest, now)
        passed: list[tuple[_Flow, _Entry]] = []
        over: Counter[int] = Counter()
        reserved = self._reserved()
        others = LOOKS - sum(reserved.values())
        while (order or old) and len(passed) < LOOKS:
            aged = bool(old) and (not order or self._turns >= TURNS - 1)
            _, _, _, flow = heapq.heappop(old if aged else order)
            place = flow.place
            own = reserved.get(place, 0)
            if not own and not others:
                continue
            entry = heapq.heappop(flow.heap)
            if self._leave(entry.ticket):
                if fits(entry.item):
                    self._serve(flow, entry, now, aged=aged)
                else:
                    self._enter(entry.ticket, place)
                    passed.append((flow, entry))
                    over[id(flow)] += 1
                    if own:
                        reserved[place] = own - 1
                    else:
                        others -= 1
                if place in self._places:
                    self._places[place] = self._places.pop(place)
            if flow.heap and over[id(flow)] < PASSED_OVER:
                _line_up(flow, order, old, highest, now)
        for flow, entry in passed:
            heapq.heappush(flow.heap, entry)

    def _reserved(self) -> dict[_Place, int]:
        """Return place → failed attempts of an `admit` that are reserved for its requests.

        If there are more places than attempts, the places that were tried the longest ago have one each, and half of
        the attempts are left for the order.
        """
        count = len(self._places)
        due = count if count <= LOOKS else LOOKS // 2
        item = max(1, LOOKS // max(1, count))
        return {place: min(item, waiting) for place, waiting in islice(self._places.items(), due)}

    def _serve(self, flow: _Flow, entry: _Entry, now: float, *, aged: bool) -> None:
        self._turns = 0 if aged else self._turns + 1
        self._now[flow.rank] = max(self._now.get(flow.rank, 0.0), flow.start)
        flow.start += entry.work / flow.weight
        flow.served = now

    def _enter(self, ticket: int, place: _Place) -> None:
        self._waiting[ticket] = place
        self._places[place] = self._places.get(place, 0) + 1
        self._groups[place[0]] += 1

    def _leave(self, ticket: int) -> bool:
        """Return True if the request has waited until now."""
        place = self._waiting.pop(ticket, None)
        if place is None:
            return False
        self._places[place] -= 1
        if not self._places[place]:
            del self._places[place]
        self._groups[place[0]] -= 1
        if not self._groups[place[0]]:
            del self._groups[place[0]]
        return True

    def _entries(self) -> Iterator[_Entry]:
        for flow in self._flows.values():
            for entry in flow.heap:
                if entry.ticket in self._waiting:
                    yield entry

    def _compact(self) -> None:
        """Drop withdrawn requests, and callers whose virtual time would not decrease by it."""
        for key, flow in list(self._flows.items()):
            if any(entry.ticket not in self._waiting for entry in flow.heap):
                flow.heap = [entry for entry in flow.heap if entry.ticket in self._waiting]
                heapq.heapify(flow.heap)
            if not flow.heap and flow.start <= self._now.get(flow.rank, 0.0):
                del self._flows[key]
        if not self._waiting:
            self._flows.clear()  # no request waits: there is nothing to share
