"""A worker's side of the supervision: what it is given, whom it obeys, what it leaves behind.

The supervisor starts a worker as itself, with open sockets and a description of them in the environment. Lines on
standard input name the sockets on which to accept (`0 2`); its end means that the supervisor is gone, and is obeyed
like SIGTERM. When a worker ends it writes its page of metrics to standard output, so that nothing it counted is lost.
"""

import asyncio
import contextlib
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import orjson

from promptgroup_router.base.core_settings import PeerName
from promptgroup_router.base.exposition import OPENMETRICS
from promptgroup_router.base.settings import Settings
from promptgroup_router.server import Router, Sockets, serve
from promptgroup_router.workers.plan import share

VARIABLE = "PROMPTGROUP_ROUTER_WORKER"
"""Set by the supervisor, and by nobody else."""


@dataclass(frozen=True, slots=True)
class Inheritance:
    """The things that a worker is given; sockets are open descriptors."""

    place: int
    workers: int
    requests: tuple[int, ...]
    admin: int
    exchange: int | None
    """None where workers take a port of `--peer-ports`."""
    key: int | None
    """A file with the key of the exchange; None where `--peer-key-file` has it."""
    peers: tuple[int, ...]
    """Ports on loopback of the other workers' exchange."""

    def encode(self) -> str:
        """Return the value of the variable."""
        return orjson.dumps(self).decode()

    def descriptors(self) -> tuple[int, ...]:
        """Return the open descriptors."""
        return tuple(number for number in (*self.requests, self.admin, self.exchange, self.key) if number is not None)


def inherited(environment: Mapping[str, str]) -> Inheritance | None:
    """Return what this process was given; None if it is no worker."""
    text = environment.get(VARIABLE)
    if text is None:
        return None
    given = orjson.loads(text)
    return Inheritance(**given | {"requests": tuple(given["requests"]), "peers": tuple(given["peers"])})


async def run(settings: Settings, given: Inheritance) -> int:
    """Serve as a worker until SIGTERM, or until the supervisor is gone.

    Args:
        settings: those of the whole router.
        given: what the supervisor opened.

    Returns:
        The exit status.
    """
    settings = share(settings, given.workers)
    if given.key is not None:
        peers = tuple(PeerName("127.0.0.1", port) for port in given.peers)
        settings = replace(settings, peers=peers, peer_key_file=Path(f"/dev/fd/{given.key}"))
    sockets = Sockets(
        [socket.socket(fileno=number) for number in given.requests],
        socket.socket(fileno=given.admin),
        socket.socket(fileno=given.exchange) if given.exchange is not None else None,
    )
    router = Router(settings, sockets)
    orders: set[asyncio.Task[None]] = set()

    async def begin(leave: Callable[[], None]) -> None:
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        orders.add(asyncio.ensure_future(_obey(router, reader, leave)))

    status = await serve(router, begin)
    for task in orders:
        task.cancel()
    await asyncio.gather(*orders, return_exceptions=True)
    _leave_behind(router.core.exposition(OPENMETRICS))
    return status


def _leave_behind(page: str) -> None:
    """Write the last page to the supervisor, if it is still there."""
    with contextlib.suppress(OSError), open(sys.stdout.fileno(), "wb", closefd=False) as out:
        out.write(page.encode())


async def _obey(router: Router, reader: asyncio.StreamReader, leave: Callable[[], None]) -> None:
    while line := await reader.readline():
        if not router.state.draining:
            await router.accept_on([int(word) for word in line.split()])
    leave()
