"""The recent traffic of each group's revisions, and that since a release step began, from repeated router scrapes.

A router's page holds all of its groups, so one scrape serves all of them. Counters start at zero with each router
process, so a series belongs to one container, and its first reading is its baseline. For a group that was not on the
previous page the baseline is zero. Unknown is not zero: without a window of readings there are no figures. If the
readings are lost, only time is lost until a new window is full.

Routers may be hostile, and any user who may create groups and pods determines the amount of data. Therefore the
readings of all namespaces together take MEMORY at most, and those of one namespace at most half of what the others
leave.
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
"""Minimum time that readings must span before traffic shares are computed from them."""
RELEASE_PERIOD = timedelta(seconds=2)
"""Time between readings of a router while a group that it serves is being released."""
LATELY = timedelta(seconds=90)
"""Age after which a router's last reading is not used."""
SPACING = timedelta(seconds=5)
"""Minimum time between two stored readings; of readings closer together only the newest is stored."""
FORGOTTEN = timedelta(minutes=10)
"""Time without a reading after which a router's series are deleted."""
MEMORY = 128 << 20
"""Maximum memory in bytes of all readings together, as `router_metrics` counts it.

A single namespace may take half of it: a revision with clients of all kinds has up to 15 readings of 24 KB in each
router, so half holds 180 of them, for example one in each of 60 groups with three routers.
"""
MOST_EPOCH = 2**33
"""Upper bound of a valid router timestamp, in seconds since 1970: the year 2242."""
SERIES = 2048
"""Memory in bytes of a series without its readings."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Series:
    """Readings of one router for one group."""

    baseline: RouterCounts
    """The counters when the step began, or the first reading in it."""
    readings: deque[tuple[datetime, RouterCounts]] = field(default_factory=deque)
    """Readings within the window, and the last one before it, all without slots."""
    slots: Mapping[ShortFingerprint, Mapping[int, SlotUse]] = field(default_factory=dict)
    """Slots of the last reading only, because they are gauges."""
    since: datetime | None = None
    """Time of the first reading."""
    rose: dict[ShortFingerprint, datetime] = field(default_factory=dict)
    """Revision → time at which a reading last showed a higher request count."""
    called: datetime | None = None
    """Time of the latest request for the group while it had no replica by design (asleep or scaled to zero)."""

    def add(self, counts: RouterCounts, now: datetime) -> None:
        readings = self.readings
        last = readings[-1][1] if readings else self.baseline
        before = last.flows
        if counts.wake_requests > last.wake_requests:
            self.called = now
        elif self.called is None:  # the first reading shows no growth, so the router's own time is used
            self.called = _time(counts.wake_at, now)
        self.since = self.since or now
        self.slots, counts = counts.slots, _without_slots(counts)
        # A revision that the router has dropped from its page has no requests.
        self.rose = {revision: at for revision, at in self.rose.items() if revision in counts.flows}
        for revision, flow in counts.flows.items():
            earlier = before.get(revision)
            if flow.requests != (earlier.requests if earlier is not None else 0):
                self.rose[revision] = now
        if readings and readings[-1][1] == counts:
            counts = readings[-1][1]  # equal readings share one object
        if len(readings) > 1 and readings[-1][0] - readings[-2][0] < SPACING:
            readings.pop()
        readings.append((now, counts))
        while len(readings) > 2 and now - readings[1][0] >= LOAD_WINDOW:
            readings.popleft()

    @property
    def memory(self) -> int:
        """Memory of the series in bytes; objects that several readings share count once."""
        result = {
            id(router_counts): router_counts.memory
            for router_counts in (self.baseline, *(counts for _, counts in self.readings))
        }
        return SERIES + sum(result.values()) + SLOT * sum(map(len, self.slots.values()))

    def span(
        self, now: datetime, length: timedelta
    ) -> tuple[tuple[datetime, RouterCounts], tuple[datetime, RouterCounts]]:
        """Return the newest reading that is at least as old as the window, or else the first; and the last reading."""
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
    """Routers whose readings exceeded the memory limit: their next reading is a new baseline."""


class RouterHistory:
    """Readings of every router. Safe to use from many threads."""

    def __init__(self) -> None:
        self._groups: dict[Key, _Group] = {}
        self._pages: dict[ContainerId, datetime] = {}
        """Container of a router → time at which its page was last read."""
        self._memory: Counter[str] = Counter()
        """Namespace → memory in bytes of the readings for its groups."""
        self._full: set[str] = set()
        """Namespaces whose readings were dropped because of their memory."""
        self._lock = threading.Lock()

    def add(self, router: ContainerId, router_countses: Mapping[Key, RouterCounts], now: datetime) -> None:
        """Store a reading of a router for all of its groups."""
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
        """Drop a router's readings for a group if the readings of its namespace exceed their share of the memory."""
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
        """Start new samples for a group if the step of its release changed."""
        with self._lock:
            group = self._groups.get(key)
            if group is not None and group.step != step:
                group.step = step
                for series in group.routers.values():
                    self._memory[key.namespace] -= series.memory
                    series.baseline = series.readings[-1][1]
                    self._memory[key.namespace] += series.memory

    def traffic(self, key: Key, now: datetime) -> Traffic | None:
        """Return the traffic of the group's revisions; None if no router was read, or some readings were dropped."""
        with self._lock:
            group = self._groups.get(key)
            if group is None or group.dropped:
                return None
            flows: dict[ShortFingerprint, Flow] = {}
            samples: dict[ShortFingerprint, dict[StratumKey, Stratum]] = {}
            is_settled = False
            for series in group.routers.values():
                (began, first), (read, last) = series.span(now, WINDOW)
                is_settled |= now - began >= SETTLED
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
            return Traffic(is_settled, flows, samples, *self._last_requests(group, now))

    def calls(self, keys: Iterable[Key], now: datetime) -> Calls:
        """Return the wake requests that all routers report: those for groups that have no replica by design.

        Args:
            keys: a group and its guests.
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
        """Return the time of each revision's last observed requests, and the time since which all routers are read.

        A router that cannot be read may send requests that are not counted. Until it is read again or its series are
        deleted, no revision can be considered quiet.
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
        """Return the load of a revision's clients; None if no router was read within LATELY.

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
        """Return True if a router was read within LATELY: then a group without readings had no request."""
        with self._lock:
            return any(now - read <= LATELY for read in self._pages.values())

    def slot_use(self, key: Key, revision: ShortFingerprint, now: datetime) -> dict[int, SlotUse]:
        """Return slot → its requests and sessions, summed over all routers; empty if none was read within LATELY.

        The sums count nothing twice: a request runs in one router, and a session is counted by the router that served
        it last, of which the other routers are notified.

        Args:
            key: the group.
            revision: short fingerprint of the revision that the slots belong to.
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
        """Return where requests differ from the declared prompt; None if no router counted a near miss."""
        spans = self._spans(key, now)
        missed = sorted(
            (last.near_miss_offset, max(0.0, last.near_misses - first.near_misses)) for _, first, _, last in spans
        )
        count = sum(entry for _, entry in missed)
        if not count:
            return None
        served = sum(max(0.0, last.requests - first.requests) for _, first, _, last in spans)
        passed = 0.0
        for at, item in missed:  # the median over all near misses; each counts with its router's median offset
            passed += item
            if passed >= count / 2:
                return PromptDrift(count / (count + served), int(at), declared_bytes)
        raise AssertionError("the parts add up to the whole")

    def _spans(self, key: Key, now: datetime) -> list[tuple[datetime, RouterCounts, datetime, RouterCounts]]:
        """Return the first and the last reading in the window of each router that was read within LATELY."""
        with self._lock:
            group = self._groups.get(key)
            series = list(group.routers.values()) if group is not None and not group.dropped else []
            spans = [item.span(now, LOAD_WINDOW) for item in series]
        return [(*first, *last) for first, last in spans if now - last[0] <= LATELY]

    def forget(self, now: datetime) -> None:
        """Delete the routers that were not read for FORGOTTEN."""
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
    """Return the time that a router reports, no later than now; None for an invalid time."""
    if not 0 < epoch < MOST_EPOCH:
        return None
    return min(now, datetime.fromtimestamp(epoch, UTC))


def _without_slots(counts: RouterCounts) -> RouterCounts:
    return replace(counts, slots={})
