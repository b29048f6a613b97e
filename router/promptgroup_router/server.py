"""The process: ports, source of the table, signals, drain. All parts are wired together here."""

import asyncio
import gc
import logging
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from promptgroup_router.admin import Admin
from promptgroup_router.base import build
from promptgroup_router.base.logs import fields
from promptgroup_router.base.settings import BUFFER_BYTES, Settings
from promptgroup_router.feed.file_feed import FileFeed
from promptgroup_router.feed.kube_api import KubeApi
from promptgroup_router.feed.kubernetes_feed import KubernetesFeed
from promptgroup_router.feed.publish import Publisher
from promptgroup_router.peers.transport import GossipTransport
from promptgroup_router.proxy.api_handler import ApiHandler
from promptgroup_router.proxy.body_budget import BodyBudget
from promptgroup_router.proxy.downstream import ClientListener
from promptgroup_router.proxy.upstream import EngineConnections
from promptgroup_router.routing.state import RouterState

log = logging.getLogger("promptgroup.router")

TICK_SECONDS = 1.0
"""Precision of deadlines: all are several seconds long, and one timer costs less than one for each."""
SWEEP_SECONDS = 0.25
"""Interval at which waiting requests are tried again: time alone can make room."""
BACKLOG = 4096
"""Most connections that wait to be accepted, such as a burst of clients after another router's restart."""


@dataclass(frozen=True, slots=True)
class Sockets:
    """Bound sockets that a router is given instead of addresses."""

    requests: Sequence[socket.socket]
    """Those of the port for requests, on which it accepts when it is told to."""
    admin: socket.socket
    exchange: socket.socket | None
    """For datagrams to peers; None to take a port of the range."""


class Router:
    """A router in the running event loop."""

    def __init__(self, settings: Settings, sockets: Sockets | None = None) -> None:
        self._settings = settings
        self._sockets = sockets
        self._loop = asyncio.get_running_loop()
        # not the clock of the loop: uvloop's has steps of a millisecond
        self._clock = clock = time.monotonic
        self.state = RouterState()
        self.state.metrics.build_info.replace({(build.python(), "true" if build.compiled() else "false"): 1})
        self._connections = EngineConnections(clock, settings.connect_timeout)
        front = ApiHandler(self.state, self._connections, clock, settings.request_timeout)
        admin = Admin(self.state, lambda: len(self._clients.connections), clock)
        budget, buffers = BodyBudget(settings.body_memory_bytes), BodyBudget(BUFFER_BYTES)
        self._clients, self._admin_clients = (
            ClientListener(
                handler,
                clock,
                settings.max_body_bytes,
                budget=budget,
                buffers=buffers,
                max_connections=settings.max_connections,
            )
            for handler in (front, admin)
        )
        self._publisher = Publisher(self.state, clock, settings.cache_file)
        self._admin_server: asyncio.Server | None = None
        self._accepting: dict[int, asyncio.Server] = {}
        """Number of a socket for requests → what accepts on it."""
        self._tasks: list[asyncio.Task[None]] = []
        self._feed: FileFeed | KubernetesFeed | None = None
        self._peering: GossipTransport | None = None
        self.port = 0
        self.admin_port = 0

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
        copy = self._publisher.restore()
        if isinstance(settings.source, Path):
            self._feed = FileFeed(settings.source, self._publisher)
            self._feed.look()
        else:
            api = KubeApi(settings.source)
            self._feed = KubernetesFeed(
                api, settings.source.namespaces, self._publisher, copy, settings.source.allowed_networks
            )
        await self._listen()
        if settings.peers and settings.peer_key_file is not None:
            balancer, metrics = self.state.balancer, self.state.metrics
            given = self._sockets.exchange if self._sockets is not None else None
            key_file = settings.peer_key_file
            self._peering = GossipTransport(settings, key_file, balancer, metrics, self._clock, given=given)
        parts = [self._feed.run(), self._tick(), self._sweep()]
        if self._peering is not None:
            parts.append(self._peering.run())
        self._tasks = [self._loop.create_task(part) for part in parts]
        if self._sockets is None:
            about = fields(host=settings.host, port=self.port, admin_port=self.admin_port, **build.about())
            log.info("listening", extra=about)

    async def _listen(self) -> None:
        settings, sockets = self._settings, self._sockets
        if sockets is not None:
            self._admin_server = await self._loop.create_server(self._admin_clients.accept, sock=sockets.admin)
        else:
            # the admin port is never shared: each process has its own numbers
            self._admin_server = await self._loop.create_server(
                self._admin_clients.accept, settings.host, settings.admin_port, backlog=BACKLOG
            )
            self._accepting[0] = await self._loop.create_server(
                self._clients.accept, settings.host, settings.port, backlog=BACKLOG, reuse_port=settings.reuse_port
            )
            self.port = self._accepting[0].sockets[0].getsockname()[1]
        self.admin_port = self._admin_server.sockets[0].getsockname()[1]

    async def accept_on(self, numbers: Collection[int]) -> None:
        """Accept on these of the sockets that were given, and on no others; without any, ask clients to leave."""
        if self._sockets is None:
            return
        self._clients.draining = not numbers
        for number in self._accepting.keys() - set(numbers):
            self._accepting.pop(number).close()
        for number in sorted(set(numbers) - self._accepting.keys()):
            # a copy, since the end of the server closes it: what waits on the socket is left for others
            copy = self._sockets.requests[number].dup()
            self._accepting[number] = await self._loop.create_server(self._clients.accept, sock=copy, backlog=BACKLOG)

    def reload(self) -> None:
        """Read the table's source again at once."""
        if self._feed is not None:
            self._feed.reload()

    async def drain(self) -> None:
        """Report that this router is draining, then stop accepting and let running requests end."""
        settings = self._settings
        self.state.draining = True
        log.info("draining", extra=fields(connections=len(self._clients.connections)))
        await asyncio.sleep(settings.drain_delay)
        self._stop_accepting()
        self._clients.drain()
        try:
            async with asyncio.timeout(settings.drain_timeout):
                await self._clients.wait_closed()
        except TimeoutError:
            log.warning("answers cut at the end of the drain", extra=fields(count=len(self._clients.connections)))

    async def stop(self) -> None:
        """End everything at once."""
        self._stop_accepting()
        if self._admin_server is not None:
            self._admin_server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._peering is not None:
            self._peering.close()
        for clients in (self._clients, self._admin_clients):
            clients.abort()
            await clients.wait_closed()
        self._connections.close()

    def _stop_accepting(self) -> None:
        for server in self._accepting.values():
            server.close()
        self._accepting.clear()
        for each in self._sockets.requests if self._sockets is not None else ():
            each.close()

    def exposition(self) -> str:
        """Return the metrics as of this moment, as text."""
        return self.state.exposition(self._clock(), len(self._clients.connections))

    async def failure(self) -> None:
        """Return once a task has ended that must run for ever."""
        await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                log.critical("a part of the router ended", exc_info=error)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self.state.expire_waiting(self._clock())

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = self._clock()
            self._clients.tick(now)
            self._admin_clients.tick(now)
            self._connections.tick(now)


async def run(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT, then drain; a second signal ends the drain.

    Returns:
        The exit status.
    """
    return await serve(Router(settings))


async def serve(router: Router, begin: Callable[[Callable[[], None]], Awaitable[None]] | None = None) -> int:
    """Run a router as `run` does.

    Args:
        router: the router.
        begin: called once it has started, with what SIGTERM calls too.

    Returns:
        The exit status.
    """
    loop = asyncio.get_running_loop()
    asked, hurried = asyncio.Event(), asyncio.Event()

    def leave() -> None:
        (hurried if asked.is_set() else asked).set()

    try:
        await router.start()
    except OSError as error:
        log.critical("cannot listen", extra=fields(host=router.host, problem=error))
        await router.stop()
        return 1
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, leave)
    loop.add_signal_handler(signal.SIGHUP, router.reload)
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # asks a supervisor for new workers
    if begin is not None:
        await begin(leave)
    # objects made until here live as long as the process: the collector need not visit them again
    gc.collect()
    gc.freeze()
    broken = await _first(asked.wait(), router.failure())
    await _first(hurried.wait(), router.drain())
    await router.stop()
    return 1 if broken else 0


async def _first(one: Awaitable[object], other: Awaitable[object]) -> bool:
    """Wait for the first of two to end and cancel the other. Return True if the second ended first."""
    tasks = [asyncio.ensure_future(one), asyncio.ensure_future(other)]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    return tasks[1] in done
