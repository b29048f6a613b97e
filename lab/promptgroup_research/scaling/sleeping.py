"""`python -m promptgroup_research.scaling.sleeping`: a day of a group that sleeps while it gets no requests.

The operator's own decisions fall asleep and wake (`promptgroup_operator.sleep`), at the times at which it looks: every
15 s while the group is awake, every second while it sleeps. One replica serves all requests, in a fixed time each; a
request that finds none waits in the router until a replica is warm, and fails after `wakeTimeout`.
"""

import argparse
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from promptgroup_contract.table import Sleep
from promptgroup_operator.api.prompt_group import SizingSpec
from promptgroup_operator.base import durations
from promptgroup_operator.sleep import route_sleep
from promptgroup_operator.sleep.decision import WATCH, Seen, decide
from promptgroup_operator.world.load import LOAD_WINDOW, PERIOD, EngineLoad, GroupLoad
from promptgroup_operator.world.samples import Calls, Histogram
from promptgroup_research.experiments.report import Sheet
from promptgroup_research.simulator.draws import geometric, modulated

DAY = 86_400.0
HOUR = 3_600.0
BEGIN = datetime(2026, 1, 5, tzinfo=UTC)
"""Virtual time zero."""
SERVE = 8.0
"""Seconds in which a request is served."""
TURNS, MOST_TURNS = 5.0, 20
"""Mean and most requests of a session."""
THINK = 30.0
"""Mean pause between two requests of a session, in seconds."""
WAKE_TIMEOUT = int(durations.parse(route_sleep.WAKE_TIMEOUT).total_seconds())
STARTS = (30, 120, 300)
"""Seconds from asking for a replica until it is warm."""
IDLE = ("10m", "30m", "1h")
SEEDS = (31, 32, 33)


def _office(now: float) -> float:
    return 1.0 if 8 * HOUR <= now < 18 * HOUR else 0.0


def _around_the_clock(now: float) -> float:
    return (1 - math.cos(2 * math.pi * now / DAY)) / 2


def _batch(now: float) -> float:
    return 1.0 if now % (4 * HOUR) < HOUR / 12 else 0.0


SHAPES: dict[str, tuple[float, Callable[[float], float]]] = {
    "office hours, 12 sessions an hour": (12 / HOUR, _office),
    "office hours, one session an hour": (1 / HOUR, _office),
    "a day's wave, 6 sessions an hour at its peak": (6 / HOUR, _around_the_clock),
    "a batch of five minutes every four hours": (120 / HOUR, _batch),
}
"""Title → sessions a second at the peak, and the share of it at a time of the day."""


@dataclass(frozen=True, slots=True)
class Day:
    """A day of a group."""

    replica_hours: float
    requests: int
    waits: tuple[float, ...]
    """Seconds of each request that waited and was served."""
    failed: int
    """Requests that waited for longer than routers hold them."""
    wakes: int


def arrivals(shape: str, seed: int) -> list[float]:
    """Times of the day's requests, in order."""
    rate, scale = SHAPES[shape]
    draw = random.Random(seed)  # noqa: S311 - a simulation
    result = []
    for began in modulated(draw, rate, DAY, scale, 1.0):
        now = began
        for _ in range(geometric(draw, TURNS, MOST_TURNS)):
            result.append(now)
            now += SERVE + draw.expovariate(1 / THINK)
    return sorted(time for time in result if time < DAY)


def play(requests: Sequence[float], idle_after: str, start_seconds: float) -> Day:
    """Simulate a day that begins with one warm replica.

    Args:
        requests: times of the requests, in order.
        idle_after: `sizing.idleAfter`.
        start_seconds: from asking for a replica until it is warm.
    """
    sizing = SizingSpec(min_replicas=0, max_replicas=1, idle_after=idle_after)
    standing, idle_since, called = Sleep(WAKE_TIMEOUT), None, None
    now, since, hours, wakes = 0.0, 0.0, 0.0, 0
    warm_at: float | None = 0.0
    waits: list[float] = []
    failed = done = 0
    busy_until = -math.inf
    while now < DAY:
        while done < len(requests) and requests[done] <= now:
            arrived = requests[done]
            if warm_at is not None and warm_at <= arrived:
                busy_until = max(busy_until, arrived + SERVE)
            else:
                called = arrived
                if warm_at is None or warm_at > now:
                    break  # it waits
                waits, failed = _let_go(waits, failed, warm_at - arrived)
                busy_until = max(busy_until, warm_at + SERVE)
            done += 1
        waiting = [time for time in requests[done:] if time <= now]
        if waiting:
            called = waiting[-1]
        ready = warm_at is not None and warm_at <= now
        seen = Seen(
            standing, _load(requests, done, now, busy_until) if ready else None,
            Calls(BEGIN + timedelta(seconds=called) if called is not None else None, read=True),
            idle_since, releasing=False, ready=ready,
        )  # fmt: skip
        at = BEGIN + timedelta(seconds=now)
        verdict = decide(sizing, seen, 1, at)
        idle_since = None if verdict.asleep else verdict.since
        value = 0 if verdict.asleep else 1
        if value and warm_at is None:
            warm_at, since, wakes = now + start_seconds, now, wakes + 1
        elif not value and warm_at is not None:
            hours, warm_at = hours + (now - since) / HOUR, None
        ready = warm_at is not None and warm_at <= now
        standing = route_sleep.remembered(standing, timeout=WAKE_TIMEOUT, value=value, ready=ready, failure="", now=at)
        now = _next(requests, done, now, asleep=not value)
    hours += (DAY - since) / HOUR if warm_at is not None else 0.0
    return Day(hours, len(requests), tuple(waits), failed, wakes)


def _let_go(waits: list[float], failed: int, waited: float) -> tuple[list[float], int]:
    return ([*waits, waited], failed) if waited <= WAKE_TIMEOUT else (waits, failed + 1)


def _next(requests: Sequence[float], done: int, now: float, *, asleep: bool) -> float:
    """Return the time of the next pass; nothing happens in those over a sleeping group before the next request."""
    if not asleep:
        return now + PERIOD.total_seconds()
    watch = WATCH.total_seconds()
    soonest = requests[done] if done < len(requests) else DAY
    return now + watch * max(1, math.ceil((soonest - now) / watch))


def _load(requests: Sequence[float], done: int, now: float, busy_until: float) -> GroupLoad:
    seconds = LOAD_WINDOW.total_seconds()
    latest = sum(time > now - seconds for time in requests[max(0, done - 200) : done])
    engines = EngineLoad(
        replicas=1.0, coverage=1.0, requests=latest / seconds, queries=latest * 1000 / seconds, hits=0.0,
        generated=0.0, computed=None, prefill_busy=None, decode_busy=None, queue_busy=None,
        running=float(busy_until > now), waiting=0.0, usage=0.0, preemptions=None, first_token=Histogram(),
        kv_tokens=0, prefill_rate=0.0,
    )  # fmt: skip
    return GroupLoad(seconds, engines)


def sheet(shapes: Sequence[str], seeds: Sequence[int] = SEEDS) -> Sheet:
    """Return the table: a row for each shape, idle time and start, the mean of the seeds."""
    rows = []
    for shape in shapes:
        days = [arrivals(shape, seed) for seed in seeds]
        for idle_after in IDLE:
            for start in STARTS:
                played = [play(requests, idle_after, start) for requests in days]
                rows.append((shape, idle_after, f"{start} s", *_figures(played)))
    columns = ("a day", "idleAfter", "start", "GPU-hours, of 24", "wakes", "requests", "waited", "longest", "failed")
    return Sheet("A group of one replica that sleeps", columns, tuple(rows))


def _figures(played: Sequence[Day]) -> tuple[str, ...]:
    count = len(played)
    requests = sum(day.requests for day in played)
    waits = [wait for day in played for wait in day.waits]
    return (
        f"{sum(day.replica_hours for day in played) / count:.1f}",
        f"{sum(day.wakes for day in played) / count:.1f}",
        f"{requests / count:.0f}",
        f"{len(waits) / max(1, requests):.1%}",
        f"{max(waits, default=0.0):.0f} s",
        f"{sum(day.failed for day in played) / max(1, requests):.1%}",
    )


def main() -> int:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(
        prog="python -m promptgroup_research.scaling.sleeping", description=(__doc__ or "").split("\n")[0]
    )
    parser.parse_args()
    print(sheet(list(SHAPES)).markdown())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
