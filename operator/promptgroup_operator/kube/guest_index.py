"""Knows the guests of each group, so that a change of a host's replicas begins passes of its guests.

Does no I/O and reads no clock.
"""

import threading

from promptgroup_operator.world.snapshot import Key

SEEN_BY_GUESTS = frozenset({"PromptGroup", "PromptRoute", "Pod"})
"""Kinds of a host's objects that a pass over a guest sees."""


class GuestIndex:
    """Guests by host. Safe to use from many threads."""

    def __init__(self) -> None:
        self._host: dict[Key, Key] = {}
        self._guests: dict[Key, set[Key]] = {}
        self._lock = threading.Lock()

    def put(self, group: Key, host: str) -> None:
        """Note the host of a group; empty for a group with an engine of its own, or one that is gone."""
        wanted = Key(group.namespace, host) if host else None
        with self._lock:
            before = self._host.get(group)
            if before == wanted:
                return
            if before is not None:
                del self._host[group]
                self._guests[before].discard(group)
                if not self._guests[before]:
                    del self._guests[before]
            if wanted is not None:
                self._host[group] = wanted
                self._guests.setdefault(wanted, set()).add(group)

    def of(self, host: Key) -> list[Key]:
        """Return the guests of a group."""
        with self._lock:
            return list(self._guests.get(host, ()))
