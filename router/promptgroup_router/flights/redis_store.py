"""Stores answers in Redis or Valkey, for all routers. No request fails by it, and none waits longer than its limit.

A read has a time limit, after which the answer is computed. A store that cannot be reached, or is late several times in
a row, is not used until it answers a ping in time; no request waits for that ping. Answers beyond the write queue's
limit are dropped.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from promptgroup_router.base.logs import fields
from promptgroup_router.base.metrics import Metrics
from promptgroup_router.base.store_settings import StoreSettings
from promptgroup_router.flights.answer_store import AnswerName
from promptgroup_router.flights.redis_client import FAILURES, CommandRefusedError, connect, disconnect
from promptgroup_router.response_cache.answer import KeptAnswer
from promptgroup_router.response_cache.purge import Purge
from promptgroup_router.response_cache.sealing import MOST_SEALED, Seal

log = logging.getLogger("promptgroup.store")

PREFIX = "promptgroup:response:"
"""Beginning of all names in the store, for an ACL such as `~promptgroup:response:*`."""
READS_AT_ONCE, WRITES_AT_ONCE = 24, 6
"""Most concurrent reads and writes; with a ping, they are fewer than the connections."""
LATE_IN_A_ROW = 5
"""Consecutive late replies after which the store is not used: one may be late because this process was busy."""
RETRY_SECONDS = 1.0
"""Time between two probes of a store that is not used."""
COMMAND_SECONDS = 10.0
"""Time limit for a whole command, including a query for a cluster's nodes; the client has a limit for each step."""
PURGE_SECONDS = 8.0
"""Time limit for a purge, below the time limit of its client."""
WAITING_BYTES = 16 * 2**20
"""Most bytes of answers that wait to be written."""
LOG_AGAIN_SECONDS = 60.0
SCAN_COUNT = 1000

_T = TypeVar("_T")


class RedisStore:
    """A store, bound to the event loop that created it."""

    def __init__(self, settings: StoreSettings, metrics: Metrics) -> None:
        """Create the client without a connection. Nothing is read or written before there is a secret.

        Args:
            settings: of the store.
            metrics: of the router.
        """
        self._client = connect(settings)
        self._limit = settings.timeout
        self._metrics = metrics
        self._seal: Seal | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writes: set[asyncio.Task[None]] = set()
        """The tasks that write."""
        self._waiting_bytes = 0
        self._reading = 0
        """Reads in progress."""
        self._writing = asyncio.Semaphore(WRITES_AT_ONCE)
        self._late = 0
        """Consecutive late replies."""
        self._away = False
        self._closing = asyncio.Event()
        self._logged = -LOG_AGAIN_SECONDS
        metrics.responses_store_up.replace({(): 1})

    def rekey(self, secret: bytes) -> None:
        """Seal answers with another secret from now on; all routers share it."""
        self._seal = Seal(secret, os.urandom)

    @property
    def away(self) -> bool:
        """True while the store is not used because it failed."""
        return self._away

    # --- Reads and writes ------------------------------------------------------------------------------------------

    def get(self, name: AnswerName, result: Callable[[KeptAnswer | None], None]) -> Callable[[], None] | None:
        """Request an answer. `result` is called once, within the time limit, unless the read is cancelled before.

        Returns:
            A function that cancels the read; None if nothing is read: `result` is not called then.
        """
        seal = self._seal
        if seal is None or self._away or self._reading >= READS_AT_ONCE:
            self._metrics.responses_store.add("get", "skipped")
            return None
        self._reading += 1
        return _Question(self, seal, name, result).begin()

    def put(self, answer: KeptAnswer) -> None:
        """Store an answer in the background; it may be dropped."""
        seal = self._seal
        if seal is None or self._away or self._waiting_bytes + answer.size > WAITING_BYTES:
            self._metrics.responses_store.add("put", "skipped")
            return
        self._waiting_bytes += answer.size
        self.start(self._write(seal, answer), writes=True)

    async def _write(self, seal: Seal, answer: KeptAnswer) -> None:
        try:
            async with self._writing:
                if not self._away:
                    name = stored_name(seal, AnswerName(answer.group, answer.revision, answer.key))
                    milliseconds = max(1, int(answer.lifetime * 1000))
                    await self.perform("put", self._client.set(name, seal.close(answer), px=milliseconds))
        finally:
            self._waiting_bytes -= answer.size

    async def read(self, name: str) -> bytes | None:
        """Return a value, cut at a size beyond that of any answer; None if there is none, or the store fails."""
        try:
            data = await self.perform("get", self._client.getrange(name, 0, MOST_SEALED))
        finally:
            self._reading -= 1
        return data if isinstance(data, bytes) and data else None

    def late(self) -> None:
        """Record that a reply was late."""
        self._metrics.responses_store.add("get", "late")
        self._late += 1
        if self._late >= LATE_IN_A_ROW:
            self._leave_alone("get", TimeoutError())

    def in_time(self) -> None:
        """Record that a reply was in time."""
        self._late = 0

    # --- Purges ----------------------------------------------------------------------------------------------------

    async def purge(self, purge: Purge) -> int:
        """Remove answers, including those that wait to be written. Return the number of removed answers.

        Raises:
            OSError: the store cannot be reached, or did not finish in time: it may still hold some of the answers.
        """
        seal = self._seal
        if seal is None:
            return 0  # nothing was stored either
        removed, result = 0, "failed"
        try:
            async with asyncio.timeout(PURGE_SECONDS):
                if self._writes:
                    await asyncio.wait(self._writes)
                names: list[bytes] = []
                async for name in self._client.scan_iter(match=pattern(seal, purge), count=SCAN_COUNT):
                    names.append(name)
                    if len(names) >= SCAN_COUNT:
                        removed += await self._unlink(names)
                        names = []
                removed += await self._unlink(names)
            result = "ok"
        except FAILURES as error:
            raise OSError(f"the store does not purge ({type(error).__name__})") from None
        finally:
            self._metrics.responses_store.add("purge", result)
        return removed

    async def _unlink(self, names: list[bytes]) -> int:
        if not names:
            return 0
        # one command per name, in a pipeline: a cluster distributes the names over its nodes
        async with self._client.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.execute_command("UNLINK", name)
            return sum(await pipe.execute())

    # --- Failures --------------------------------------------------------------------------------------------------

    async def perform(self, operation: str, command: Awaitable[_T]) -> _T | None:
        """Return the answer to a command; None if it fails."""
        try:
            async with asyncio.timeout(COMMAND_SECONDS):
                answer = await command
        except CommandRefusedError as error:
            # the store is reachable, and refuses in time: it is full, or the user lacks the permission
            self._metrics.responses_store.add(operation, "refused")
            self._complain(operation, error)
            return None
        except FAILURES as error:
            self._metrics.responses_store.add(operation, "failed")
            self._leave_alone(operation, error)
            return None
        self._metrics.responses_store.add(operation, "ok" if answer else "absent")
        return answer

    def _leave_alone(self, operation: str, error: BaseException) -> None:
        self._complain(operation, error)
        if not self._away and not self._closing.is_set():
            self._away = True
            self._metrics.responses_store_up.replace({(): 0})
            self.start(self._come_back())

    def _complain(self, operation: str, error: BaseException) -> None:
        now = time.monotonic()
        if now - self._logged >= LOG_AGAIN_SECONDS:
            self._logged = now
            # only the type: messages of some errors repeat the data that was sent
            log.warning("the store of answers fails", extra=fields(operation=operation, problem=type(error).__name__))

    async def _come_back(self) -> None:
        """Probe the store until it answers in time; no request waits for this."""
        while not self._closing.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RETRY_SECONDS):
                    await self._closing.wait()
                    return
            if await self._answers():
                self._late, self._away = 0, False
                self._metrics.responses_store_up.replace({(): 1})
                log.info("the store of answers is used again")
                return

    async def _answers(self) -> bool:
        """Return True if the store answers in time; the first ping may have to open a connection."""
        try:
            async with asyncio.timeout(COMMAND_SECONDS):
                await self._client.ping()
                began = time.monotonic()
                await self._client.ping()
        except FAILURES:
            self._metrics.responses_store.add("ping", "failed")
            return False
        took = time.monotonic() - began
        self._metrics.responses_store.add("ping", "ok" if took <= self._limit else "late")
        return took <= self._limit

    # --- Life ------------------------------------------------------------------------------------------------------

    def start(self, work: Coroutine[Any, Any, None], *, writes: bool = False) -> None:
        """Run a task for which `close` waits, and for which purges wait, too, if it writes."""
        task = asyncio.get_running_loop().create_task(work)
        for tasks in (self._tasks, self._writes) if writes else (self._tasks,):
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    async def close(self) -> None:
        """Close the connections once all tasks have ended, or after a time limit."""
        self._closing.set()
        self._seal = None
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=COMMAND_SECONDS)
        await disconnect(self._client)

    @property
    def limit(self) -> float:
        """Longest time that a request waits, in seconds."""
        return self._limit


class _Question:
    """One read from the store, for which a request waits."""

    def __init__(
        self, store: RedisStore, seal: Seal, name: AnswerName, on_result: Callable[[KeptAnswer | None], None]
    ) -> None:
        self._store = store
        self._seal = seal
        self._name = name
        self._on_result = on_result
        self._open = True

    def begin(self) -> Callable[[], None]:
        """Begin the read. Return a function that cancels it."""
        self._timer = asyncio.get_running_loop().call_later(self._store.limit, self._too_late)
        self._store.start(self._ask())
        return self._call_off

    async def _ask(self) -> None:
        # the command continues beyond the limit, so that a connection that is being opened can serve the next read
        data = await self._store.read(stored_name(self._seal, self._name))
        if self._open:
            self._open = False
            self._timer.cancel()
            self._store.in_time()
            self._on_result(self._seal.open(data, self._name.key) if data is not None else None)

    def _too_late(self) -> None:
        if self._open:
            self._open = False
            self._store.late()
            self._on_result(None)

    def _call_off(self) -> None:
        self._open = False
        self._timer.cancel()


def stored_name(seal: Seal, name: AnswerName) -> str:
    """Return an answer's name in the store, which contains its group and revision, so that purges can select it.

    Clusters may share a store and have groups of the same name: a purge covers only answers that routers with the same
    secret have stored.
    """
    return f"{PREFIX}{seal.installation}:{name.group}:{name.revision}:{seal.hidden(name.key)}"


def pattern(seal: Seal, purge: Purge) -> str:
    """Return the pattern of the names that a purge covers."""
    key = seal.hidden(purge.key) if purge.key is not None else "*"
    return f"{PREFIX}{seal.installation}:{purge.group or '*'}:{purge.revision or '*'}:{key}"
