"""Towards real TLS servers on loopback, which are stand-in engines of a few lines."""

import contextlib
import http.server
import socket
import threading

import pytest

from promptgroup_operator.base.errors import EngineError
from promptgroup_operator.engines.connections import PLAIN, EngineAccess, EnginePools, Trust
from promptgroup_operator.engines.engine import EngineClient
from promptgroup_operator.engines.group_engines import GroupEngines
from promptgroup_operator.world.snapshot import ContainerId, Key
from support.enginecerts import NAME, EngineCerts

GROUP, CONTAINER = Key("chat", "support"), ContainerId("containerd://a")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.asked.append(self.headers.get("authorization"))
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def engine(context):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads, server.asked = True, []
    server.handle_error = lambda *_: None
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}", server.asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def client(access):
    found = EngineClient(access)
    try:
        yield found
    finally:
        found.close()


def test_an_engine_is_asked_over_tls_with_its_credential(tmp_path):
    certs = EngineCerts(tmp_path)
    with (
        engine(certs.server()) as (address, asked),
        client(EngineAccess("key", Trust(certs.ca, NAME))) as engines,
    ):
        assert [engines.text(address) for _ in range(2)] == ["ok", "ok"]
        assert asked == ["Bearer key"] * 2


def test_without_a_declared_name_the_certificate_must_have_the_engines_address(tmp_path):
    certs = EngineCerts(tmp_path, hosts=(), addresses=("127.0.0.1",))
    with engine(certs.server()) as (address, _), client(EngineAccess("", Trust(certs.ca, ""))) as engines:
        assert engines.text(address) == "ok"


@pytest.mark.parametrize("case", ["another authority", "another name", "no authority", "garbage"])
def test_an_engine_that_is_not_trusted_gets_nothing(tmp_path, case):
    certs, other = EngineCerts(tmp_path / "certs"), EngineCerts(tmp_path / "other")
    trust = {
        "another authority": Trust(other.ca, NAME),
        "another name": Trust(certs.ca, "other.chat.svc"),
        "no authority": Trust("", NAME),
        "garbage": Trust("garbage", NAME),
    }[case]
    with engine(certs.server()) as (address, asked), client(EngineAccess("key", trust)) as engines:
        with pytest.raises(EngineError) as found:
            engines.text(address)
        assert found.value.untrusted
        assert asked == []


def test_an_engine_that_speaks_plain_http_gets_nothing(tmp_path):
    certs = EngineCerts(tmp_path)
    with engine(None) as (address, asked), client(EngineAccess("key", Trust(certs.ca, NAME))) as engines:
        with pytest.raises(EngineError, match="does not speak TLS") as found:
            engines.text(address)
        assert not found.value.untrusted
        assert asked == []


def test_an_engine_that_asks_for_nothing_is_asked_by_plain_http():
    with engine(None) as (address, asked), client(PLAIN) as engines:
        assert engines.text(address) == "ok"
        assert asked == [None]


def test_an_authority_that_is_withdrawn_ends_kept_connections(tmp_path):
    certs, other = EngineCerts(tmp_path / "certs"), EngineCerts(tmp_path / "other")
    with (
        engine(certs.server()) as (address, asked),
        contextlib.closing(GroupEngines()) as engines,
    ):
        for authority, fails in ((certs.ca, False), (other.ca, True)):
            engines.authorize(GROUP, {CONTAINER: EngineAccess("", Trust(authority, NAME))})
            with pytest.raises(EngineError) if fails else contextlib.nullcontext():
                assert engines.of(GROUP, CONTAINER).text(address) == "ok"
        assert len(asked) == 1


def test_an_engine_that_never_ends_its_handshake_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr("promptgroup_operator.engines.engine.ASK_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        access = EngineAccess("", Trust(EngineCerts(tmp_path).ca, NAME))
        with client(access) as engines, pytest.raises(EngineError):
            engines.text(address)


def test_connections_that_nobody_verifies_any_more_are_closed(tmp_path):
    pools, trust = EnginePools(), Trust(EngineCerts(tmp_path).ca, NAME)
    assert pools._manager(trust) is pools._manager(trust)
    pools.keep([trust, None])
    assert list(pools._secure) == [trust]
    pools.keep([])
    assert not pools._secure
    pools.close()
