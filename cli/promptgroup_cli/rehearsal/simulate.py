"""Runs a PromptGroup on a simulated cluster: performs plans until nothing is left to do. Does no I/O.

The end of a pause or a retirement is not waited for. The planner reads no clock, so it is called at once with the same
world and a later time. The operator itself plans every few seconds.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from promptgroup_cli.rehearsal.simulated_cluster import SimulatedCluster
from promptgroup_operator.plan.plan import Plan, decide, route_unwritten, unwritten
from promptgroup_operator.world.snapshot import World

SECOND = timedelta(seconds=1)
"""Resolution of times on Kubernetes' objects."""
NEVER = timedelta(days=3650)
"""Longest time ahead for which the planner is called."""
MOMENTS = 20_000
"""Largest number of moments of a rehearsal: a release of 1000 replicas one by one takes a few thousand."""
PASSES = 100
"""Largest number of passes at one moment; a few are needed, since effects cause effects."""


class UnsettledError(Exception):
    """The rehearsal does not end."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The world at a time, once everything is done that can be done then."""

    at: datetime
    world: World


def run(cluster: SimulatedCluster) -> Iterator[Moment]:
    """Yield the moments at which something changes.

    Raises:
        UnsettledError: there are too many of them.
    """
    for _ in range(MOMENTS):
        _finish(cluster)
        yield Moment(cluster.now, cluster.world())
        then = _next(cluster)
        if then is None:
            return
        cluster.now = then
    raise UnsettledError(f"no end after {MOMENTS} moments")


def _finish(cluster: SimulatedCluster) -> None:
    """Do all that can be done at this time."""
    cluster.nodes()
    for _ in range(PASSES):
        world = cluster.world()
        todo = decide(world, cluster.now)
        acts = _acts(world, todo)
        cluster.perform(world, todo)
        if not cluster.controllers() and not acts:
            return
    raise UnsettledError(f"no end after {PASSES} passes at once")


def _next(cluster: SimulatedCluster) -> datetime | None:
    """Return when something happens next, on a node or by the planner; None when nothing does."""
    happens = cluster.happens_at()
    end = happens - cluster.now if happens is not None else NEVER
    quiet, ahead = timedelta(), min(SECOND, end)
    while quiet < end:
        if _acts_by(cluster, ahead):
            return cluster.now + _first(cluster, quiet, ahead)
        quiet, ahead = ahead, min(2 * ahead, end)
    return happens


def _first(cluster: SimulatedCluster, quiet: timedelta, acts: timedelta) -> timedelta:
    """Return the first second at which the planner acts, by bisection: once it acts, it also acts later."""
    while acts - quiet > SECOND:
        middle = quiet + (acts - quiet) // 2 // SECOND * SECOND
        if _acts_by(cluster, middle):
            acts = middle
        else:
            quiet = middle
    return acts


def _acts_by(cluster: SimulatedCluster, ahead: timedelta) -> bool:
    world = cluster.world(cluster.now + ahead)
    return _acts(world, decide(world, cluster.now + ahead))


def _acts(world: World, todo: Plan) -> bool:
    """Return True if a plan changes anything but the status, whose messages may count the time."""
    effects = todo.conditions or todo.pod_updates or todo.deletions or todo.warmups or unwritten(world, todo)
    return bool(effects) or route_unwritten(world, todo)
