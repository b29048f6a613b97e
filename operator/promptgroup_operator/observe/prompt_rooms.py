"""Keep the tokens of prompts on the replicas of each host up to date, so that a pass over one guest does not read all.

Each guest's pass needs the sum over all guests of its host. Only PromptRoutes that changed since the previous pass are
parsed again.
"""

import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from promptgroup_operator.guests.room import PromptRoom, taken
from promptgroup_operator.world.snapshot import Key, Manifest


@dataclass(slots=True)
class _HostPrompts:
    """The PromptRoutes of a host and its guests, with the sum of their tokens."""

    routes: dict[str, tuple[Manifest, PromptRoom]] = field(default_factory=dict)
    """Group → its PromptRoute, and the tokens of its prompts."""
    by_pod: Counter[str] = field(default_factory=Counter)
    by_group: Counter[str] = field(default_factory=Counter)
    room: PromptRoom = field(default_factory=lambda: PromptRoom({}, {}))
    """The sums as passes get them, which do not change."""


class PromptRooms:
    """The tokens of prompts on the replicas of all hosts. Safe to use from many threads."""

    def __init__(self) -> None:
        self._hosts: dict[Key, _HostPrompts] = {}
        self._lock = threading.Lock()

    def of(self, host: Key, routes: Iterable[Manifest]) -> PromptRoom:
        """Return the tokens of prompts on the replicas of a host; the same as `guests.room.taken(routes)`.

        Args:
            host: the host.
            routes: the current PromptRoutes of the host and of its guests. A route that is the same object as before
                has not changed.
        """
        current = {route["metadata"]["name"]: route for route in routes}
        with self._lock:
            if not current:
                self._hosts.pop(host, None)
                return PromptRoom({}, {})
            prompts = self._hosts.setdefault(host, _HostPrompts())
            outdated = [name for name, (route, _) in prompts.routes.items() if current.get(name) is not route]
            for name in outdated:
                _, old = prompts.routes.pop(name)
                prompts.by_pod.subtract(old.by_pod)
                prompts.by_group.subtract(old.by_group)
            missing = current.keys() - prompts.routes.keys()
            for name in missing:
                fresh = taken([current[name]])
                prompts.routes[name] = current[name], fresh
                prompts.by_pod.update(fresh.by_pod)
                prompts.by_group.update(fresh.by_group)
            if outdated or missing:
                prompts.by_pod, prompts.by_group = +prompts.by_pod, +prompts.by_group
                prompts.room = PromptRoom(prompts.by_pod.copy(), prompts.by_group.copy())
            return prompts.room

    def forget(self, key: Key) -> None:
        """Delete the state of a host that does not exist any more."""
        with self._lock:
            self._hosts.pop(key, None)
