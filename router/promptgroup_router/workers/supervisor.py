"""Starts workers, looks after them, replaces those that end, and lets all of them leave.

Workers accept on sockets that the supervisor keeps open, so that no connection is lost when one of them ends: what
waits on its sockets is accepted by the others, or by the one that comes.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
import time
from collections.abc import Coroutine, Sequence

from promptgroup_router.admin import ADMIN_BODY_BYTES
from promptgroup_router.admin_guard import AdminGuard
from promptgroup_router.base import build
from promptgroup_router.base.logs import fields
from promptgroup_router.base.settings import Settings
from promptgroup_router.core import BACKLOG, TICK_SECONDS
from promptgroup_router.proxy.downstream import ClientListener
from promptgroup_router.workers import plan, process
from promptgroup_router.workers.admin import WorkersAdmin
from promptgroup_router.workers.crew import Crew
from promptgroup_router.workers.process import NoAnswerError, WorkerProcess

log = logging.getLogger("promptgroup.workers")

READY_EVERY = 0.1
"""Seconds between looks at a worker that has no table yet."""
READ_EVERY = 5.0
"""Seconds between readings of a worker's page: what a worker that is killed counted since the last one is lost."""
MISSED = 3
"""Readings in a row without an answer after which a worker is killed, as a kubelet does with a container."""
READY_SECONDS = 60.0
"""Time for a new worker to have a table before it takes the place of another."""
LEAVE_SECONDS = 1.0
"""Time between the last connection that a worker accepts and its drain, which closes connections without a request: a
client that has just connected sends one first, and those that send many are told to connect again."""
LATE_SECONDS = 10.0
"""Time beyond the drain's own for a worker to end."""


class Supervisor:
    """The workers of one router, their sockets and their admin port."""

    def __init__(self, settings: Settings, workers: int) -> None:
        self._settings = settings
        self._workers = workers
        self._sockets: list[socket.socket] = []
        self._key: int | None = None
        self._exchange: dict[WorkerProcess, int] = {}
        """Worker → its port for the exchange, where it was given one."""
        self._failures = [0] * workers
        self._tasks: set[asyncio.Task[None]] = set()
        self._renewal: asyncio.Task[None] | None = None
        self._admin: ClientListener
        self._server: asyncio.Server
        self.crew: Crew

    async def start(self) -> None:
        """Listen, and start the workers.

        Raises:
            OSError: a port cannot be bound, or no process be started.
        """
        settings = self._settings
        self._sockets = _bound(settings.host, settings.port, self._workers)
        self.crew = Crew(self._workers, len(self._sockets))
        admin = WorkersAdmin(self.crew, AdminGuard(settings.admin_hosts, settings.admin_token_file))
        most = min(settings.max_body_bytes, ADMIN_BODY_BYTES)
        self._admin = ClientListener(admin, time.monotonic, most, max_connections=settings.max_connections)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._admin.accept, settings.host, settings.admin_port, backlog=BACKLOG)
        if not settings.peers:
            self._key = os.memfd_create("exchange-key")
            os.write(self._key, secrets.token_bytes(32))
        for place in range(self._workers):
            self.crew.install(await self._start(place))
        _ = self._run(self._tick())
        port, admin_port = (one.getsockname()[1] for one in (self._sockets[0], self._server.sockets[0]))
        where = {"host": settings.host, "port": port, "admin_port": admin_port, "workers": self._workers}
        about = fields(**where, **build.about())
        log.info("listening", extra=about)

    def reload(self) -> None:
        """Have the table's source read again at once."""
        for worker in self.crew.running:
            worker.send(signal.SIGHUP)

    def renew(self) -> None:
        """Replace all workers, one after the other, each once the new one has a table."""
        if self._renewal is None or self._renewal.done():
            self._renewal = self._run(self._renew())
        else:
            log.warning("workers are being replaced already: asked in vain")

    async def drain(self) -> None:
        """Let all workers drain, and wait for their end."""
        self.crew.draining = True
        log.info("draining", extra=fields(workers=len(self.crew.running)))
        self.hurry()
        self._close_sockets()
        late = self._settings.drain_delay + self._settings.drain_timeout + LATE_SECONDS
        try:
            async with asyncio.timeout(late):
                await asyncio.gather(*(worker.end.wait() for worker in self.crew.running))
        except TimeoutError:
            log.warning("workers killed at the end of the drain", extra=fields(count=len(self.crew.running)))

    def hurry(self) -> None:
        """Tell the workers to drain, or to end at once if they were told before."""
        for worker in self.crew.running:
            worker.retiring = True
            worker.send(signal.SIGTERM)

    async def stop(self) -> None:
        """End everything at once."""
        self.crew.draining = True
        for worker in self.crew.running:
            worker.send(signal.SIGKILL)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._close_sockets()
        self._server.close()
        self._admin.abort()
        await self._admin.wait_closed()
        if self._key is not None:
            os.close(self._key)

    def _close_sockets(self) -> None:
        while self._sockets:
            self._sockets.pop().close()

    # --- One worker ----------------------------------------------------------------------------------------------

    async def _start(self, place: int) -> WorkerProcess:
        exchange = None
        if self._key is not None:
            exchange = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            exchange.bind((process.LOOPBACK, 0))
        with exchange or contextlib.nullcontext():
            ports = [exchange.getsockname()[1], *self._exchange.values()] if exchange is not None else []
            worker = await process.start(
                place, self._workers, requests=self._sockets, exchange=exchange, key=self._key, peers=ports
            )
        if ports:
            self._exchange[worker] = ports[0]
        self.crew.running.append(worker)
        if self.crew.draining:
            worker.retiring = True
            worker.send(signal.SIGTERM)
        _ = self._run(self._keep(worker))
        return worker

    async def _keep(self, worker: WorkerProcess) -> None:
        """Look after a worker until it ends, and see to its replacement."""
        looking = asyncio.ensure_future(self._look_after(worker))
        try:
            status = await worker.ended()
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
        unasked, place = not worker.retiring, worker.place
        replaced = unasked and self.crew.serving.get(place) is worker
        self._exchange.pop(worker, None)
        self.crew.lose(worker, unasked=unasked)
        ran = asyncio.get_running_loop().time() - worker.began
        log.log(
            logging.ERROR if unasked else logging.INFO,
            "worker ended",
            extra=fields(place=place, pid=worker.pid, status=status, seconds=round(ran, 1)),
        )
        if not replaced:
            return
        self._failures[place] = 1 if ran >= plan.STABLE_SECONDS else self._failures[place] + 1
        while not self.crew.draining:
            await asyncio.sleep(plan.delay(ran, self._failures[place]))
            try:
                self._install(await self._start(place))
            except OSError as error:
                log.error("worker cannot be started", extra=fields(place=place, problem=error))  # noqa: TRY400
                ran, self._failures[place] = 0.0, self._failures[place] + 2
            else:
                return

    async def _look_after(self, worker: WorkerProcess) -> None:
        while not worker.ready:
            await worker.look_whether_ready()
            if worker.ready:
                self.crew.assign()
            else:
                await asyncio.sleep(READY_EVERY)
        missed = 0
        while True:
            try:
                await worker.read_page()
                missed = 0
            except NoAnswerError as error:
                missed += 1
                log.warning("worker hangs", extra=fields(place=worker.place, pid=worker.pid, problem=error))
                if missed == MISSED:
                    worker.send(signal.SIGKILL)
            await asyncio.sleep(READ_EVERY)

    def _install(self, worker: WorkerProcess) -> None:
        before = self.crew.install(worker)
        if before is not None:
            _ = self._run(self._dismiss(before))

    async def _dismiss(self, worker: WorkerProcess) -> None:
        await asyncio.sleep(LEAVE_SECONDS)
        if not self.crew.draining:  # all are told already: twice would cut their answers
            worker.send(signal.SIGTERM)

    # --- All of them ---------------------------------------------------------------------------------------------

    async def _renew(self) -> None:
        log.info("replacing workers", extra=fields(count=self._workers))
        for place in range(self._workers):
            if self.crew.draining:
                return
            before = self.crew.serving.get(place)
            try:
                worker = await self._start(place)
            except OSError as error:
                log.error("worker cannot be started: the others stay", extra=fields(problem=error))  # noqa: TRY400
                return
            if await _first(worker.end, worker.table, seconds=READY_SECONDS) is not worker.table:
                log.error("a new worker got no table: the others stay", extra=fields(place=place))
                worker.retiring = True
                worker.send(signal.SIGKILL)
                return
            self._install(worker)
            late = LEAVE_SECONDS + self._settings.drain_delay + self._settings.drain_timeout + LATE_SECONDS
            if before is not None and await _first(before.end, seconds=late) is None:
                before.send(signal.SIGKILL)
        log.info("workers replaced", extra=fields(count=self._workers))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self._admin.tick(time.monotonic())

    def _run(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def run(settings: Settings, workers: int) -> int:
    """Supervise until SIGTERM or SIGINT, then drain; a second signal ends the drain.

    Returns:
        The exit status.
    """
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    supervisor = Supervisor(settings, workers)

    def leave() -> None:
        if asked.is_set():
            supervisor.hurry()
        asked.set()

    try:
        await supervisor.start()
    except OSError as error:
        log.critical("cannot listen", extra=fields(host=settings.host, problem=error))
        await supervisor.stop()
        return 1
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, leave)
    loop.add_signal_handler(signal.SIGHUP, supervisor.reload)
    loop.add_signal_handler(signal.SIGUSR2, supervisor.renew)
    await asked.wait()
    await supervisor.drain()
    await supervisor.stop()
    return 0


async def _first(*events: asyncio.Event, seconds: float) -> asyncio.Event | None:
    """Wait for one of some events. Return the first that is set; None if none was in time."""
    tasks = [asyncio.ensure_future(event.wait()) for event in events]
    await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return next((event for event in events if event.is_set()), None)


def _bound(host: str, port: int, places: int) -> list[socket.socket]:
    """Return listening sockets on each of the host's addresses, one for each place; socket i is place i modulo places.

    Raises:
        OSError: the port is taken, or an address is not this machine's.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    for family, kind, protocol, _, address in dict.fromkeys(found):
        at: Sequence[object] = address
        for _ in range(places):
            one = socket.socket(family, kind, protocol)
            sockets.append(one)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family is socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind(tuple(at))
            at = one.getsockname()  # port 0 is the same for all
            one.listen(BACKLOG)
    return sockets
