import asyncio
import gc
import os
import signal
import time
from dataclasses import replace

import orjson
import pytest

from promptgroup_contract.caller_rules import CallerLimits, CallerRules
from promptgroup_contract.table import ModelAlias
from promptgroup_router.apis import structure
from promptgroup_router.apis.endpoints import ENDPOINTS
from promptgroup_router.proxy import large_request
from promptgroup_router.reading.body_reader import BodyReader
from support.answered import keeping
from support.fakeengine import Call, engines
from support.tables import SYSTEM, group, revision, slot, table
from support.wire import ask, chat, connected, get, post, routing, run, table_of

LONG = "word " * 200_000


def reader_of(router):
    return router._reader


async def started(router):
    """A router whose process runs."""
    assert (await ask(router.port, post(b"{" * 300_000))).status == 400
    return reader_of(router)


async def until(done, pause=0.01):
    while not done():  # noqa: ASYNC110 - the router has no event for it
        await asyncio.sleep(pause)


def large(**fields):
    body = chat(**fields)
    body["messages"][-1]["content"] = LONG
    return body


@pytest.mark.heavy
@pytest.mark.parametrize("form", ["length", "chunked"])
def test_a_large_body_is_forwarded_byte_for_byte(tmp_path, form):
    async def check():
        async with engines(1) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            body = b" " + orjson.dumps(large())
            assert structure.is_large(body)
            sent = post(body)
            if form == "chunked":
                head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n\r\n"
                sent = head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
            answer = await ask(router.port, sent)
            assert (answer.status, answer.served_by[:13]) == (200, "chat/support/")
            assert engine.requests[0].body == body
            assert reader_of(router).pid is not None

    run(check())


@pytest.mark.heavy
def test_a_large_body_goes_past_the_response_cache_and_says_so(tmp_path):
    async def check():
        async with engines(1) as (engine,), routing(tmp_path, keeping(engine.address)) as router:
            body = large(temperature=0, cache={"ttl": 60})
            answer = await ask(router.port, post(body))
            assert (answer.status, answer.headers[b"cache-status"]) == (200, b"promptgroup; fwd=bypass; detail=large")
            assert orjson.loads(engine.requests[0].body) == large(temperature=0)
            kept_only = await ask(router.port, post(body, "Cache-Control: only-if-cached"))
            assert (kept_only.status, kept_only.json["error"]["code"]) == (504, "not_cached")
            wrong = await ask(router.port, post(body | {"cache": {"ttl": "long"}}))
            assert (wrong.status, wrong.json["error"]["param"]) == (400, "cache")
            assert len(engine.requests) == 1
            assert router.state.metrics.responses.values == {("chat/support", "bypass"): 1}

    run(check())


@pytest.mark.heavy
def test_a_large_body_by_name_gets_the_prompt_in_front(tmp_path):
    async def check():
        async with engines(1) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            body = {"model": "support", "messages": [{"role": "user", "content": LONG}]}
            assert (await ask(router.port, post(body))).status == 200
            sent = orjson.loads(engine.requests[0].body)
            assert sent["model"] == "llama"
            assert [each["content"] for each in sent["messages"]] == [SYSTEM, LONG]
            refused = await ask(router.port, post(large(model="support")))
            assert (refused.status, refused.json["error"]["code"]) == (400, "prompt_given_twice")

    run(check())


def test_tools_of_a_large_body_are_put_in_order(tmp_path):
    async def check():
        async with engines(1) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            tools = [{"type": "function", "function": {"name": "f", "description": "d"}}]
            assert (await ask(router.port, post(large(tools=tools)))).status == 200
            assert b'{"function":{"description":"d","name":"f"},"type":"function"}' not in orjson.dumps(tools)
            assert orjson.loads(engine.requests[0].body)["messages"][-1]["content"] == LONG

    run(check())


@pytest.mark.heavy
def test_small_requests_are_answered_while_a_large_one_is_read(tmp_path):
    async def check():
        async with engines(1) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            reader = await started(router)
            os.kill(reader.pid, signal.SIGSTOP)
            async with connected(router.port) as slow, connected(router.port) as fast:
                slow.send(post(large()))
                for _ in range(5):
                    assert (await fast.ask(post(chat()))).status == 200
                os.kill(reader.pid, signal.SIGCONT)
                assert (await slow.answer()).status == 200

    run(check())


@pytest.mark.heavy
def test_a_client_that_leaves_while_its_body_is_read_stops_nobody(tmp_path):
    async def check():
        async with engines(1) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            reader = await started(router)
            pid = reader.pid
            os.kill(pid, signal.SIGSTOP)
            async with connected(router.port) as one, connected(router.port) as two, connected(router.port) as three:
                for client in (one, two, three):
                    client.send(post(large()))
                await until(lambda: router._clients.budget.used > 3 * len(LONG))
                one.leave()
                two.leave()
                await until(lambda: router._clients.budget.used < 2 * len(LONG))
                os.kill(pid, signal.SIGCONT)
                assert (await three.answer()).status == 200
            assert (len(engine.requests), reader.pid) == (1, pid)

    run(check())


@pytest.mark.heavy
def test_one_that_waits_too_long_for_its_turn_is_told_so(tmp_path, monkeypatch):
    async def check():
        async with engines(1) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            reader = await started(router)
            monkeypatch.setattr(large_request, "TURN_SECONDS", 0.0)
            os.kill(reader.pid, signal.SIGSTOP)
            async with connected(router.port) as client:
                answer = await client.ask(post(large()))
                assert (answer.status, answer.json["error"]["code"]) == (503, "overloaded")
                os.kill(reader.pid, signal.SIGCONT)
                assert (await client.ask(get("/v1/models"))).status == 200

    run(check())


@pytest.mark.heavy
def test_a_process_that_dies_costs_the_request_that_it_read_and_no_other(tmp_path):
    async def check():
        async with engines(1) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            reader = await started(router)
            os.kill(reader.pid, signal.SIGSTOP)
            async with connected(router.port) as one, connected(router.port) as two:
                one.send(post(large()))
                await until(lambda: router._clients.budget.used > len(LONG))
                two.send(post(large()))
                os.kill(reader.pid, signal.SIGKILL)
                assert (await one.answer()).status == 503
                assert (await two.answer()).status == 200

    run(check())


@pytest.mark.heavy
def test_a_large_body_holds_the_loop_for_a_part_of_what_its_parse_takes(tmp_path):
    ids = orjson.dumps({"model": "nobody", "prompt": list(range(1000)) * 1000})
    began = time.thread_time()
    ENDPOINTS[b"/v1/completions"].parse(ids)
    parse = time.thread_time() - began

    async def check():
        async with routing(tmp_path, table_of("127.0.0.1:1"), max_body_bytes=2**23) as router:
            await started(router)
            longest = 0.0
            asking = asyncio.ensure_future(ask(router.port, post(ids, path="/v1/completions")))
            while not asking.done():
                before = time.thread_time()
                await asyncio.sleep(0.001)
                longest = max(longest, time.thread_time() - before)
            assert (await asking).json["error"]["code"] == "model_not_found"
            held.append(longest)

    held = []
    for _ in range(3):
        run(check())
    assert min(held) < parse / 3


async def message(call: Call) -> None:
    call.answer(b'{"id":"msg_%d","type":"message","content":[]}' % len(call.request.body))


@pytest.mark.heavy
def test_a_large_request_is_told_why_its_prompt_was_not_found(tmp_path):
    async def check():
        async with engines(1, message) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            body = {
                "model": "llama",
                "max_tokens": 4,
                "system": SYSTEM,
                "messages": [{"role": "user", "content": LONG}],
            }

            async def told(text, previous):
                body["messages"][0]["content"] = text
                asked = orjson.dumps(body | {"diagnostics": {"previous_message_id": previous}})
                assert structure.is_large(asked)
                answer = await ask(router.port, post(asked, path="/v1/messages"))
                assert answer.status == 200
                assert "diagnostics" not in orjson.loads(engine.requests[-1].body)
                return answer.json["id"], answer.json["diagnostics"]["cache_miss_reason"], answer.headers

            first, reason, headers = await told(LONG, None)
            assert (reason, headers[b"x-promptgroup-cache-miss"]) == (None, b"none;forecast")
            _, reason, headers = await told(LONG + "!", first)
            assert reason["type"] == "messages_changed"
            assert headers[b"x-promptgroup-cache-miss"].startswith(b"messages_changed;tokens=")
            _, reason, _ = await told(LONG, "msg_unknown")
            assert reason["type"] == "previous_message_not_found"

    run(check())


def test_a_large_body_by_an_alias_names_the_model(tmp_path):
    async def check():
        async with engines(1) as (engine,):
            groups = table_of(engine.address).groups
            aliased = table(replace(groups[0], aliases=(ModelAlias("gpt"),)))
            async with routing(tmp_path, aliased) as router:
                assert (await ask(router.port, post(large(model="gpt")))).status == 200
                assert orjson.loads(engine.requests[0].body) == large()

    run(check())


def in_flight(router):
    return [each.in_flight for each in router.state.features.limiter._accounts.values()]


@pytest.mark.heavy
@pytest.mark.parametrize("end", ["refused", "left"])
def test_a_request_that_ends_before_an_engine_is_asked_is_in_flight_no_more(tmp_path, monkeypatch, end):
    writing = BodyReader.written

    def never_written(reader, *of):
        os.kill(reader.pid, signal.SIGSTOP)
        return writing(reader, *of)

    async def check():
        rules = CallerRules(default=CallerLimits(in_flight=2))
        async with engines(1) as (engine,):
            limited = table(group("support", revision(slots=(slot(0, address=engine.address),)), callers=rules))
            async with routing(tmp_path, limited) as router:
                reader = await started(router)
                if end == "refused":
                    for _ in range(2):
                        refused = await ask(router.port, post(large(model="support")))
                        assert (refused.status, refused.json["error"]["code"]) == (400, "prompt_given_twice")
                else:
                    body = {"model": "support", "messages": [{"role": "user", "content": LONG}]}
                    async with connected(router.port) as client:
                        with monkeypatch.context() as patched:
                            patched.setattr(BodyReader, "written", never_written)
                            client.send(post(body))
                            await until(lambda: in_flight(router) == [1])
                            client.leave()
                            await until(lambda: not router._clients.connections)
                        os.kill(reader.pid, signal.SIGCONT)
                await until(lambda: in_flight(router) == [0])
                assert engine.requests == []
                assert (await ask(router.port, post(chat()))).status == 200

    run(check())


@pytest.mark.heavy
def test_bodies_of_clients_that_left_before_their_turn_are_kept_no_longer(tmp_path):
    async def check():
        async with engines(1) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            reader = await started(router)
            os.kill(reader.pid, signal.SIGSTOP)
            sent = post(large())
            for _ in range(8):
                async with connected(router.port) as client:
                    client.send(sent)
                    await until(lambda: router._clients.budget.used > len(LONG))
                await until(lambda: router._clients.budget.used == 0)
            await asyncio.sleep(0)  # what was cancelled ends in the next turn of the loop
            gc.collect()
            held = [each for each in gc.get_objects() if isinstance(each, large_request.LargeRequest)]
            os.kill(reader.pid, signal.SIGCONT)
            assert len(held) <= 2, "the one that is read is there until it has been, and perhaps the last that came"
            assert (await ask(router.port, post(chat()))).status == 200

    run(check())


@pytest.mark.heavy
def test_a_large_body_that_is_nested_too_deeply_is_refused_and_the_process_lives(tmp_path):
    async def check():
        async with engines(1) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            reader = await started(router)
            pid = reader.pid
            for depth in (251, 252, 253, 254):
                deep = b'{"a":' * depth + b"1" + b"}" * depth
                body = b'{"model":"llama","messages":[{"role":"user","content":"%b","more":%b}]}' % (
                    LONG.encode(),
                    deep,
                )
                assert (await ask(router.port, post(body))).status in (200, 400)
            assert reader.pid == pid

    run(check())
