"""Anthropic's Messages API through a router on real sockets."""

import fcntl
import os
import socket
import struct
import termios

import orjson
import pytest

from promptgroup_contract.fingerprint import canonical_tools
from promptgroup_contract.table import SlotState
from support.fakeengine import Call, engines, until
from support.tables import SYSTEM, group, revision, slot, table
from support.wire import ask, chat, connected, get, post, routing, run, table_of

VERSION = "anthropic-version: 2023-06-01"
TOOL = {"name": "find", "description": "Finds.", "input_schema": {"type": "object", "properties": {"b": {}, "a": {}}}}
TOOLS = canonical_tools(
    [{"type": "function", "function": {"name": "find", "description": "Finds.", "parameters": TOOL["input_schema"]}}]
)
WHOLE = (
    b'{"id":"msg_1","type":"message","content":[{"type":"tool_use","id":"t","name":"f","input":{"usage":{"input_tokens"'
    b':1}}}],"usage":{"input_tokens":10,"output_tokens":3,"cache_read_input_tokens":90}}'
)


async def whole(call: Call) -> None:
    call.answer(WHOLE)


def streaming(*events: bytes):
    async def stream(call: Call) -> None:
        call.begin_stream()
        for event in events:
            call.chunk(event)
            await call.writer.drain()
        call.send(b"0\r\n\r\n")

    return stream


START = (
    b'event: message_start\ndata: {"type":"message_start","message":{"id":"m","usage":{"input_tokens":10,'
    b'"output_tokens":0,"cache_read_input_tokens":90}}}\n\n'
)
TEXT = b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"text":"x"}}\n\n'
VLLM_END = (
    b'event: message_delta\ndata: {"type":"message_delta","delta":{},"usage":{"input_tokens":10,"output_tokens":3,'
    b'"cache_read_input_tokens":90}}\n\n'
)
SGLANG_END = b'event: message_delta\ndata: {"type":"message_delta","delta":{},"usage":{"output_tokens":3}}\n\n'


def message(user: object = "Hi", *, system: object = SYSTEM, model: str = "llama", **fields: object) -> dict:
    body = {"model": model, "max_tokens": 9, "messages": [{"role": "user", "content": user}]}
    return body | ({"system": system} if system else {}) | fields


def posted(body: dict | bytes, path: str = "/v1/messages") -> bytes:
    return post(body, "x-api-key: sk-1", "anthropic-version: 2023-06-01", path=path)


@pytest.mark.parametrize(
    "behave",
    [
        whole,
        streaming(START, *[TEXT] * 300, VLLM_END),
        streaming(START, *[TEXT] * 300, SGLANG_END),
    ],
    ids=["whole", "streamed by vLLM", "streamed by SGLang"],
)
def test_a_message_goes_to_its_group_as_received_and_its_usage_is_counted(tmp_path, behave):
    async def check():
        async with engines(1, behave) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            system = [{"type": "text", "text": SYSTEM, "cache_control": {"type": "ephemeral", "ttl": "1h"}}]
            data = posted(message(system=system))
            answer = await ask(router.port, data)
            assert (answer.status, answer.served_by.rsplit("/", 1)[1]) == (200, "0")
            (sent,) = engine.requests
            assert (sent.head.path, sent.body) == (b"/v1/messages", data.partition(b"\r\n\r\n")[2])
            assert b"anthropic-version" not in sent.head.fields  # no engine reads it
            text = router.state.exposition(0.0, 0)
            assert 'prompt_tokens_total{group="chat/support"} 100' in text
            assert 'cached_tokens_total{group="chat/support"} 90' in text

    run(check())


def test_by_name_the_declared_prompt_and_tools_are_put_in_front(tmp_path):
    async def check():
        async with engines(1) as (engine,):
            served = table(group("support", revision(tools=TOOLS, slots=(slot(0, address=engine.address),))))
            async with routing(tmp_path, served) as router:
                answer = await ask(router.port, posted(message(system="", model="support")))
                assert answer.status == 200
                sent = last_body(engine)
                assert (sent["model"], sent["system"], sent["tools"]) == ("llama", SYSTEM, [TOOL])

    run(check())


def last_body(engine) -> dict:
    return orjson.loads(engine.requests[-1].body)


def test_tools_match_those_that_chat_completions_declare(tmp_path):
    async def check():
        async with engines(1) as (engine,):
            served = table(group("support", revision(tools=TOOLS, slots=(slot(0, address=engine.address),))))
            async with routing(tmp_path, served) as router:
                answer = await ask(router.port, posted(message(tools=[TOOL])))
                assert answer.served_by.startswith("chat/support/")
                schema = last_body(engine)["tools"][0]["input_schema"]
                assert list(schema["properties"]) == ["a", "b"]
                answer = await ask(router.port, posted(message(tools=[TOOL | {"name": "other"}])))
                assert answer.served_by == "-"

    run(check())


def test_turns_of_a_session_go_to_one_replica(tmp_path):
    async def check():
        async with (
            engines(4, *[whole] * 4) as several,
            routing(tmp_path, table_of(*(each.address for each in several))) as router,
        ):
            turns = [{"role": "user", "content": "A" * 300}]
            served = set()
            for _ in range(5):
                answer = await ask(router.port, posted(message() | {"messages": turns}))
                served.add(answer.served_by)
                turns = [*turns, {"role": "assistant", "content": "Yes"}, {"role": "user", "content": "More"}]
            assert len(served) == 1

    run(check())


def test_tokens_are_counted_by_the_least_loaded_replica_and_leave_no_record(tmp_path):
    async def wait(call: Call) -> None:
        await call.client_gone()

    async def check():
        async with engines(2) as both, routing(tmp_path, table_of(*(each.address for each in both))) as router:
            data = posted(message(), path="/v1/messages/count_tokens")
            first = await ask(router.port, data)
            busy = next(each for each in both if each.requests)
            busy.behave = wait
            async with connected(router.port) as waiting:
                waiting.send(data)
                await until(lambda: len(busy.requests) == 2, "the second request to arrive")
                second = await ask(router.port, data)
                assert first.status == second.status == 200
                assert first.served_by != second.served_by
            assert len(router.state.balancer.locations) == 0
            text = router.state.exposition(0.0, 0)
            assert 'requests_total{group="chat/support",code="200"} 2' in text
            assert "revision_requests_total{" not in text

    run(check())


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        (b"{", 400, "invalid_request_error"),
        (message(model="gpt"), 404, "not_found_error"),
        (message(model="support"), 400, "invalid_request_error"),
        ({"model": "llama"}, 400, "invalid_request_error"),
    ],
)
def test_errors_have_the_apis_own_form(tmp_path, body, status, kind):
    async def check():
        async with routing(tmp_path, table_of("127.0.0.1:1")) as router:
            answer = await ask(router.port, posted(body))
            assert (answer.status, answer.json["type"], answer.json["error"]["type"]) == (status, "error", kind)
            assert answer.json["request_id"].encode() == answer.headers[b"request-id"]
            assert answer.headers[b"request-id"] == answer.headers[b"x-request-id"]

    run(check())


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (get("/v1/models/nope", VERSION), 404),
        (post(b"{}", VERSION, path="/v1/messages/batches"), 404),
        (post(b"{}", VERSION, path="/v1/models"), 405),
    ],
)
def test_paths_of_no_api_answer_in_the_form_of_the_api_that_the_request_names(tmp_path, data, status):
    async def check():
        async with routing(tmp_path, table_of("127.0.0.1:1")) as router:
            answer = await ask(router.port, data)
            assert (answer.status, answer.json["type"]) == (status, "error")
            assert answer.json["request_id"].encode() == answer.headers[b"request-id"]

    run(check())


def test_the_list_of_models_and_a_message_tell_the_id_by_which_the_sdk_knows_the_request(tmp_path):
    async def check():
        async with engines(1, with_ids) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            answer = await ask(router.port, get("/v1/models", VERSION, "x-request-id: mine"))
            assert (answer.status, answer.headers[b"request-id"]) == (200, b"mine")
            async with connected(router.port) as client:
                client.send(posted(message()).replace(b"\r\n\r\n", b"\r\nx-request-id: mine\r\n\r\n", 1))
                raw = await client.answer()
            assert (raw.headers[b"request-id"], raw.headers[b"x-request-id"]) == (b"mine", b"mine")
            answer = await ask(router.port, post(chat(), "x-request-id: mine"))
            assert b"request-id" not in answer.headers

    run(check())


async def with_ids(call: Call) -> None:
    call.answer(WHOLE, 200, "request-id: theirs", "x-request-id: theirs")


def test_no_replica_and_no_answer_have_the_apis_own_form(tmp_path):
    async def check():
        served = table(group("support", revision(slots=(slot(0, SlotState.ABSENT),))))
        async with routing(tmp_path, served) as router:
            answer = await ask(router.port, posted(message()))
            assert (answer.status, answer.json["error"]["type"]) == (503, "api_error")
            assert answer.headers[b"retry-after"] == b"5"
        async with routing(tmp_path, table_of("127.0.0.1:1")) as router:
            answer = await ask(router.port, posted(message()))
            assert (answer.status, answer.json["error"]["type"]) == (502, "api_error")

    run(check())


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [(404, b'{"detail":"Not Found"}', 404), (405, b'{"detail":"Method Not Allowed"}', 404)],
)
@pytest.mark.parametrize("form", ["at once", "in two reads", "in chunks", "to the end"])
def test_an_engine_without_the_api_is_named_and_no_revision_is_blamed(tmp_path, status, body, code, form):
    async def refuse(call: Call) -> None:
        head = b"HTTP/1.1 %d No\r\nContent-Type: application/json\r\n" % status
        if form == "at once":
            call.answer(body, status)
        elif form == "in two reads":
            call.send(head + b"Content-Length: %d\r\n\r\n" % len(body) + body[:9])
            await call.writer.drain()
            await until(lambda: router_read(call), "the router to have read the first part")
            call.send(body[9:])
        elif form == "in chunks":
            call.send(head + b"Transfer-Encoding: chunked\r\n\r\n")
            call.chunk(body[:9])
            call.chunk(body[9:])
            call.send(b"0\r\n\r\n")
        else:
            call.send(head + b"Connection: close\r\n\r\n" + body)
            call.writer.write_eof()

    async def check():
        async with engines(1, refuse) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            async with connected(router.port) as client:
                for _ in range(2):
                    answer = await client.ask(posted(message()))
                    assert (answer.status, answer.json["error"]["type"]) == (code, "not_found_error")
                    assert "does not serve POST /v1/messages" in answer.json["error"]["message"]
            assert router.state.balancer.placed.loads == {}
            assert 'outcome="failed"' not in router.state.exposition(0.0, 0)

    run(check())


def router_read(call: Call) -> bool:
    """Whether the router has taken all that was sent so far."""
    with socket.socket(fileno=os.dup(call.writer.get_extra_info("socket").fileno())) as raw:
        return struct.unpack("i", fcntl.ioctl(raw.fileno(), termios.TIOCOUTQ, b"\0\0\0\0"))[0] == 0


@pytest.mark.parametrize("more", [0, 1000, 300_000])
def test_an_engines_own_errors_are_relayed(tmp_path, more):
    async def refuse(call: Call) -> None:
        call.answer(b'{"type":"error","error":{"type":"NotFoundError","message":"%b"}}' % (b"n" * more), 404)

    async def check():
        async with engines(1, refuse) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            answer = await ask(router.port, posted(message()))
            assert (answer.status, answer.json["error"]["type"]) == (404, "NotFoundError")
            assert len(answer.json["error"]["message"]) == more

    run(check())


def test_a_body_that_is_too_large_is_refused_in_the_apis_own_form(tmp_path):
    async def check():
        async with routing(tmp_path, table_of("127.0.0.1:1"), max_body_bytes=500) as router:
            chunked = posted(b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
            for data in (posted(b"x" * 501), chunked + b"fff\r\n" + b"x" * 0xFFF):
                answer = await ask(router.port, data)
                assert (answer.status, answer.json["error"]["type"]) == (413, "request_too_large")

    run(check())
