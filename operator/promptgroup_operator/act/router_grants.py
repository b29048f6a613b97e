"""Lets the routers of a namespace read the Secrets that its PromptRoutes name, and no others."""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Protocol

from promptgroup_operator.base.errors import ClusterError
from promptgroup_operator.plan import router_secrets
from promptgroup_operator.world.snapshot import Key, Manifest

logger = logging.getLogger(__name__)

RECHECK_SECONDS = 60.0
"""Time after which a Role is checked again, since a new installation of routers may have emptied it."""


class RoleWriter(Protocol):
    """The write that is used here."""

    def apply(self, manifest: Manifest, seen: Manifest | None) -> None:
        """Apply an object."""


@dataclass(slots=True)
class _Grants:
    """The Secrets that a namespace's routes name and its Roles grant, with a lock that is held during requests."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    named: dict[Key, frozenset[str]] = field(default_factory=dict)
    """Group → Secrets that its routes name."""
    granted: frozenset[str] | None = None
    """Secrets that the Roles granted when they were checked; None before that."""
    checked: float = 0.0
    """Monotonic seconds of the check."""


class RouterGrants:
    """The Secrets that each group's route names. Safe to use from many threads.

    Memory is needed besides the store: the grant comes before the route that needs it, and another group's pass must
    not take it back in between.
    """

    def __init__(
        self,
        read: Callable[[Key, str], Manifest | None],
        routes: Callable[[str], Mapping[Key, Manifest]],
        writer: RoleWriter,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Begin without any grant.

        Args:
            read: reads a Role in the namespace of a group.
            routes: the PromptRoutes of a namespace whose groups exist, as the store has them.
            writer: writes Roles.
            clock: monotonic seconds.
        """
        self._read = read
        self._routes = routes
        self._writer = writer
        self._clock = clock
        self._namespaces: dict[str, _Grants] = {}
        self._lock = threading.Lock()

    def put(self, key: Key, routes: Iterable[Manifest]) -> None:
        """Grant what a group's routes name: the one that is there, and the one that is about to be written.

        Raises:
            ClusterError: the API server did not answer, or another process wrote the Role; the pass is retried.
        """
        grants = self._of(key.namespace)
        with grants.lock:
            named = router_secrets.named(routes)
            same, grants.named[key] = grants.named.get(key) == named, named
            if not same or not self._is_fresh(grants):
                self._fill(key, grants)

    def forget(self, key: Key) -> None:
        """Take back what only a group that is gone has named."""
        grants = self._of(key.namespace)
        with grants.lock:
            if grants.named.pop(key, None):
                self._fill(key, grants)

    def _of(self, namespace: str) -> _Grants:
        with self._lock:
            return self._namespaces.setdefault(namespace, _Grants())

    def _fill(self, key: Key, grants: _Grants) -> None:
        namespace = key.namespace
        others = (route for other, route in self._routes(namespace).items() if other not in grants.named)
        desired = router_secrets.named(others).union(*grants.named.values())
        if grants.granted == desired and self._is_fresh(grants):
            return
        result = False
        try:
            for name in router_secrets.ROLES:
                result = self._write(key, name, desired) or result
        except ClusterError as error:
            if not error.is_refusal:
                raise
            # routers match by content what they cannot read
            logger.warning("%s: routers cannot be given the Secrets that routes name: %s", namespace, error)
            result = True
        if result or not desired:
            grants.granted, grants.checked = desired, self._clock()

    def _is_fresh(self, grants: _Grants) -> bool:
        """Return True if the Roles of a namespace need no check before its routes name other Secrets."""
        # Roles that were installed anew are empty, which is right where no Secret is named
        return grants.granted is not None and (not grants.granted or self._clock() - grants.checked < RECHECK_SECONDS)

    def _write(self, key: Key, name: str, desired: frozenset[str]) -> bool:
        """Write a Role if it differs. Return True if it exists; without it, no router or picker is to read Secrets."""
        live = self._read(key, name)
        if live is None:
            return False
        role = router_secrets.role(key.namespace, name, desired)
        if (live.get("rules") or []) != role["rules"]:
            self._writer.apply(role, live)
        return True
