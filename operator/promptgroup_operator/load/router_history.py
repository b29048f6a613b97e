"""The traffic of each group's revisions, lately and since a release step began, from repeated readings of the routers.

A router's page has all of its groups, so it is read once for all of them. Counters begin anew with each router process,
so a series belongs to one container, and its first reading is its baseline. For a group that was not on the page before
the baseline is zero. Unknown is not zero: without a window of readings there are no figures. Losing the readings costs
time, and nothing else.

Routers may be hostile, and whoever may make groups and pods decides how much there is to keep. So readings of all
namespaces together take MEMORY at most, and one namespace no more than half of what the others leave.
"""

import logging
import threading
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from promptgroup_contract import names
from promptgroup_contract.fingerprint import ShortFingerprint
from promptgroup_operator.base.fair_pool import share
from promptgroup_operator.load.router_metrics import SLOT, RevisionGauges, RouterCounts
from promptgroup_operator.world.load import LOAD_WINDOW, ClientLoad, PromptDrift
from promptgroup_operator.world.samples import Calls, Flow, SlotUse, Stratum, StratumKey, Traffic
from promptgroup_operator.world.snapshot import ContainerId, Key

WINDOW = timedelta(seconds=30)
"""The window of traffic shares: long enough to average over turns, short against the warm-up of a replica."""
SETTLED = timedelta(seconds=10)
"""Readings that span less give no shares yet."""
RELEASE_PERIOD = timedelta(seconds=2)
"""Time between readings of a router while a group that it serves is being released."""
LATELY = timedelta(seconds=90)
"""Age from which a router's last reading is not used."""
SPACING = timedelta(seconds=5)
"""If readings are closer to each other, only the newest is kept."""
FORGOTTEN = timedelta(minutes=10)
"""A router that was not read for so long is gone."""
MEMORY = 128 << 20
"""Bytes that all readings together may take, as `router_metrics` counts them.

A namespace alone may take half: a revision with clients of all kinds has up to 15 readings of 24 KB in each router, so
that is room for 180 of them, as one in each of 60 groups with three routers.
"""
MOST_EPOCH = 2**33
"""Seconds since 1970 up to which a router's time is a time: the year 2242."""
SERIES = 2048
"""Bytes for a series without its readings."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Series:
    """Readings of one router for one group."""

    baseline: RouterCounts
    """The counters when the step began, or the first reading in it."""
    readings: deque[tuple[datetime, RouterCounts]] = field(default_factory=deque)
    """Readings within the window, and the last one before it; without slots."""
    slots: Mapping[ShortFingerprint, Mapping[int, SlotUse]] = field(default_factory=dict)
    """Slots of the last reading: they are of the moment."""
    since: datetime | None = None
    """Time of the first reading."""
    rose: dict[ShortFingerprint, datetime] = field(default_factory=dict)
    """Revision → when its requests were last seen to have grown."""
    called: datetime | None = None
    """Time of the latest request that found the group without any replica, on purpose."""

    def add(self, counts: RouterCounts, now: datetime) -> None:
        readings = self.readings
        last = readings[-1][1] if readings else self.baseline
        before = last.flows
        if counts.wake_requests > last.wake_requests:
            self.called = now
        elif self.called is None:  # nobody has seen the count before it grew
            self.called = _time(counts.wake_at, now)
        self.since = self.since or now
        self.slots, counts = counts.slots, _without_slots(counts)
        # what left the page, as the router forgot it, has no requests
        self.rose = {revision: at for revision, at in self.rose.items() if revision in counts.flows}
        for revision, flow in counts.flows.items():
            known = before.get(revision)
            if flow.requests != (known.requests if known is not None else 0):
                self.rose[revision] = now
        if readings and readings[-1][1] == counts:
            counts = readings[-1][1]  # one copy of what does not change
        if len(readings) > 1 and readings[-1][0] - readings[-2][0] < SPACING:
            readings.pop()
        readings.append((now, counts))
        while len(readings) > 2 and now - readings[1][0] >= LOAD_WINDOW:
            readings.popleft()

    @property
    def memory(self) -> int:
        """Bytes that it takes; what several readings share counts once."""
        result = {
            id(router_counts): router_counts.memory
            for router_counts in (self.baseline, *(counts for _, counts in self.readings))
        }
        return SERIES + sum(result.values()) + SLOT * sum(map(len, self.slots.values()))

    def span(
        self, now: datetime, length: timedelta
    ) -> tuple[tuple[datetime, RouterCounts], tuple[datetime, RouterCounts]]:
        """Return the last reading that is as old as the window, or else the first one; and the newest."""
        began = self.readings[0]
        for reading in self.readings:
            if now - reading[0] < length:
                break
            began = reading
        return began, self.readings[-1]


@dataclass(slots=True)
class _Group:
    step: object = None
    routers: dict[ContainerId, _Series] = field(default_factory=dict)
    dropped: set[ContainerId] = field(default_factory=set)
    """Routers whose readings took too much memory: what they say next is no news since the reading before."""


class RouterHistory:
    """Readings of every router. Safe to use from many threads."""

    def __init__(self) -> None:
        self._groups: dict[Key, _Group] = {}
        self._pages: dict[ContainerId, datetime] = {}
        """Container of a router → when its page was last read."""
        self._memory: Counter[str] = Counter()
        """Namespace → bytes that readings for its groups take."""
        self._full: set[str] = set()
        """Namespaces of which readings were dropped."""
        self._lock = threading.Lock()

    def add(self, router: ContainerId, router_countses: Mapping[Key, RouterCounts], now: datetime) -> None:
        """Keep a reading of a router, with all of its groups."""
        with self._lock:
            before = self._pages.get(router)
            if before is not None and now - before > LOAD_WINDOW:
                before = None  # too long ago to be a baseline
            self._pages[router] = now
            for key, counts in router_countses.items():
                group = self._groups.setdefault(key, _Group())
                series = group.routers.get(router)
                if series is None:
                    absent = before if router not in group.dropped else None
                    series = _Series(_without_slots(counts) if absent is None else RouterCounts())
                    group.routers[router] = series
                    group.dropped.discard(router)
                    if absent is not None:
                        series.add(RouterCounts(), absent)
                else:
                    self._memory[key.namespace] -= series.memory
                series.add(counts, now)
                self._memory[key.namespace] += series.memory
                self._bound(key, group, router)

    def _bound(self, key: Key, group: _Group, router: ContainerId) -> None:
        """Drop the readings of a router for a group if those of its namespace take more than their share."""
        taken = self._memory[key.namespace]
        if taken <= share(MEMORY, self._memory.total() - taken):
            return
        self._memory[key.namespace] -= group.routers.pop(router).memory
        group.dropped.add(router)
        if key.namespace not in self._full:
            self._full.add(key.namespace)
            logger.warning(
                "%s: readings of its routers take %d MiB: of some groups there are none", key.namespace, taken >> 20
            )

    def begin(self, key: Key, step: object) -> None:
        """Begin new samples for a group if the step of its release changed."""
        with self._lock:
            group = self._groups.get(key)
            if group is not None and group.step != step:
                group.step = step
                for series in group.routers.values():
                    self._memory[key.namespace] -= series.memory
                    series.baseline = series.readings[-1][1]
                    self._memory[key.namespace] += series.memory

    def traffic(self, key: Key, now: datetime) -> Traffic | None:
        """Return the traffic of the group's revisions; None if no router was read, or there was no room for one."""
        with self._lock:
            group = self._groups.get(key)
            if group is None or group.dropped:
                return None
            flows: dict[ShortFingerprint, Flow] = {}
            samples: dict[ShortFingerprint, dict[StratumKey, Stratum]] = {}
            is_known = False
            for series in group.routers.values():
                (began, first), (read, last) = series.span(now, WINDOW)
                is_known |= now - began >= SETTLED
                for revision, flow in last.flows.items() if now - read < WINDOW else ():
                    before, total = first.flows.get(revision, Flow()), flows.get(revision, Flow())
                    flows[revision] = Flow(
                        total.requests + max(0.0, flow.requests - before.requests),
                        total.named + max(0.0, flow.named - before.named),
                    )
                for revision, sample in last.samples.items():
                    base, sums = series.baseline.samples.get(revision, {}), samples.setdefault(revision, {})
                    for name, stratum in sample.items():
                        sums[name] = sums.get(name, Stratum()) + (stratum - base.get(name, Stratum()))
            return Traffic(is_known, flows, samples, *self._last_requests(group, now))

    def calls(self, keys: Iterable[Key], now: datetime) -> Calls:
        """Return what all routers tell of requests that found groups without any replica, on purpose.

        Args:
            keys: a group, and those that live on its replicas.
            now: the time.
        """
        with self._lock:
            result = [
                (router, series.called)
                for key in keys
                for router, series in (self._groups[key].routers.items() if key in self._groups else ())
            ]
            read = any(now - self._pages[router] <= LATELY for router, _ in result)
        return Calls(max((at for _, at in result if at is not None), default=None), read)

    def _last_requests(self, group: _Group, now: datetime) -> tuple[dict[ShortFingerprint, datetime], datetime | None]:
        """Return when requests of each revision were last seen, and since when every router has been read.

        A router that cannot be read may send requests that nobody counts, so that no revision is known to be quiet
        until it is read again or forgotten.
        """
        last: dict[ShortFingerprint, datetime] = {}
        since: datetime | None = None
        for router, series in group.routers.items():
            if now - self._pages[router] > LATELY:
                return {}, None
            began = series.since or now
            since = max(since, began) if since is not None else began
            for revision, at in series.rose.items():
                last[revision] = max(at, last.get(revision, at))
        return last, since

    def clients(self, key: Key, revision: ShortFingerprint, declared_tokens: int, now: datetime) -> ClientLoad | None:
        """Return what the clients of a revision had; None if no router was read lately.

        Args:
            key: the group.
            revision: the revision.
            declared_tokens: length of its Tier-1 prefix; 0 when unknown.
            now: the time.
        """
        spans = self._spans(key, now)
        seconds = max((until - since for since, _, until, _ in spans), default=timedelta()).total_seconds()
        if not seconds:
            return None
        total, opening, tokens = Stratum(), 0.0, RevisionGauges()
        evicted = dict.fromkeys(names.EVICTED_WITHIN, 0.0)
        stocks = [last.stocks.get(revision, RevisionGauges()) for *_, last in spans]
        for _, first, _, last in spans:
            for name, stratum in last.samples.get(revision, {}).items():
                arrived = stratum - first.samples.get(revision, {}).get(name, Stratum())
                total += arrived
                opening += arrived.requests if name.turn == names.TURN_FIRST else 0.0
            before = first.stocks.get(revision, RevisionGauges())
            tokens = tokens.with_growth(before, last.stocks.get(revision, RevisionGauges()))
            lost, lost_before = last.evicted.get(revision, {}), first.evicted.get(revision, {})
            for band, lost_tokens in lost.items():
                evicted[band] += max(0.0, lost_tokens - lost_before.get(band, 0.0))
        return ClientLoad(
            requests=total.requests / seconds,
            errors=total.errors / seconds,
            prompt_tokens=tokens.prompt_tokens / seconds,
            sessions=sum(stock.sessions for stock in stocks),
            session_tokens=sum(stock.session_tokens for stock in stocks),
            declared_tokens=declared_tokens,
            first_token=total.first_token,
            opening=opening / total.requests if total.requests else None,
            held=sum(stock.waiting for stock in stocks),
            evicted=tuple(lost_tokens / seconds for lost_tokens in evicted.values()),
            answer_tokens=tokens.answer_tokens / seconds,
            looked_up=tokens.looked_up_tokens / seconds,
            cached=tokens.cached_tokens / seconds,
        )

    def reads(self, now: datetime) -> bool:
        """Return True if a router was read lately: then a group of which nothing is known had no request."""
        with self._lock:
            return any(now - read <= LATELY for read in self._pages.values())

    def slot_use(self, key: Key, revision: ShortFingerprint, now: datetime) -> dict[int, SlotUse]:
        """Return slot → what it works on and holds, of all routers together; empty if no router was read lately.

        Sums count nothing twice: a request runs in one router, and a session is counted by the router that served it
        last, which the others are told.

        Args:
            key: the group.
            revision: short fingerprint of the revision whose slots are meant.
            now: the time.
        """
        with self._lock:
            group = self._groups.get(key)
            series = list(group.routers.values()) if group is not None and not group.dropped else []
            last = [(item.readings[-1][0], item.slots) for item in series]
        slot_uses: dict[int, SlotUse] = {}
        for at, slots in last:
            for slot, use in slots.get(revision, {}).items() if now - at <= LATELY else ():
                slot_uses[slot] = slot_uses.get(slot, SlotUse()) + use
        return slot_uses

    def drift(self, key: Key, declared_bytes: int, now: datetime) -> PromptDrift | None:
        """Return where requests differ from the declared prompt of so many bytes; None if no router saw any."""
        spans = self._spans(key, now)
        missed = sorted(
            (last.near_miss_offset, max(0.0, last.near_misses - first.near_misses)) for _, first, _, last in spans
        )
        count = sum(entry for _, entry in missed)
        if not count:
            return None
        served = sum(max(0.0, last.requests - first.requests) for _, first, _, last in spans)
        passed = 0.0
        for at, item in missed:  # the median of all routers' requests, each with its router's median
            passed += item
            if passed >= count / 2:
                return PromptDrift(count / (count + served), int(at), declared_bytes)
        raise AssertionError("the parts add up to the whole")

    def _spans(self, key: Key, now: datetime) -> list[tuple[datetime, RouterCounts, datetime, RouterCounts]]:
        """Return the first and the newest reading of each router that was read lately."""
        with self._lock:
            group = self._groups.get(key)
            series = list(group.routers.values()) if group is not None and not group.dropped else []
            spans = [item.span(now, LOAD_WINDOW) for item in series]
        return [(*first, *last) for first, last in spans if now - last[0] <= LATELY]

    def forget(self, now: datetime) -> None:
        """Drop the routers that were not read for FORGOTTEN."""
        with self._lock:
            gone = {router for router, read in self._pages.items() if now - read > FORGOTTEN}
            for router in gone:
                del self._pages[router]
            for key, group in self._groups.items() if gone else ():
                for router in gone & group.routers.keys():
                    self._memory[key.namespace] -= group.routers.pop(router).memory
                group.dropped -= gone
            if gone:
                self._groups = {key: item for key, item in self._groups.items() if item.routers or item.dropped}
                self._memory = +self._memory  # without zeros
                self._full &= self._memory.keys()


def _time(epoch: float, now: datetime) -> datetime | None:
    """Return the time that a router tells, no later than now; None where it tells none that can be."""
    if not 0 < epoch < MOST_EPOCH:
        return None
    return min(now, datetime.fromtimestamp(epoch, UTC))


def _without_slots(counts: RouterCounts) -> RouterCounts:
    return replace(counts, slots={})
