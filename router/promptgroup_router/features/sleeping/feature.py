"""Holds the requests of a group that is scaled to zero until the group has a replica."""

from collections.abc import Container, Iterator
from dataclasses import replace

from promptgroup_router.base.errors import ApiError
from promptgroup_router.base.metrics import Metrics
from promptgroup_router.features.sleeping import waking
from promptgroup_router.features.sleeping.held_requests import FullError, HeldRequests
from promptgroup_router.rings.index import Candidates, RoutingIndex
from promptgroup_router.routing.points import HeldLife, RequestFeature
from promptgroup_router.routing.process_points import Gauge, RouterFeature
from promptgroup_router.routing.route import Route
from promptgroup_router.routing.state import RouterState


class Sleeping(RouterFeature):
    """The requests of all groups that wait for a replica."""

    def __init__(self) -> None:
        self.held: HeldRequests[SleeperRequest] = HeldRequests()
        self._called: dict[str, float] = {}
        """Group → time of the last request that arrived while the group was scaled to zero; in monotonic seconds."""

    def called(self, metrics: Metrics, group: str, now: float) -> None:
        """Record a request to a group that is scaled to zero, in metrics that the operator reads."""
        metrics.wake_requests.add(group)
        self._called[group] = now

    def wake(self, now: float) -> None:
        """Route the held requests whose group has a replica by now, in the order of their arrival."""
        self.held.release(lambda request: request.wake(now))

    def sweep(self, now: float) -> None:
        """Refuse the requests that have waited for too long, and route those whose group has a replica by now."""
        if self.held:
            for request in self.held.expire(now):
                request.time_out(now)
            self.wake(now)

    def waiting(self) -> Iterator[tuple[str, str]]:
        """Yield the group and the revision that each held request waits for."""
        return (request.revision for request in self.held)

    def keep(self, labels: Container[tuple[str, ...]]) -> None:
        """Drop the times of groups that have left the table."""
        self._called = {group: at for group, at in self._called.items() if (group,) in labels}

    def gauges(self, metrics: Metrics, index: RoutingIndex) -> list[Gauge]:
        """Return the number of held requests of each group, and when the last request arrived for it."""
        asleep: dict[tuple[str, ...], float] = {
            (group.label,): 0 for group in index.groups if group.group.sleep is not None
        }
        held: dict[tuple[str, ...], float] = {(group,): count for group, count in self.held.by_group.items()}
        return [
            (metrics.wake_waiting, asleep | held),
            (metrics.wake_at, {(group,): metrics.epoch + at for group, at in self._called.items()}),
        ]


class SleeperRequest(RequestFeature):
    """A request to a group that may be scaled to zero."""

    __slots__ = ("_caller", "_candidates", "_life", "_rewrite", "_since", "_sleeping", "_state", "_ticket", "revision")

    def __init__(self, sleeping: Sleeping, state: RouterState, route: Route) -> None:
        self._sleeping = sleeping
        self._state = state
        self._candidates = route.candidates
        self._rewrite = route.rewrite
        self._caller = route.caller.name
        self.revision = route.group, route.revision
        """The group and the revision that the request waits for."""
        self._life: HeldLife | None = None
        """The life of the request, while it is held."""
        self._ticket: int | None = None
        """Place among those who wait for the group to have a replica."""
        self._since = 0.0
        """Time at which it was held first, in monotonic seconds; 0 before."""

    def arrives(self, now: float) -> None:
        """Route the requests that arrived before this one first."""
        candidates = self._candidates
        if candidates.members and self._sleeping.held.waits(candidates.sleeper):
            self._sleeping.wake(now)

    def restricted(self, now: float) -> ApiError | None:
        """Wake the group, and return an error: none of the replicas that a gateway allows would be the one to come."""
        candidates = self._candidates
        if (sleep := candidates.sleep) is None or candidates.members:
            return None
        self._sleeping.called(self._state.metrics, candidates.sleeper, now)
        return waking.refusal(sleep, candidates.sleeper) or waking.starting(sleep, candidates.sleeper)

    def hold(self, life: HeldLife, candidates: Candidates, now: float) -> ApiError | bool:
        """Hold the request if its group may sleep; return the reason for which it cannot be held."""
        present = self._present()
        if present is None or present.sleep is None or self._is_bound(candidates):
            return False
        sleep, group = present.sleep, present.sleeper
        if not self._since:
            self._sleeping.called(self._state.metrics, group, now)
        if (error := waking.refusal(sleep, group)) is not None:
            return error
        since = self._since or now
        if now >= since + sleep.wake_timeout:
            return waking.too_late(sleep, group, now - since)
        size, until = len(self._rewrite.body), since + sleep.wake_timeout
        try:
            self._ticket = self._sleeping.held.put(self, group=group, caller=self._caller, size=size, until=until)
        except FullError:
            return waking.full(sleep, group)
        self._life, self._since = life, since
        return True

    def let_go(self) -> None:
        """Stop waiting: the request is over."""
        if self._ticket is not None:
            self._sleeping.held.withdraw(self._ticket)
        self._leave()

    def wake(self, now: float) -> bool:
        """Go on if the group has a replica by now, or never will. Return False to wait."""
        candidates = self._present()
        if candidates is not None and candidates.sleep is not None and not candidates.members:
            error = waking.refusal(candidates.sleep, candidates.sleeper)
            if error is None:
                return False
            self._leave().give_up(error, now)
            return True
        health = self._state.health
        if candidates is None:
            self._leave().go_on(None, now, wait=0.0)
            return True
        if not any(health.available(member.id, member.incarnation, now) for member in candidates.members):
            return False  # they could not be reached a moment ago
        # if other held requests use the free capacity, it waits for more: the new engine has not cached its prompt
        longest = candidates.sleep.wake_timeout if candidates.sleep is not None else 0
        # a request that leaves nothing in a cache has a policy of its own
        present = replace(candidates, policy=self._candidates.policy)
        self._leave().go_on(present, now, wait=self._since + longest - now)
        return True

    def time_out(self, now: float) -> None:
        """Refuse the request, which has waited for too long."""
        candidates = self._present() or self._candidates
        error = None
        if candidates.sleep is not None:
            error = waking.too_late(candidates.sleep, candidates.sleeper, now - self._since)
        self._leave().give_up(error, now)

    def _present(self) -> Candidates | None:
        """Return the candidates of the group in the table in use; None if it may not be scaled to zero by now."""
        return self._state.index.sleepers.get(self._candidates.id)

    def _is_bound(self, candidates: Candidates) -> bool:
        """Return True for a request that one replica alone may serve, which holds the response that it continues."""
        return self.revision[1] != "" and candidates.members != () and not candidates.ring

    def _leave(self) -> HeldLife:
        life, self._life, self._ticket = self._life, None, None
        if life is None:
            raise RuntimeError("only a request that is held goes on")
        return life
