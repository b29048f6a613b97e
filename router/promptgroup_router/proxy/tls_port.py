"""Accepts clients' connections on sockets of its own, so that no address can occupy all places for TLS handshakes.

A server of the event loop begins a handshake before it reports the client's address. Here a connection is accepted,
counted by the client's address, and then passed to the loop.
"""

import asyncio
import os
import socket
import ssl
import struct
from collections.abc import Callable
from typing import Protocol

from promptgroup_router.proxy.downstream import STALL_SECONDS
from promptgroup_router.proxy.making_room import network_of

HANDSHAKE_SECONDS = 10.0
"""Time limit for a client's TLS handshake."""
ADDRESS_SHARE = 4
"""A quarter of all connections is what one address may have in handshakes."""
AT_ONCE = 64
"""Connections that are accepted before others have their turn."""
EXHAUSTED_SECONDS = 1.0
"""Time to accept nothing after the process has run out of descriptors."""


class Accepting(Protocol):
    """Whatever accepts connections until it is closed: a server of the event loop, or a TlsPort."""

    def close(self) -> None:
        """Accept no more; connections that are open go on."""


class Handshakes:
    """The handshakes in progress, by the client's address."""

    def __init__(self, most: int) -> None:
        """Begin with none.

        Args:
            most: of one address.
        """
        self._most = most
        self._by_network: dict[str, int] = {}

    def __len__(self) -> int:
        return sum(self._by_network.values())

    def begin(self, address: str) -> str | None:
        """Count a handshake; None if its address has too many, else the argument for `end`."""
        network = network_of(address)
        running = self._by_network.get(network, 0)
        if running >= self._most:
            return None
        self._by_network[network] = running + 1
        return network

    def end(self, network: str) -> None:
        """Count a handshake no more."""
        left = self._by_network.pop(network) - 1
        if left:
            self._by_network[network] = left


class TlsPort:
    """The acceptor of some listening sockets."""

    def __init__(
        self,
        sockets: list[socket.socket],
        accept: Callable[[], asyncio.Protocol],
        context: Callable[[], ssl.SSLContext],
        handshakes: Handshakes,
        refused: Callable[[], None],
    ) -> None:
        """Accept from here on.

        Args:
            sockets: they listen, and do not block; they are closed with the port.
            accept: returns what handles a connection.
            context: returns the certificate and what else holds for the next connection.
            handshakes: those in progress, of all ports of the process.
            refused: called for each connection that is reset because of its address.
        """
        self._loop = asyncio.get_running_loop()
        self._sockets = sockets
        self._accept = accept
        self._context = context
        self._handshakes = handshakes
        self._refused = refused
        self._opening: set[asyncio.Task[None]] = set()
        for item in sockets:
            self._read(item)

    def close(self) -> None:
        """Accept no more; connections that are open go on."""
        for item in self._sockets:
            self._loop.remove_reader(item.fileno())
            item.close()
        self._sockets = []

    def _read(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            self._loop.add_reader(listening.fileno(), self._take, listening)

    def _take(self, listening: socket.socket) -> None:
        """Accept those who wait."""
        for _ in range(AT_ONCE):
            try:
                opened, address = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:
                continue  # it left while it waited
            except OSError:
                self._loop.remove_reader(listening.fileno())
                self._loop.call_later(EXHAUSTED_SECONDS, self._read, listening)
                return
            network = self._handshakes.begin(address[0])
            if network is None:
                self._refused()
                _reset(opened)
                continue
            opened.setblocking(False)
            task = self._loop.create_task(self._open(opened, network))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _open(self, opened: socket.socket, network: str) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._accept,
                opened,
                ssl=self._context(),
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
                # a slow reader gets what is left of its answer: the listener's own deadlines end the others
                ssl_shutdown_timeout=STALL_SECONDS,
            )
        except OSError:  # it speaks no TLS, shows no certificate, or takes too long
            opened.close()
        finally:
            self._handshakes.end(network)


def copy_of(descriptor: int) -> socket.socket:
    """Return a copy of a listening socket, whose end leaves what waits on the other to others."""
    result = socket.socket(fileno=os.dup(descriptor))
    result.setblocking(False)
    return result


def _reset(opened: socket.socket) -> None:
    with opened:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
