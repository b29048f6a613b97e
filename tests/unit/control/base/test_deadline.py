import contextlib
import gc
import threading
import tracemalloc

import pytest
import urllib3

from promptgroup_operator.base import deadline
from support.hostile import HOSTILE, hostile_server

LIMIT = 1 << 16


def ask(address):
    manager = deadline.keep(urllib3.PoolManager(retries=False))
    with deadline.within(0.5, LIMIT):
        response = manager.request("GET", f"http://{address}/", timeout=0.5, preload_content=False)
        return response.read(LIMIT + 1, decode_content=False)


@pytest.mark.parametrize("answer", HOSTILE)
def test_an_exchange_ends(answer):
    with hostile_server(HOSTILE[answer]) as address, contextlib.suppress(urllib3.exceptions.HTTPError, OSError):
        assert len(ask(address)) <= LIMIT + 1


def test_what_an_endless_answer_takes_is_bounded_by_the_limit():
    with hostile_server(HOSTILE["a body without end"]) as address:
        tracemalloc.start()
        try:
            ask(address)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    gc.collect()
    assert peak < 4 << 20


def twice(connection, over):
    for _ in range(2):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        connection.recv(1 << 20)


def test_outside_of_it_sockets_have_their_own_timeouts():
    with hostile_server(twice) as address:
        manager = deadline.keep(urllib3.PoolManager(retries=False))
        with deadline.within(5, LIMIT):
            assert manager.request("GET", f"http://{address}/", timeout=5).data == b"ok"
        assert manager.request("GET", f"http://{address}/", timeout=5).data == b"ok"


def test_what_is_read_after_the_exchange_keeps_the_connections_own_timeout():
    """The head of a watch has a deadline, its events come whenever something happens."""
    past = threading.Event()

    def slowly(connection, over):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
        past.wait(5)
        connection.sendall(b"ok")

    with hostile_server(slowly) as address:
        manager = deadline.keep(urllib3.PoolManager(retries=False))
        with deadline.within(0.2, LIMIT):
            response = manager.request("GET", f"http://{address}/", timeout=5, preload_content=False)
        assert response.connection.sock.gettimeout() == 5
        past.set()
        assert response.read() == b"ok"
