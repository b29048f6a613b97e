"""What is counted by address; whole routers with TLS are in `test_tls.py`."""

import asyncio
import contextlib
import errno
import socket

import pytest

from promptgroup_router.feed.certificate_feed import server_context
from promptgroup_router.proxy import tls_port
from promptgroup_router.proxy.tls_port import Handshakes, TlsPort, network_of
from support.fakeengine import until
from support.tlsfiles import TlsFiles
from support.wire import run


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
    ],
)
def test_who_has_a_network_of_ipv6_is_one_sender(one, other, same):
    assert (network_of(one) == network_of(other)) is same


def test_each_address_has_a_share_and_gets_it_back():
    handshakes = Handshakes(2)
    first, second = handshakes.begin("10.0.0.1"), handshakes.begin("10.0.0.1")
    assert first == second == "10.0.0.1"
    assert handshakes.begin("10.0.0.1") is None
    assert handshakes.begin("10.0.0.2") == "10.0.0.2"
    assert len(handshakes) == 3
    handshakes.end("10.0.0.1")
    assert handshakes.begin("10.0.0.1") is not None
    for each in ("10.0.0.1", "10.0.0.1", "10.0.0.2"):
        handshakes.end(each)
    assert len(handshakes) == 0
    assert not handshakes._by_network


class Exhausted(socket.socket):
    """A listening socket of a process that has no descriptor left for a while."""

    failures = 1

    def accept(self):
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EMFILE, "too many open files")
        return super().accept()


def test_a_process_without_descriptors_accepts_again_later(tmp_path, monkeypatch):
    monkeypatch.setattr(tls_port, "EXHAUSTED_SECONDS", 0.01)

    async def test():
        files = TlsFiles(tmp_path)
        opened = []

        class Noted(asyncio.Protocol):
            def connection_made(self, transport):
                opened.append(transport)

        listening = Exhausted()
        listening.setblocking(False)
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        context = server_context(files.cert.read_bytes(), files.key.read_bytes(), None)
        port = TlsPort([listening], Noted, lambda: context, Handshakes(5), lambda: None)
        address = listening.getsockname()
        _, writer = await asyncio.open_connection(*address, ssl=files.client())
        await until(lambda: opened, "the connection")
        assert listening.failures == 0
        port.close()
        with contextlib.suppress(ConnectionError):
            writer.close()
        opened[0].abort()
        with pytest.raises(ConnectionError):
            await asyncio.open_connection(*address)

    run(test())
