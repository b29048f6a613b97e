"""The router's process: its port for requests, signals, drain."""

import asyncio
import gc
import logging
import signal
import ssl
import time
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from promptgroup_router.admin import KeptAnswers
from promptgroup_router.base import build
from promptgroup_router.base.logs import fields
from promptgroup_router.base.metrics import Metrics
from promptgroup_router.base.settings import Settings
from promptgroup_router.core import BACKLOG, RoutingCore
from promptgroup_router.decision.composition import features_of
from promptgroup_router.feed.certificate_feed import CertificateError, CertificateFeed, CertificateFiles
from promptgroup_router.flights import peer_port
from promptgroup_router.flights.peer_port import PeerPort
from promptgroup_router.flights.purge_file import PurgeFile
from promptgroup_router.flights.shared_answers import SharedAnswers
from promptgroup_router.peers.transport import GossipTransport
from promptgroup_router.proxy.api_handler import ApiHandler
from promptgroup_router.proxy.downstream import ClientListener
from promptgroup_router.proxy.tls_port import ADDRESS_SHARE, Accepting, Handshakes, TlsPort, copy_of
from promptgroup_router.proxy.upstream import EngineConnections
from promptgroup_router.reading.body_reader import BodyReader
from promptgroup_router.response_cache.canonical import CacheKey
from promptgroup_router.response_cache.home import home_of
from promptgroup_router.response_cache.memory import Memory
from promptgroup_router.response_cache.purge import parse_purge
from promptgroup_router.routing.state import RouterState
from promptgroup_router.semantic.similar_answers import semantic_cache

if TYPE_CHECKING:
    from promptgroup_router.flights.redis_store import RedisStore

PEER_CONNECT_SECONDS = 0.25
"""Time to open a connection to another router, which is near; then the request is computed here."""

log = logging.getLogger("promptgroup.router")


class Router:
    """A router in the running event loop."""

    def __init__(self, settings: Settings) -> None:
        """Make all parts of the router.

        Raises:
            OSError: the store of answers cannot be used.
        """
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self.core = core = RoutingCore(
            settings,
            "promptgroup-router",
            connections=lambda: len(self._clients.connections),
            tick=self._tick,
            cached_answers=KeptAnswers(self._purge, self._samples if settings.keep_samples else None),
        )
        state, clock = core.state, core.clock
        features = features_of(state)
        self._reader = BodyReader()
        self._connections = EngineConnections(clock, settings.connect_timeout, state.authorities)
        self._peer_port = PeerPort(settings.host)
        self._peer_connections = EngineConnections(
            clock, PEER_CONNECT_SECONDS, self._peer_port, peer_port.HANDSHAKE_SECONDS
        )
        self._store = _store_of(settings, state.metrics)
        if self._store is not None:
            core.on_secret.append(self._store.rekey)
        self.answers = SharedAnswers(
            Memory(settings.responses_memory_bytes),
            state.metrics,
            self._peer_connections,
            features.limiter,
            clock=clock,
            wall=time.time,  # noqa: TID251 - the clock that machines share
            home=self._home_of,
            lives=self._lives,
            store=self._store,
            observer=semantic_cache(settings, state.metrics, features.credential, clock),
            tracer=features.tracer,
            purge_file=_purge_file_of(settings),
        )
        features.secrets.append(self.answers.observer.secrets)
        handlers = (
            ApiHandler(
                core.state,
                self._connections,
                self._reader,
                core.clock,
                settings.request_timeout,
                max_body=settings.max_body_bytes,
                origins=settings.allowed_origins,
                sharing=self.answers,
                from_peer=from_peer,
            )
            for from_peer in (False, True)
        )
        self._clients, self._peer_clients = (
            ClientListener(
                handler,
                core.clock,
                settings.max_body_bytes,
                refusal=handler.refusal,
                budget=core.bodies,
                buffers=core.buffers,
                max_connections=settings.max_connections,
                gave_way=core.state.metrics.connections_given_up.add,
            )
            for handler in handlers
        )
        self._followed = self.state.index
        self._accepting: Accepting | None = None
        """The server that accepts requests, on all addresses of the port; None before `start` and after the drain."""
        self._handshakes = Handshakes(max(1, settings.max_connections // ADDRESS_SHARE))
        self._tls: ssl.SSLContext | None = None
        self._certificate: CertificateFeed | None = None
        self._following: asyncio.Task[None] | None = None
        self.port = 0

    @property
    def state(self) -> RouterState:
        """The state that all its connections share."""
        return self.core.state

    @property
    def admin_port(self) -> int:
        """The port for people and Prometheus, once it is open."""
        return self.core.admin_port

    @property
    def host(self) -> str:
        """The address of both ports."""
        return self._settings.host

    async def start(self) -> None:
        """Load the copy of the table, follow its source, and listen.

        Raises:
            OSError: a port cannot be bound.
        """
        settings = self._settings
        self.core.load()
        self._begin_tls()
        await self.core.listen()
        server = await self._loop.create_server(
            self._clients.accept,
            settings.host,
            settings.port,
            backlog=BACKLOG,
            reuse_port=settings.reuse_port,
            start_serving=self._tls is None,
        )
        self.port = server.sockets[0].getsockname()[1]
        self._accepting = self._secured(server) if self._tls is not None else server
        self.core.follow()
        if self.core.peering is not None:
            self._listen_to_peers(self.core.peering)
        about = fields(host=settings.host, port=self.port, admin_port=self.admin_port, **build.about())
        log.info("listening", extra=about)

    def _listen_to_peers(self, peering: GossipTransport) -> None:
        """Take requests of other routers, whose keys have their home here."""
        self._peer_port.serve(peering.port, self._peer_clients.accept)
        self.core.on_secret.append(self._peer_port.rekey)

    def _home_of(self, key: CacheKey) -> str | None:
        """Return the `host:port` of the router that answers for a key; None for this one."""
        peering = self.core.peering
        return home_of(key, peering.own, peering.others()) if peering is not None else None

    def _lives(self, address: str) -> bool:
        """Return True if another router is there."""
        peering = self.core.peering
        return peering is not None and any(address == other for _, other in peering.others())

    async def _purge(self, subject: bytes) -> int:
        return await self.answers.purge_everywhere(parse_purge(subject))

    def _samples(self) -> bytes:
        return self.answers.observer.samples()

    # --- TLS -----------------------------------------------------------------------------------------------------

    def _begin_tls(self) -> None:
        """Read the certificate, if there is one, and follow its files.

        Raises:
            OSError: it cannot be used.
        """
        settings = self._settings
        if settings.tls_cert is None or settings.tls_key is None:
            return
        files = CertificateFiles(settings.tls_cert, settings.tls_key, settings.tls_client_ca)
        self._certificate = CertificateFeed(
            files, self._renew_tls, lambda: self.state.metrics.key_errors.add("certificate")
        )
        try:
            self._tls = self._certificate.load()
        except CertificateError as error:
            raise OSError(str(error)) from None
        self._following = self._loop.create_task(self._certificate.run())

    async def _renew_tls(self, context: ssl.SSLContext) -> None:
        """Accept with another certificate from here on."""
        self._tls = context

    def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            raise RuntimeError("there is no certificate: call _begin_tls first")
        return self._tls

    def _secured(self, bound: asyncio.Server) -> TlsPort:
        """Accept on the addresses that a server of the loop is bound to, in its place."""
        sockets = [copy_of(listening.fileno()) for listening in bound.sockets]
        bound.close()
        for listening in sockets:
            listening.listen(BACKLOG)
        refused = self.state.metrics.handshakes_refused.add
        return TlsPort(sockets, self._clients.accept, self._tls_context, self._handshakes, refused)

    async def drain(self) -> None:
        """Report that this router is draining, then stop accepting and let running requests end."""
        settings = self._settings
        self.state.draining = True
        # answers announce it from now on: a client with a persistent connection sends its next request elsewhere
        self._clients.draining = self._peer_clients.draining = True
        log.info("draining", extra=fields(connections=len(self._clients.connections)))
        await asyncio.sleep(settings.drain_delay)
        self._stop_accepting()
        self._clients.drain()
        self._peer_clients.drain()
        try:
            async with asyncio.timeout(settings.drain_timeout):
                await self._clients.wait_closed()
                await self._peer_clients.wait_closed()
        except TimeoutError:
            log.warning("answers cut at the end of the drain", extra=fields(count=len(self._clients.connections)))

    async def stop(self) -> None:
        """End everything at once."""
        self._stop_accepting()
        if self._following is not None:
            self._following.cancel()
        await self.core.stop()
        for clients in (self._clients, self._peer_clients):
            clients.abort()
            await clients.wait_closed()
        self._connections.close()
        await self._reader.stop()
        self._peer_connections.close()
        if self._store is not None:
            await self._store.close()
        await self.answers.observer.stop()

    def _stop_accepting(self) -> None:
        self._peer_port.close()
        if self._accepting is not None:
            self._accepting.close()
            self._accepting = None

    def _tick(self, now: float) -> None:
        self._clients.tick(now)
        self._peer_clients.tick(now)
        self._connections.tick(now)
        self._peer_connections.tick(now)
        self.answers.tick(now)
        self._follow_groups()

    def _follow_groups(self) -> None:
        """Remove the cached answers of groups that have left the table, or that cache none any more."""
        index = self.state.index
        if index is not self._followed:
            self._followed = index
            caching = {group.label: group.group.responses for group in index.groups}
            self.answers.keep_groups(
                {label: response_caching for label, response_caching in caching.items() if response_caching is not None}
            )
        self.answers.tell()


def _purge_file_of(settings: Settings) -> PurgeFile | None:
    """Return the file with the purges, beside the copy of the table."""
    copy = settings.cache_file
    return PurgeFile(copy.with_name(f"{copy.name}.purges")) if copy is not None else None


def _store_of(settings: Settings, metrics: Metrics) -> "RedisStore | None":
    """Return the store that all routers share, if one is named.

    Raises:
        OSError: its client is not installed, or a file of its TLS cannot be read.
    """
    if settings.responses_store is None:
        return None
    try:
        # an extra of the package, which takes a quarter of a second to import
        from promptgroup_router.flights.redis_store import RedisStore  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise OSError(f"--responses-store needs {error.name}: install promptgroup[redis]") from None
    return RedisStore(settings.responses_store, metrics)


class Server(Protocol):
    """A process that `serve` runs: a router, or a picker."""

    @property
    def core(self) -> RoutingCore:
        """The parts that every process has which routes."""

    @property
    def host(self) -> str:
        """The address of its ports."""

    async def start(self) -> None:
        """Open the ports.

        Raises:
            OSError: a port cannot be bound.
        """

    async def drain(self) -> None:
        """Stop accepting and let running requests end."""

    async def stop(self) -> None:
        """End everything at once."""


async def run(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT, then drain; a second signal ends the drain.

    Returns:
        The exit status.
    """
    try:
        router = Router(settings)
    except OSError as error:
        log.critical("cannot start", extra=fields(problem=error))
        return 1
    return await serve(router)


async def serve(server: Server) -> int:
    """Run a server as `run` does.

    Returns:
        The exit status.
    """
    loop = asyncio.get_running_loop()
    event, hurried = asyncio.Event(), asyncio.Event()

    def leave() -> None:
        (hurried if event.is_set() else event).set()

    try:
        await server.start()
    except OSError as error:
        log.critical("cannot listen", extra=fields(host=server.host, problem=error))
        await server.stop()
        return 1
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, leave)
    loop.add_signal_handler(signal.SIGHUP, server.core.reload)
    # objects made until here live as long as the process: the collector need not visit them again
    gc.collect()
    gc.freeze()
    broken = await _first(event.wait(), server.core.failure())
    await _first(hurried.wait(), server.drain())
    await server.stop()
    return 1 if broken else 0


async def _first(one: Awaitable[object], other: Awaitable[object]) -> bool:
    """Wait for the first of two to end and cancel the other. Return True if the second ended first."""
    tasks = [asyncio.ensure_future(one), asyncio.ensure_future(other)]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    return tasks[1] in done
