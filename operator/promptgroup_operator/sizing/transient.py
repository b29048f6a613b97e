"""The dip in the hit rate that a group's own changes cause (a wave), and its expected duration.

A replica that joins, leaves or is replaced moves about 1/(n+1) of the sessions; the history of each of these is
recomputed in its next turn. A release does so for every new session. Sizing must not treat this dip as demand, or it
would react to its own changes.
"""

from datetime import datetime, timedelta

from promptgroup_operator.sizing.model import credited
from promptgroup_operator.world.load import GroupLoad
from promptgroup_operator.world.sizing_history import Cause, GroupShape, Wave

GAPS = 3
"""Number of mean pauses between two turns after which moved sessions are cached again: 95 % of exponential pauses."""
GAP = timedelta(seconds=30)
"""Assumed pause between two turns if it is unknown: people read for half a minute."""
LONGEST = timedelta(minutes=5)
"""Maximum expected duration of a wave."""


def current_wave(
    wave: Wave | None, before: GroupShape | None, shape: GroupShape, calm: float | None, now: datetime
) -> Wave | None:
    """Return the wave that begins in this pass, or else the last one.

    Args:
        wave: the last wave.
        before: the shape in the previous pass; None in the first pass.
        shape: the current shape.
        calm: hit rate in the last pass that no wave disturbed; None when there was none.
        now: the time.
    """
    if shape.releasing or (before is not None and before.revision != shape.revision):
        return Wave(Cause.RELEASE, now, calm)
    if before is not None and before != shape:
        return Wave(wave.cause if wave is not None and before.releasing else Cause.SCALING, now, calm)
    return wave


def settling_time(load: GroupLoad | None) -> timedelta:
    """Return the expected duration of a wave: the load window, plus the time until moved sessions are cached again."""
    clients = load.clients if load is not None else None
    gap = GAP
    if clients is not None and clients.sessions and clients.requests > 0:
        gap = timedelta(seconds=min(clients.sessions / clients.requests, LONGEST.total_seconds()))  # Little's law
    window = timedelta(seconds=load.seconds) if load is not None else timedelta()
    return min(LONGEST, window + GAPS * gap)


def without_wave(load: GroupLoad, wave: Wave) -> GroupLoad:
    """Return the load with the hit rate from before the wave, if that was higher."""
    if load.engines is None or wave.hit_rate is None:
        return load
    return credited(load, wave.hit_rate * load.engines.queries)
