"""The dip in the hit rate that a group's own changes cause, and for how long it is expected.

A replica that joins, leaves or is replaced moves sessions, about 1/(n+1) of them; each is computed anew in its next
turn. A release does so to every new session. Whoever took that dip for demand would chase a wave of its own making.
"""

from datetime import datetime, timedelta

from promptgroup_operator.sizing.model import credited
from promptgroup_operator.world.load import GroupLoad
from promptgroup_operator.world.sizing_history import Cause, GroupShape, Wave

GAPS = 3
"""Mean pauses between two turns until the sessions that moved are cached again: 95 % of exponential pauses."""
GAP = timedelta(seconds=30)
"""Pause between two turns where nobody knows it: people read for half a minute."""
LONGEST = timedelta(minutes=5)
"""No wave is expected for longer, whatever the pauses are."""


def current_wave(
    wave: Wave | None, before: GroupShape | None, shape: GroupShape, calm: float | None, now: datetime
) -> Wave | None:
    """Return the wave that this pass begins, or the one that goes on.

    Args:
        wave: the last one.
        before: the shape at the look before; None at the first.
        shape: the shape.
        calm: hit rate at the last look that no wave disturbed; None when there was none.
        now: the time.
    """
    if shape.releasing or (before is not None and before.revision != shape.revision):
        return Wave(Cause.RELEASE, now, calm)
    if before is not None and before != shape:
        return Wave(wave.cause if wave is not None and before.releasing else Cause.SCALING, now, calm)
    return wave


def settling_time(load: GroupLoad | None) -> timedelta:
    """Return how long a wave is expected: until the window has passed it and the sessions that moved have come back."""
    clients = load.clients if load is not None else None
    gap = GAP
    if clients is not None and clients.sessions and clients.requests > 0:
        gap = timedelta(seconds=min(clients.sessions / clients.requests, LONGEST.total_seconds()))  # Little's law
    window = timedelta(seconds=load.seconds) if load is not None else timedelta()
    return min(LONGEST, window + GAPS * gap)


def without_wave(load: GroupLoad, wave: Wave) -> GroupLoad:
    """Return the load with the hit rate of before the wave, if that was better."""
    if load.engines is None or wave.hit_rate is None:
        return load
    return credited(load, wave.hit_rate * load.engines.queries)
