"""Every endpoint of the admin port by who asks."""

import asyncio
import contextlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_router.admin import PATHS, PURGE_PATH, Admin, KeptAnswers
from promptgroup_router.admin_guard import AdminGuard
from promptgroup_router.base.errors import ApiError
from promptgroup_router.decision.composition import router_state
from promptgroup_router.http11.http1 import parse_request
from promptgroup_router.http11.reader import HttpRequest
from promptgroup_router.proxy.downstream import ClientListener
from support.tables import table
from support.wire import connected, run

TOKEN = "a-token-of-32-bytes-for-the-tests"
POSTS = {b"/explain": b'{"body": "{}"}', PURGE_PATH: b'{"all": true}'}
REBOUND = ["evil.example", "evil.example:9090", "router.chat", "localhost.evil.example", "127.0.0.1.evil.example",
           "svc.evil.example", "evilsvc.example.", "1.2.3.4.5", "promptgroup-router.chat.svc.evil.example"]  # fmt: skip
OWN = ["127.0.0.1", "127.0.0.1:9090", "[::1]:9090", "localhost", "LOCALHOST:1", "a.localhost", "10.0.3.7:9090",
       "[fd00::7]", "promptgroup-router", "promptgroup-router-peers.chat.svc", "router", "allowed.example",
       "promptgroup-router.chat.svc.cluster.local.", "Allowed.Example:9090"]  # fmt: skip


def admin(guard):
    state = router_state()
    state.install(table(), "file", 0.0)

    async def purge(_what):
        return 1

    return Admin(state, lambda: 0, time.monotonic, guard, KeptAnswers(purge, lambda: b""))


@contextlib.asynccontextmanager
async def admin_port(token_file=None, hosts=("allowed.example",)):
    clients = ClientListener(admin(AdminGuard(hosts, token_file)), time.monotonic, 100_000)
    server = await asyncio.get_running_loop().create_server(clients.accept, "127.0.0.1", 0)
    try:
        async with connected(server.sockets[0].getsockname()[1]) as client:
            yield client
    finally:
        server.close()
        clients.abort()
        await clients.wait_closed()


def request(path: bytes, host: str = "127.0.0.1", **fields: str) -> bytes:
    body = POSTS.get(path, b"")
    named = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
    head = f"{'POST' if body else 'GET'} {path.decode()} HTTP/1.1\r\nhost: {host}\r\n{named}"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def test_names_that_can_be_rebound_reach_no_endpoint_and_own_names_reach_all():
    async def check():
        async with admin_port() as client:
            for path in (*PATHS, b"/nothing"):
                for host in REBOUND:
                    answer = await client.ask(request(path, host))
                    assert (answer.status, answer.json["error"]["code"]) == (403, "not_allowed"), (path, host)
            for path in PATHS:
                for host in OWN:
                    assert (await client.ask(request(path, host))).status in (200, 503), (path, host)
                # through the API server, whose own host comes with the request
                asked = request(path, "abc.eks.example", sec_promptgroup_client="cli")
                assert (await client.ask(asked)).status in (200, 503)

    run(check())


def test_pages_of_another_origin_post_nothing():
    foreign = [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:8000"},
        {"origin": "http://127.0.0.1", "sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"sec_fetch_site": "Cross-Site", "sec_promptgroup_client": "cli"},
    ]

    async def check():
        async with admin_port() as client:
            for path in POSTS:
                for fields in foreign:
                    assert (await client.ask(request(path, **fields))).status == 403, (path, fields)
                own = {"origin": "http://127.0.0.1", "sec_fetch_site": "same-origin"}
                assert (await client.ask(request(path, **own))).status == 200

    run(check())


def test_a_change_needs_the_token_and_nothing_else_does(tmp_path):
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")

    async def check():
        async with admin_port(file) as client:
            for path in PATHS:
                for token in ("", TOKEN[:-1], TOKEN + "x", "é"):
                    expected = (403,) if path == PURGE_PATH else (200, 503)
                    answer = await client.ask(request(path, x_promptgroup_admin_token=token))
                    assert answer.status in expected, (path, token)
                assert (await client.ask(request(path))).status in expected
                assert (await client.ask(request(path, x_promptgroup_admin_token=TOKEN))).status in (200, 503)
            file.write_text("another")  # a Secret that was changed
            assert (await client.ask(request(PURGE_PATH, x_promptgroup_admin_token=TOKEN))).status == 403
            assert (await client.ask(request(PURGE_PATH, x_promptgroup_admin_token="another"))).status == 200

    run(check())


def asked(**fields: str) -> HttpRequest:
    head = b"".join(b"%b: %b\r\n" % (name.replace("_", "-").encode(), value.encode()) for name, value in fields.items())
    return HttpRequest(parse_request(b"POST /responses/purge HTTP/1.1\r\n" + head + b"\r\n"), bytearray())


@pytest.mark.parametrize(
    ("address", "taken"),
    [("127.0.0.1", True), ("127.1.2.3", True), ("::1", True), ("::ffff:127.0.0.1", True), ("10.0.0.7", False),
     ("fd00::7", False), ("::ffff:10.0.0.7", False), ("", False), ("fe80::1%eth0", False)],
)  # fmt: skip
@pytest.mark.parametrize("configured", [False, True])
def test_without_a_token_changes_come_from_loopback_alone(address, taken, configured, tmp_path):
    # a Secret that is not there yet is none
    guard = AdminGuard((), tmp_path / "missing" if configured else None)
    guard.check(asked(host="localhost"), address, changes=False)
    with contextlib.nullcontext() if taken else pytest.raises(ApiError, match="port-forward"):
        guard.check(asked(host="localhost"), address, changes=True)


@pytest.mark.parametrize("content", [None, b"", b" \n", b"x" * 5000], ids=["a folder", "empty", "blank", "long"])
def test_a_token_that_cannot_be_used_lets_nobody_change_anything(content, tmp_path):
    file = tmp_path / "token"
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    given = (content or b"").decode().strip()[:100]
    with pytest.raises(ApiError, match="need the admin token"):
        AdminGuard((), file).check(asked(host="localhost", x_promptgroup_admin_token=given), "127.0.0.1", changes=True)


@given(st.from_regex(r"[a-z0-9.-]{1,40}\.(com|dev|example|net|localhostx|svcx)\.?(:[0-9]{1,4})?", fullmatch=True))
def test_no_name_below_a_public_domain_is_served(host):
    try:
        request = asked(host=host)
    except Exception:  # noqa: BLE001 - the reader refuses it already
        return
    with pytest.raises(ApiError):
        AdminGuard().check(request, "127.0.0.1", changes=False)


def test_a_refusal_names_the_host_and_the_way_out():
    with pytest.raises(ApiError) as refused:
        AdminGuard().check(asked(host="evil.example"), "127.0.0.1", changes=False)
    assert "'evil.example'" in str(refused.value)
    assert "--admin-hosts" in str(refused.value)
    assert refused.value.code == "not_allowed"
