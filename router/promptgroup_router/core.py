"""The parts that every process has which routes: the table and its source, the books, its peers, the admin port."""

import asyncio
import logging
import os
import ssl
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from promptgroup_router.access.authenticator import Authenticator
from promptgroup_router.access.keyring import Keyring
from promptgroup_router.admin import ADMIN_BODY_BYTES, Admin, KeptAnswers
from promptgroup_router.admin_guard import AdminGuard
from promptgroup_router.base import build
from promptgroup_router.base.core_settings import BUFFER_BYTES, ApiServerAddress, CoreSettings
from promptgroup_router.base.exposition import PROMETHEUS, TextFormat
from promptgroup_router.base.logs import flush_requests
from promptgroup_router.decision.composition import features_of, router_state
from promptgroup_router.feed.file_feed import FileFeed
from promptgroup_router.feed.issuer_feed import IssuerFeed
from promptgroup_router.feed.key_copy import KeyCopy
from promptgroup_router.feed.kube_api import KubeApi
from promptgroup_router.feed.kubernetes_feed import KubernetesFeed
from promptgroup_router.feed.publish import Publisher
from promptgroup_router.feed.secret_feed import FolderSecrets, KubeSecrets, SecretFeed, SecretSource
from promptgroup_router.peers.transport import GossipTransport
from promptgroup_router.proxy.body_budget import BodyBudget
from promptgroup_router.proxy.downstream import ClientListener
from promptgroup_router.routing.state import RouterState
from promptgroup_router.span_export import span_export

log = logging.getLogger("promptgroup.router")

TICK_SECONDS = 1.0
"""Precision of deadlines: all are several seconds long, and one timer costs less than one for each."""
SWEEP_SECONDS = 0.25
"""Interval at which waiting requests are tried again: capacity can become free without an event."""
SALT_BYTES = 32
"""Random bytes with which API keys are hashed."""
BACKLOG = 4096
"""Most connections that wait to be accepted, such as a burst of clients after another router's restart."""


class RoutingCore:
    """The shared parts, in the running event loop."""

    def __init__(
        self,
        settings: CoreSettings,
        service: str,
        *,
        connections: Callable[[], int],
        tick: Callable[[float], None],
        cached_answers: KeptAnswers | None = None,
    ) -> None:
        """Make the parts.

        Args:
            settings: of the process.
            service: name of the program, for traces.
            connections: returns how many connections its clients have.
            tick: called every second, with the time.
            cached_answers: the admin port's operations on the response cache; None without one.
        """
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        # not the clock of the loop: uvloop's has steps of a millisecond
        self.clock = clock = time.monotonic
        authenticator = Authenticator(Keyring(os.urandom(SALT_BYTES)), settings.access)
        self._spans = span_export(os.environ, service)
        self.state = router_state(
            authenticator,
            settings.keep_samples,
            frozenset(path.encode() for path in settings.pass_paths),
            tracer=self._spans.tracer if self._spans is not None else None,
            began=clock(),
        )
        self.state.set_epoch(_epoch(clock()))
        self.state.metrics.build_info.replace({(build.python(), "true" if build.compiled() else "false"): 1})
        self.bodies, self.buffers = BodyBudget(settings.body_memory_bytes), BodyBudget(BUFFER_BYTES)
        """Memory limits of all requests' bodies, and of the other buffers of connections."""
        self._connections = connections
        self._on_tick = tick
        guard = AdminGuard(settings.admin_hosts, settings.admin_token_file)
        admin = Admin(self.state, connections, clock, guard, cached_answers)
        self._admin = ClientListener(
            admin,
            clock,
            min(settings.max_body_bytes, ADMIN_BODY_BYTES),
            budget=self.bodies,
            buffers=self.buffers,
            max_connections=settings.max_connections,
        )
        self._keys = _key_copy(settings, self.state)
        self._secrets = SecretFeed(self.state, _secret_source(settings), self._keys)
        networks = settings.source.allowed_networks if isinstance(settings.source, ApiServerAddress) else ()
        self._issuers = IssuerFeed(self.state, clock, lambda: _issuer_context(settings.issuer_ca), networks)
        self._publisher = Publisher(self.state, clock, settings.cache_file, self._table_changed)
        self._admin_server: asyncio.Server | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._feed: FileFeed | KubernetesFeed | None = None
        self._peering: GossipTransport | None = None
        self.on_secret: list[Callable[[bytes], None]] = [features_of(self.state).salts.rekey]
        """Called with what routers share, once it is read and whenever it changes."""
        self.admin_port = 0

    def load(self) -> None:
        """Read the copy of the table, and the table where it is a file."""
        settings = self._settings
        copy = self._publisher.restore()
        if copy is not None and self._keys is not None:
            self._keys.restore()
        if isinstance(settings.source, Path):
            self._feed = FileFeed(settings.source, self._publisher)
            self._feed.look()
        else:
            api = KubeApi(settings.source)
            self._feed = KubernetesFeed(
                api, settings.source.namespaces, self._publisher, copy, settings.source.allowed_networks
            )

    async def listen(self) -> None:
        """Open the admin port.

        Raises:
            OSError: it cannot be bound.
        """
        # the admin port is never shared: each process has its own numbers
        self._admin_server = await self._loop.create_server(
            self._admin.accept, self._settings.host, self._settings.admin_port, backlog=BACKLOG
        )
        self.admin_port = self._admin_server.sockets[0].getsockname()[1]

    def follow(self, *more: Coroutine[Any, Any, None]) -> None:
        """Follow the table's source, talk to peers, and keep time.

        Args:
            more: what else must run until the end.

        Raises:
            OSError: no port for peers can be bound.
        """
        settings = self._settings
        parts = [self._secrets.run(), self._issuers.run(), self._tick(), self._sweep(), *more]
        if settings.peers and settings.peer_key_file is not None:
            self._peering = GossipTransport(
                settings,
                settings.peer_key_file,
                self.state.balancer.peers,
                self.state.metrics,
                self.clock,
                on_key=self._rekey,
                limiter=features_of(self.state).limiter,
            )
            parts.append(self._peering.run())
        if self._feed is not None:
            parts.append(self._feed.run())
        self._tasks = [self._loop.create_task(part) for part in parts]

    @property
    def peering(self) -> GossipTransport | None:
        """The exchange with other routers, if there is one."""
        return self._peering

    def reload(self) -> None:
        """Read the table's source again at once."""
        if self._feed is not None:
            self._feed.reload()

    def exposition(self, form: TextFormat = PROMETHEUS) -> str:
        """Return the metrics as of this moment, as text."""
        return self.state.exposition(self.clock(), self._connections(), form)

    async def failure(self) -> None:
        """Return once a task has ended that must run for ever."""
        await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                log.critical("a part of the process ended", exc_info=error)

    async def stop(self) -> None:
        """End everything at once."""
        if self._admin_server is not None:
            self._admin_server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._peering is not None:
            self._peering.close()
        self._admin.abort()
        await self._admin.wait_closed()
        if self._spans is not None:
            await self._spans.close()

    def _rekey(self, secret: bytes) -> None:
        for listener in self.on_secret:
            listener(secret)

    def _table_changed(self) -> None:
        self._secrets.table_changed()
        self._issuers.table_changed()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self.state.expire_waiting(self.clock())
            flush_requests()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = self.clock()
            self.state.set_epoch(_epoch(now))
            self._on_tick(now)
            self._admin.tick(now)


def _key_copy(settings: CoreSettings, state: RouterState) -> KeyCopy | None:
    """Return the file with hashes of keys, beside the copy of the table."""
    copy = settings.cache_file
    if copy is None:
        return None
    authenticator = features_of(state).authenticator
    keys = KeyCopy(copy.with_name(f"{copy.name}.keys"), authenticator, state.authorities, settings.peer_key_file)
    authenticator.on_keys.append(keys.save)
    return keys


def _secret_source(settings: CoreSettings) -> SecretSource | None:
    """Return the place where the process reads Secrets with keys."""
    if settings.secrets_dir is not None:
        return FolderSecrets(settings.secrets_dir)
    return KubeSecrets(KubeApi(settings.source)) if isinstance(settings.source, ApiServerAddress) else None


def _issuer_context(own: Path | None) -> ssl.SSLContext:
    """Return how the servers of issuers are verified: by the system's certificates, and those of a file.

    Raises:
        OSError: the file cannot be read, or holds no certificate.
    """
    context = ssl.create_default_context()
    if own is not None:
        context.load_verify_locations(cafile=own)
    return context


def _epoch(now: float) -> float:
    """Return the seconds since 1970 at which the monotonic clock was 0: the system's clock may be set meanwhile."""
    return datetime.now(UTC).timestamp() - now
