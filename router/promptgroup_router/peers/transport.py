"""Runs the exchange between routers on a socket, with its clock, key and peer names.

Requests are still routed if anything fails here. The exchange uses UDP: a report is obsolete a tick later, so nothing
needs to wait for lost datagrams, and n routers need not open, watch and reopen connections to each other.
"""

import asyncio
import logging
import secrets
import socket
import time
from collections.abc import Callable
from pathlib import Path

from promptgroup_router.base.core_settings import CoreSettings, PeerName
from promptgroup_router.base.logs import fields
from promptgroup_router.base.metrics import Metrics
from promptgroup_router.callers.limiter import Limiter
from promptgroup_router.peers import discovery, peer_key
from promptgroup_router.peers.datagram import MAX_BYTES, Refusal, seal_key
from promptgroup_router.peers.members import Address
from promptgroup_router.peers.protocol import GossipHandler, GossipProtocol

log = logging.getLogger("promptgroup.peers")

LOOKUP_EVERY_SECONDS = 5.0
"""Seconds between lookups of a name. Other routers learn the address of a starting router from its first datagram, so
it is a peer as soon as it has resolved one of them."""
KEY_EVERY_SECONDS = 1.0
"""Seconds between reads of the key."""
READS_AT_ONCE = 64
"""Datagrams read before other tasks of the event loop run."""
RECEIVE_BUFFER = 2**20
"""Bytes that may wait for a busy event loop. The kernel grants less if `net.core.rmem_max` is lower."""
LOG_AGAIN_SECONDS = 60.0
"""Seconds between log lines about a continuing problem; every case is counted."""


class GossipTransport:
    """This process's part in the exchange, in the event loop that created it."""

    def __init__(
        self,
        settings: CoreSettings,
        key_file: Path,
        handler: GossipHandler,
        metrics: Metrics,
        clock: Callable[[], float],
        *,
        on_key: Callable[[bytes], None] | None = None,
        limiter: Limiter | None = None,
    ) -> None:
        """Bind a port.

        Raises:
            OSError: all ports of the range are in use, or the address is not one of this machine.
        """
        self._names = settings.peers
        self._ports = range(settings.peer_port, settings.peer_port + settings.peer_ports)
        self._key_file = key_file
        self._on_key = on_key
        self._tick_seconds = settings.peer_tick
        self._metrics = metrics
        self._clock = clock
        self._wall = time.time  # noqa: TID251 - the clock that machines share
        self._protocol = GossipProtocol(handler, metrics, secrets.randbits(64), limiter)
        self._urgent = asyncio.Event()
        handler.on_urgent(self._urgent.set)
        self._found: dict[PeerName, list[Address]] = {}
        self._secret: bytes | None = None
        self._keyed = asyncio.Event()
        self._key_problem = ""
        self._problems: dict[str, float] = {}
        self._socket = _bound(settings.host, self._ports)
        self.port: int = self._socket.getsockname()[1]

    @property
    def own(self) -> int:
        """This router's number among its peers."""
        return self._protocol.own

    def others(self) -> list[tuple[int, str]]:
        """Return the number of each live peer, and its `host:port`; the port is also its TCP port."""
        return [(peer.sender, _endpoint(peer.address)) for peer in self._protocol.live()]

    async def run(self) -> None:
        """Exchange datagrams until cancelled."""
        log.info("peers", extra=fields(port=self.port, names=",".join(name.host for name in self._names)))
        self._reload_key()
        asyncio.get_running_loop().add_reader(self._socket, self._readable)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_key())
            for name in self._names:
                tasks.create_task(self._follow_name(name))
            tasks.create_task(self._tick())

    def close(self) -> None:
        """Close the socket, once `run` has ended."""
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()

    # --- Datagrams -------------------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        while True:
            self._send_all()
            try:
                async with asyncio.timeout(self._tick_seconds):
                    await self._urgent.wait()
            except TimeoutError:
                continue
            self._send_all()
            await asyncio.sleep(self._tick_seconds)  # so that urgent reports double the datagrams at most

    def _send_all(self) -> None:
        self._urgent.clear()
        for data, address in self._protocol.tick(self._clock(), self._wall()):
            self._send(data, address)

    def _send(self, data: bytes, address: Address) -> None:
        try:
            self._socket.sendto(data, address)
        except OSError as error:  # a full buffer, a firewall, no route: any datagram may be lost
            self._metrics.peer_dropped.add("unsent")
            self._problem("unsent", f"{address[0]}: {error.strerror}")
            return
        self._metrics.peer_datagrams.add("sent")
        self._metrics.peer_bytes.add("sent", amount=len(data))

    def _readable(self) -> None:
        now, wall = self._clock(), self._wall()
        for _ in range(READS_AT_ONCE):
            try:
                data, address = self._socket.recvfrom(MAX_BYTES + 1)
            except BlockingIOError:
                return
            except OSError as error:
                self._problem("unreadable", str(error))
                return
            refusal = self._protocol.receive(data, address, now, wall)
            if refusal not in (None, Refusal.NO_KEY):  # a missing key is logged when the key is read
                self._problem(refusal.value, f"from {address[0]}")

    # --- Key and names ---------------------------------------------------------------------------------------------

    async def _follow_key(self) -> None:
        while True:
            await asyncio.sleep(KEY_EVERY_SECONDS)
            self._reload_key()

    def _reload_key(self) -> None:
        problem = ""
        try:
            secret = peer_key.read_key(self._key_file)
        except peer_key.BadKeyError as error:
            secret, problem = None, str(error)
        if problem and problem != self._key_problem:
            log.warning("no key: nothing is exchanged with other routers", extra=fields(problem=problem))
        self._key_problem = problem
        if secret != self._secret:
            self._secret = secret
            self._protocol.key = seal_key(secret) if secret is not None else None
            if secret is None:
                self._keyed.clear()
            else:
                self._keyed.set()
                if self._on_key is not None:
                    self._on_key(secret)
                log.info("key read: the exchange with other routers is on", extra=fields(file=self._key_file))
        self._metrics.peer_key.replace({(): 0 if secret is None else 1})

    async def _follow_name(self, name: PeerName) -> None:
        family = self._socket.family
        while True:
            await self._keyed.wait()
            try:
                self._found[name] = await discovery.resolve(name, self._ports, family)
            except OSError as error:
                self._metrics.peer_lookup_failures.add()
                self._problem("lookup", f"{name.host}: {error.strerror or error}")
            self._protocol.aim([address for result in self._found.values() for address in result])
            await asyncio.sleep(LOOKUP_EVERY_SECONDS)

    def _problem(self, subject: str, details: str) -> None:
        now = self._clock()
        if now - self._problems.get(subject, -LOG_AGAIN_SECONDS) >= LOG_AGAIN_SECONDS:
            self._problems[subject] = now
            log.warning("exchange with other routers disturbed", extra=fields(what=subject, problem=details))


def _endpoint(address: Address) -> str:
    host, port = address[0].removeprefix("::ffff:"), address[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _bound(host: str, ports: range) -> socket.socket:
    """Return a socket on the first free port: processes of one machine share the range."""
    family, kind, protocol, _, at = socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE)[0]
    problem = None
    for port in ports:
        one = socket.socket(family, kind, protocol)
        try:
            if family is socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            one.bind((at[0], port, *at[2:]))
        except OSError as error:
            one.close()
            problem = error.strerror
        else:
            one.setblocking(False)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
            return one
    raise OSError(f"no UDP port from {ports[0]} to {ports[-1]} (--peer-port, --peer-ports) is free: {problem}")
