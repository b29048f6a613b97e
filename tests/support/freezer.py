"""A TCP proxy whose connections can go silent while they stay open, as they do behind a gateway that lost its state."""

import contextlib
import socket
import threading
from collections.abc import Iterator


class Freezer:
    def __init__(self, port: int) -> None:
        self._target = port
        self._open: set[threading.Event] = set()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets.append(self._listener)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def freeze(self) -> None:
        """What is open passes nothing more, and stays open; what is opened from here on works."""
        for each in list(self._open):
            each.set()

    def close(self) -> None:
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                self._sockets += [client, server]
                frozen = threading.Event()
                self._open.add(frozen)
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=self._pump, args=(source, sink, frozen), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, frozen: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if not frozen.is_set():
                    sink.sendall(data)
            if not frozen.is_set():
                sink.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def freezer(port: int) -> Iterator[Freezer]:
    """A proxy before a port of this machine."""
    proxy = Freezer(port)
    try:
        yield proxy
    finally:
        proxy.close()
