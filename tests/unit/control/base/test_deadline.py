import contextlib
import gc
import http.server
import ssl
import subprocess
import sys
import threading
import tracemalloc

import pytest
import urllib3

from promptgroup_operator.base import deadline
from support.hostile import HOSTILE, hostile_server
from support.tlsfiles import TlsFiles

LIMIT = 1 << 16


def ask(address, seconds=0.5):
    manager = deadline.keep(urllib3.PoolManager(retries=False))
    with deadline.within(seconds, LIMIT):
        response = manager.request("GET", f"http://{address}/", timeout=seconds, preload_content=False)
        return response.read(LIMIT + 1, decode_content=False)


@pytest.mark.parametrize("answer", HOSTILE)
def test_an_exchange_ends(answer):
    with hostile_server(HOSTILE[answer]) as address, contextlib.suppress(urllib3.exceptions.HTTPError, OSError):
        assert len(ask(address)) <= LIMIT + 1


def test_what_an_endless_answer_takes_is_bounded_by_the_limit():
    with hostile_server(HOSTILE["a body without end"]) as address:
        tracemalloc.start()
        try:
            ask(address, 30)  # tracing makes it slow: the limit ends it
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


CONNECTS = """
import sys
from concurrent.futures import ThreadPoolExecutor
import urllib3
from promptgroup_operator.base import deadline

url, cert, key = sys.argv[1:]
tls = dict(cert_reqs="CERT_REQUIRED", ca_certs=cert, cert_file=cert, key_file=key)
pools = deadline.keep(urllib3.PoolManager(retries=False, maxsize=16, **tls))

def ask(_):
    with deadline.within(20, 1 << 16):
        return pools.request("GET", url, timeout=20, headers={"Connection": "close"}).status

with ThreadPoolExecutor(16) as threads:
    print(sorted(set(threads.map(ask, range(120)))))
"""


@pytest.mark.heavy
def test_threads_that_connect_at_the_same_time_do_not_share_what_certificates_are_loaded_into(tmp_path):
    """OpenSSL ends the process where they do: an operator began with five watches at once and was gone."""
    files = TlsFiles(tmp_path / "server")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=files.cert)
    context.load_cert_chain(files.cert, files.key)
    context.verify_mode = ssl.CERT_REQUIRED
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler) as server:
        server.RequestHandlerClass.log_message = lambda *_: None
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"https://127.0.0.1:{server.server_port}/"
        argv = [sys.executable, "-c", CONNECTS, url, str(files.cert), str(files.key)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        server.shutdown()
    assert (done.returncode, done.stdout.strip()) == (0, "[200]"), done.stderr[-2000:]
