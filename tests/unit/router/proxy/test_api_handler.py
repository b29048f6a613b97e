import json
import socket
import struct

import pytest

from promptgroup_contract.table import SlotState
from support.accesslog import access_lines
from support.fakeengine import engines, until
from support.tables import group, revision, slot, table
from support.wire import ask, chat, connected, get, post, routing, run, table_of


def test_what_the_port_does_not_serve(tmp_path):
    async def check():
        async with routing(tmp_path, table_of("127.0.0.1:1")) as router, connected(router.port) as client:
            answer = await client.ask(get("/v1/nothing"))
            assert (answer.status, answer.json["error"]["code"]) == (404, "not_found")
            answer = await client.ask(get("/v1/chat/completions?x=y"))
            assert (answer.status, answer.headers[b"allow"]) == (405, b"POST")
            answer = await client.ask(post(b"{}", path="/v1/models"))
            assert (answer.status, answer.headers[b"allow"]) == (405, b"GET, HEAD")
            answer = await client.ask(get("/v1/models"))
            assert answer.status == 200
            assert answer.headers[b"x-request-id"].startswith(b"req-")
            assert b"request-id" not in answer.headers
            assert answer.headers[b"date"].endswith(b" GMT")
            answer = await client.ask(b"OPTIONS * HTTP/1.1\r\nHost: r\r\n\r\n")
            assert (answer.status, answer.body, answer.headers[b"content-length"]) == (200, b"", b"0")
            assert b"POST" in answer.headers[b"allow"]
            text = router.state.exposition(0.0, 0)
            assert 'requests_total{group="-",code="404"} 1' in text
            assert 'requests_total{group="-",code="405"} 2' in text

    run(check())


def test_bad_bodies_are_refused_with_an_id_and_the_connection_stays(tmp_path):
    async def check():
        async with (
            routing(tmp_path, table_of("127.0.0.1:1"), max_body_bytes=500) as router,
            connected(router.port) as client,
        ):
            for body, status, code in (
                (b"{", 400, "invalid_json"),
                ({"model": "llama"}, 400, "invalid_value"),
                (chat(model="gpt"), 404, "model_not_found"),
                (chat(model="support"), 400, "prompt_given_twice"),
            ):
                answer = await client.ask(post(body))
                assert (answer.status, answer.json["error"]["code"]) == (status, code)
                assert answer.headers[b"x-request-id"].startswith(b"req-")
            answer = await client.ask(post(b"x" * 501))
            assert answer.status == 413
            assert await client.closed() == b""

    run(check())


def test_requests_that_are_never_whole_have_an_id_too_and_are_counted_and_logged(tmp_path):
    async def check():
        async with routing(tmp_path, table_of("127.0.0.1:1"), max_body_bytes=500, max_connections=2) as router:
            with access_lines() as lines:
                long, anthropic = post(b"x" * 501, "X-Request-Id: mine"), post(b"x" * 501, path="/v1/messages")
                assert (await ask(router.port, long)).headers[b"x-request-id"] == b"mine"
                answer = await ask(router.port, anthropic)
                assert answer.headers[b"request-id"].decode() == answer.json["request_id"] != ""
                assert (await ask(router.port, b"no request\r\n\r\n")).status == 400
                await until(lambda: not router._clients.connections, "the connections to end")
                async with connected(router.port), connected(router.port):
                    await until(lambda: len(router._clients.connections) == 2, "the connections")
                    assert (await ask(router.port, get("/v1/models"))).status == 503
            values = router.state.metrics.requests.values
            assert values == {("-", "413"): 2, ("-", "400"): 1, ("-", "503"): 1}
            assert [(event, line["http.response.status_code"]) for event, line in lines] == [
                ("refused", status) for status in (413, 413, 400, 503)
            ]
            assert lines[0][1]["http.request.id"] == "mine"

    run(check())


def test_a_refused_upload_does_not_hide_the_refusal(tmp_path):
    """A client that sends all of a large body, and only then reads, must find the answer."""

    async def check():
        async with (
            routing(tmp_path, table_of("127.0.0.1:1"), max_body_bytes=500) as router,
            connected(router.port) as client,
        ):
            client.send(post(b"x" * 3_000_000))
            await client.writer.drain()
            assert (await client.answer()).status == 413

    run(check())


def test_chunked_requests_and_http_1_0(tmp_path):
    async def check():
        async with engines(1) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            body = json.dumps(chat()).encode()
            head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n\r\n"
            sent = head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
            assert (await ask(router.port, sent)).status == 200
            assert engine.requests[0].body == body
            assert b"transfer-encoding" not in engine.requests[0].head.fields
            answer = await ask(router.port, post(body, version="1.0"))
            assert (answer.status, answer.headers[b"connection"]) == (200, b"close")

    run(check())


def test_no_replica_is_503_with_a_time_to_retry(tmp_path):
    async def check():
        served = table(group("support", revision(slots=(slot(0, SlotState.ABSENT),))))
        async with routing(tmp_path, served) as router:
            answer = await ask(router.port, post(chat()))
            assert (answer.status, answer.headers[b"retry-after"]) == (503, b"5")
            assert answer.json["error"]["code"] == "no_replica"

    run(check())


def test_smuggling_is_refused_and_the_connection_closed(tmp_path):
    async def check():
        async with engines(1) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            async with connected(router.port) as client:
                smuggled = b"0\r\n\r\n" + get("/v1/models")
                head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n"
                head += b"Content-Length: 5\r\n\r\n"
                answer = await client.ask(head + smuggled)
                assert (answer.status, answer.headers[b"connection"]) == (400, b"close")
                assert await client.closed() == b""
            assert engine.requests == []

    run(check())


def test_clients_that_reset_at_any_moment_do_no_harm(tmp_path):
    async def check():
        async with engines(1) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            data = post(chat())
            for size in (0, 10, len(data) - 1, len(data)):
                with socket.create_connection(("127.0.0.1", router.port)) as raw:
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    raw.sendall(data[:size])
            assert (await ask(router.port, data)).status == 200

    run(check())


def test_the_port_for_requests_says_whether_they_are_served(tmp_path):
    async def check():
        async with engines(1) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            answer = await ask(router.port, get("/health"))
            assert (answer.status, answer.body) == (200, b"ok\n")
            assert (await ask(router.port, get("/health/"))).status == 200
            router.state.untried.add("issuers")
            assert (await ask(router.port, get("/health"))).status == 503
            router.state.untried.clear()
            router.state.draining = True
            answer = await ask(router.port, get("/health"))
            assert (answer.status, answer.body) == (503, b"draining\n")
            router.state.draining = False
            assert engine.requests == []

    run(check())


@pytest.mark.parametrize("path", ["//v1/chat/completions", "/v1/chat/completions/", "/v1///chat//completions//"])
def test_an_engine_gets_the_path_as_it_is_served(tmp_path, path):
    async def check():
        async with engines(1) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            assert (await ask(router.port, post(chat(), path=path))).status == 200
            assert [request.head.path for request in engine.requests] == [b"/v1/chat/completions"]
            assert (await ask(router.port, get("//v1/models/?a=//"))).status == 200
            assert {(await ask(router.port, get(other))).status for other in ("/", "//", "/v1/../v1/models")} == {404}

    run(check())
