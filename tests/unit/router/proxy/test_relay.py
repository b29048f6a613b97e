"""Requests through a router on real sockets, to engines that misbehave in every way there is."""

import asyncio
import collections
import contextlib
import gzip
import logging
import random

import pytest

from promptgroup_contract import names
from promptgroup_contract.fingerprint import fingerprint, short
from promptgroup_contract.table import Engine, RoutingTable, Sharing, SlotState, TimeLimits
from promptgroup_router.apis.request import ApiKind, parse
from promptgroup_router.apis.tokens import Tokens
from promptgroup_router.policy.session_locations import SessionLocations
from support.fakeengine import Call, FakeEngine, engines, until, well
from support.routes import route
from support.tables import SYSTEM, group, revision, slot, table
from support.wire import ask, chat, connected, get, post, routing, run, table_of


async def refuse_by_status(call: Call) -> None:
    call.answer(b'{"busy":true}', 503)


async def reset(call: Call) -> None:
    call.reset()


async def garbage(call: Call) -> None:
    call.send(b"SSH-2.0-OpenSSH_9\r\n\r\n")


async def head_then_death(call: Call) -> None:
    call.begin_stream()
    await call.writer.drain()
    call.reset()


async def mid_stream_death(call: Call) -> None:
    call.begin_stream()
    call.chunk(b"data: one\n\n")
    await call.writer.drain()
    await asyncio.sleep(0.05)  # so that the chunk is not lost with the reset
    call.reset()


async def hang(call: Call) -> None:
    await call.client_gone()


async def stream(call: Call) -> None:
    call.begin_stream()
    for word in (b"one", b"two", b"three"):
        call.chunk(b"data: %b\n\n" % word)
        await call.writer.drain()
    usage = b'{"usage":{"prompt_tokens":40,"prompt_tokens_details":{"cached_tokens":32}}}'
    call.chunk(b"data: %b\n\n" % usage)
    call.send(b"0\r\n\r\n")


def table_for(found: list[FakeEngine]) -> RoutingTable:
    return table_of(*(each.address for each in found))


def metrics(router) -> str:
    return router.state.exposition(0.0, 0)


def home_of(router, body) -> int:
    """The slot that a request would go to."""
    sent = parse(ApiKind.CHAT, post(body).split(b"\r\n\r\n", 1)[1])
    found = route(router.state.index, sent, {}, locations=SessionLocations(), tokens=Tokens(), now=0.0)
    return next(found.candidates.order(found.demand.session)).slot


def session_at(router, wanted: int) -> dict:
    """A request whose home is this slot."""
    return next(body for number in range(1000) if home_of(router, body := chat(f"user {number}")) == wanted)


def test_an_answer_passes_through_with_the_routers_headers(tmp_path):
    async def check():
        async with engines(1) as (engine,), routing(tmp_path, table_for([engine])) as router:
            body = chat()
            fields = (
                "Authorization: Bearer k",
                "X-Request-Id: mine",
                "User-Agent: b",
                "X-PromptGroup-Warmup: 1",
                "TE: trailers",
            )
            found = await ask(router.port, post(body, *fields))
            assert (found.status, found.body) == (200, b'{"ok":true}')
            short = revision().fingerprint[:8]
            assert found.served_by == f"chat/support/{short}/0"
            assert found.headers[b"x-promptgroup-revision"] == short.encode()
            assert found.headers[b"x-request-id"] == b"mine"
            assert b"connection" not in found.headers
            (seen,) = engine.requests
            assert b"authorization" not in seen.head.fields
            # engines take it as their own id: one that clients choose could stand for two requests
            assert seen.head.fields[b"x-request-id"].startswith(b"req-")
            assert seen.head.fields[b"user-agent"] == b"b"
            assert seen.head.fields[b"host"] == engine.address.encode()
            assert [each.value for each in seen.head.headers if each.name == b"via"] == [b"1.1 promptgroup"]
            assert not {b"x-promptgroup-warmup", b"te"} & seen.head.fields.keys()
            assert seen.body == post(body).split(b"\r\n\r\n", 1)[1]

    run(check())


def test_each_try_has_an_id_of_its_own_and_the_client_gets_the_requests(tmp_path):
    async def unavailable(call):
        call.answer(b"{}", 503, f"X-Request-Id: {call.request.head.fields[b'x-request-id'].decode()}")

    async def check():
        async with engines(2, unavailable, unavailable) as both, routing(tmp_path, table_for(both)) as router:
            found = await ask(router.port, post(chat()))
            ids = [request.head.fields[b"x-request-id"] for engine in both for request in engine.requests]
            ids.append(found.headers[b"x-request-id"])
            assert len(set(ids)) == 3
            assert all(each.startswith(b"req-") for each in ids)

    run(check())


def test_by_name_the_engine_gets_the_prompt(tmp_path):
    async def check():
        seen = []

        async def look(call):
            seen.append(call.json)
            call.answer()

        async with engines(1, look) as (engine,), routing(tmp_path, table_for([engine])) as router:
            await ask(router.port, post(chat(system="", model="support")))
            await ask(router.port, post(chat(system="", model="whatever"), "X-PromptGroup: chat/support"))
            assert [body["model"] for body in seen] == ["llama", "llama"]
            assert all(body["messages"][0] == {"role": "system", "content": SYSTEM} for body in seen)

    run(check())


def test_a_stream_passes_through_and_its_usage_is_counted(tmp_path):
    async def check():
        async with engines(1, stream) as (engine,), routing(tmp_path, table_for([engine])) as router:
            found = await ask(router.port, post(chat()))
            assert found.headers[b"transfer-encoding"] == b"chunked"
            assert found.body.startswith(b"data: one\n\ndata: two\n\ndata: three\n\n")
            text = metrics(router)
            assert 'cached_tokens_total{group="chat/support"} 32' in text
            assert 'prompt_tokens_total{group="chat/support"} 40' in text
            # 40 tokens for fewer than 80 bytes: the estimate has gone up
            assert router.state.tokens.per_byte("llama") > 0.25
            assert 'requests_total{group="chat/support",code="200"} 1' in text
            assert 'time_to_first_byte_seconds_count{group="chat/support"} 1' in text

    run(check())


def test_a_client_of_http_1_0_gets_a_stream_without_chunks(tmp_path):
    async def check():
        async with (
            engines(1, stream) as (engine,),
            routing(tmp_path, table_for([engine])) as router,
            connected(router.port) as client,
        ):
            found = await client.ask(post(chat(), version="1.0"))
            assert b"transfer-encoding" not in found.headers
            assert found.headers[b"connection"] == b"close"
            assert found.body.startswith(b"data: one\n\ndata: two\n\n")
            assert found.body.endswith(b"}\n\n")

    run(check())


def test_an_answer_that_ends_with_its_connection_ends_the_clients_too(tmp_path):
    async def until_close(call):
        call.send(b"HTTP/1.0 200 OK\r\n\r\nall of it")
        await call.writer.drain()
        call.writer.close()

    async def check():
        async with engines(1, until_close) as (engine,), routing(tmp_path, table_for([engine])) as router:
            found = await ask(router.port, post(chat()))
            assert (found.body, found.headers[b"connection"]) == (b"all of it", b"close")

    run(check())


def test_an_answer_without_a_body(tmp_path):
    async def empty(call):
        call.answer(b"", 400)

    async def check():
        async with (
            engines(1, empty) as (engine,),
            routing(tmp_path, table_for([engine])) as router,
            connected(router.port) as client,
        ):
            for _ in range(2):
                found = await client.ask(post(chat()))
                assert (found.status, found.body) == (400, b"")

    run(check())


@pytest.mark.parametrize("behaviour", [refuse_by_status, reset, garbage, head_then_death])
def test_what_fails_before_the_first_byte_is_tried_at_the_next_slot(tmp_path, behaviour):
    async def check():
        async with engines(2) as found, routing(tmp_path, table_for(found)) as router:
            body = session_at(router, 0)
            found[0].behave = behaviour
            answer = await ask(router.port, post(body))
            assert answer.status == 200
            assert answer.served_by.endswith("/1")
            assert [len(each.requests) for each in found] == [1, 1]
            assert found[0].requests[0].body == found[1].requests[0].body
            assert "retries_total{" in metrics(router)
            assert router.state.balancer.placed.loads == {}

    run(check())


def test_an_engine_that_is_gone_is_left_alone_for_a_while(tmp_path):
    async def check():
        async with engines(2) as found, routing(tmp_path, table_of("127.0.0.1:1", found[1].address)) as router:
            body = session_at(router, 0)
            for _ in range(3):
                answer = await ask(router.port, post(body))
                assert answer.served_by.endswith("/1")
            assert 'retries_total{reason="connection refused"} 1' in metrics(router)
            assert "ejections_total 1" in metrics(router)

    run(check())


def test_when_all_are_gone_the_client_is_told(tmp_path):
    async def check():
        async with (
            routing(tmp_path, table_of("127.0.0.1:1", "127.0.0.1:2")) as router,
            connected(router.port) as client,
        ):
            for _ in range(2):
                answer = await client.ask(post(chat()))
                assert (answer.status, answer.json["error"]["code"]) == (502, "no_answer")
                assert b"x-request-id" in answer.headers

    run(check())


def counted(router, outcome, *, turn="first", how="content", streamed="false"):
    """Whether the router counted one such request of the group's revision, and no other."""
    name = f"{names.METRIC_REVISION_REQUESTS}{{"
    revision = short(fingerprint(SYSTEM))
    kind = f'turn="{turn}",how="{how}",streamed="{streamed}"'
    labels = f'group="chat/support",revision="{revision}",{kind},outcome="{outcome}"'
    return [line for line in metrics(router).splitlines() if line.startswith(name)] == [f"{name}{labels}}} 1"]


async def internal_error(call: Call) -> None:
    call.answer(b'{"error":{}}', 500)


async def not_found(call: Call) -> None:
    call.answer(b'{"error":{}}', 404)


OUTCOMES = {
    "an answer": (stream, "ok"),
    "the client's own fault": (not_found, "ok"),
    "an engine's error": (internal_error, "failed"),
    "none that works": (refuse_by_status, "failed"),
    "none that answers": (reset, "failed"),
    "an answer that is cut": (mid_stream_death, "failed"),
}


@pytest.mark.parametrize("case", OUTCOMES)
def test_what_becomes_of_a_revisions_requests_is_counted(tmp_path, case):
    behaviour, outcome = OUTCOMES[case]

    async def check():
        async with engines(1, behaviour) as (engine,), routing(tmp_path, table_for([engine])) as router:
            async with connected(router.port) as client:
                with contextlib.suppress(EOFError):
                    await client.ask(post(chat(stream=True)))
            assert counted(router, outcome, streamed="true")
            timed = "revision_first_token_seconds_count" in metrics(router)
            assert timed == (behaviour in (stream, mid_stream_death)), "how long an error takes says nothing"

    run(check())


@pytest.mark.parametrize("streamed", [True, False])
def test_the_first_byte_of_an_answer_that_is_not_streamed_is_no_first_token(tmp_path, streamed):
    async def check():
        async with engines(1, stream) as (engine,), routing(tmp_path, table_for([engine])) as router:
            await ask(router.port, post(chat(stream=streamed)))
            assert ("revision_first_token_seconds_count" in metrics(router)) == streamed

    run(check())


def test_a_request_that_names_the_group_and_a_later_turn_are_told_apart(tmp_path):
    async def check():
        async with engines(1, stream) as (engine,), routing(tmp_path, table_for([engine])) as router:
            body = chat(system="", model="support")
            body["messages"][-1]["content"] = "What becomes of an order that nobody collects? " * 9
            body["messages"] += [{"role": "assistant", "content": "well"}, {"role": "user", "content": "and then?"}]
            await ask(router.port, post(body))
            assert counted(router, names.OUTCOME_OK, turn="other", how=names.HOW_NAME), "nobody knows where it was"
            body["messages"] += [{"role": "assistant", "content": "so"}, {"role": "user", "content": "and what else?"}]
            await ask(router.port, post(body))
            kind = f'turn="later",how="{names.HOW_NAME}"'
            assert sum(kind in line for line in metrics(router).splitlines() if "revision_requests_total{" in line) == 1
            found = [line for line in metrics(router).splitlines() if "revision_cached_ratio_bucket" in line]
            found = [line for line in found if kind in line]
            assert [line.rsplit(" ", 1)[1] for line in found if 'le="0.8"' in line or 'le="0.9"' in line] == ["0", "1"]

    run(check())


def test_when_nobody_is_left_to_ask_no_revision_is_at_fault(tmp_path):
    async def check():
        async with routing(tmp_path, table_of()) as router:
            assert (await ask(router.port, post(chat()))).status in (404, 503)
            assert "revision_requests_total{" not in metrics(router)

    run(check())


def test_when_all_say_unavailable_the_client_gets_their_word(tmp_path):
    async def check():
        async with (
            engines(2, refuse_by_status, refuse_by_status) as found,
            routing(tmp_path, table_for(found)) as router,
        ):
            answer = await ask(router.port, post(chat()))
            assert (answer.status, answer.body) == (503, b'{"busy":true}')

    run(check())


def test_an_engine_that_dies_mid_stream_shows_and_is_not_tried_again(tmp_path):
    async def check():
        async with (
            engines(2, mid_stream_death, mid_stream_death) as found,
            routing(tmp_path, table_for(found)) as router,
        ):
            async with connected(router.port) as client:
                with pytest.raises(EOFError, match="data: one"):
                    await client.ask(post(chat()))
            assert sum(len(each.requests) for each in found) == 1
            assert 'answers_cut_total{group="chat/support",by="engine"} 1' in metrics(router)
            assert router.state.balancer.placed.loads == {}

    run(check())


def test_for_a_client_of_http_1_0_a_cut_answer_is_a_reset(tmp_path):
    async def check():
        async with (
            engines(1, mid_stream_death) as (engine,),
            routing(tmp_path, table_for([engine])) as router,
            connected(router.port) as client,
        ):
            client.send(post(chat(), version="1.0"))
            with pytest.raises(ConnectionResetError):
                await client.reader.read()

    run(check())


@pytest.mark.parametrize("how", ["reset", "half-close"])
def test_a_client_that_leaves_ends_its_engines_work(tmp_path, how):
    gone = asyncio.Event()

    async def work(call):
        call.begin_stream()
        call.chunk(b"data: one\n\n")
        await call.client_gone()
        gone.set()

    async def check():
        async with engines(1, work) as (engine,), routing(tmp_path, table_for([engine])) as router:
            async with connected(router.port) as client:
                client.send(post(chat()))
                await client.reader.readuntil(b"data: one\n\n")
                assert len(router.state.balancer.placed.loads) == 1
                if how == "reset":
                    client.leave()
                else:
                    client.writer.write_eof()
                await gone.wait()
            await until(lambda: not router.state.balancer.placed.loads, "the load to be released")
            assert 'answers_cut_total{group="chat/support",by="client"} 1' in metrics(router)

    run(check())


def test_a_client_that_leaves_before_any_answer_ends_its_engines_work(tmp_path):
    gone, asked = asyncio.Event(), asyncio.Event()

    async def work(call):
        asked.set()
        await call.client_gone()
        gone.set()

    async def check():
        async with engines(1, work) as (engine,), routing(tmp_path, table_for([engine])) as router:
            async with connected(router.port) as client:
                client.send(post(chat()))
                await asked.wait()
                client.leave()
                await gone.wait()
            await until(lambda: not router.state.balancer.placed.loads, "the load to be released")

    run(check())


@pytest.mark.heavy
def test_the_deadline_ends_a_request_that_hangs(tmp_path):
    async def check():
        async with engines(2, hang, hang) as found:
            served = table_for(found)
            async with routing(tmp_path, served, request_timeout=0.05) as router:
                answer = await ask(router.port, post(chat()))
                assert (answer.status, answer.json["error"]["code"]) == (504, "timeout")

    run(check())


@pytest.mark.heavy
def test_the_deadline_cuts_an_answer_that_does_not_end(tmp_path):
    async def endless(call):
        call.begin_stream()
        call.chunk(b"data: one\n\n")
        await call.client_gone()

    async def check():
        async with (
            engines(1, endless) as (engine,),
            routing(tmp_path, table_for([engine]), request_timeout=2.0) as router,
            connected(router.port) as client,
        ):
            with pytest.raises(EOFError, match="data: one"):
                await client.ask(post(chat()))

    run(check())


def test_connections_to_engines_are_kept(tmp_path):
    async def check():
        async with engines(1) as (engine,), routing(tmp_path, table_for([engine])) as router:
            async with connected(router.port) as client:
                for _ in range(5):
                    assert (await client.ask(post(chat()))).status == 200
            assert (len(engine.requests), engine.connections) == (5, 1)

    run(check())


def test_a_kept_connection_that_the_engine_has_closed_is_nobodys_failure(tmp_path):
    async def check():
        async with engines(1) as (engine,), routing(tmp_path, table_for([engine])) as router:
            assert (await ask(router.port, post(chat()))).status == 200

            async def close_on_the_second(call):
                # as an engine whose keep-alive ran out just as the request was under way
                engine.behave = well
                call.reset()

            engine.behave = close_on_the_second
            assert (await ask(router.port, post(chat()))).status == 200
            assert (len(engine.requests), engine.connections) == (3, 2)
            assert "retries_total{" not in metrics(router)
            assert "ejections_total 0" in metrics(router)

    run(check())


def test_after_a_stale_connection_no_other_kept_one_is_trusted(tmp_path):
    async def check():
        used = set()
        both = asyncio.Event()

        async def once(call):
            if call.writer in used:
                call.reset()
                return
            used.add(call.writer)
            if len(used) == 2:
                both.set()
            await both.wait()
            call.answer()

        async with engines(1, once) as (engine,), routing(tmp_path, table_for([engine])) as router:
            await asyncio.gather(*(ask(router.port, post(chat())) for _ in range(2)))
            assert (await ask(router.port, post(chat()))).status == 200
            assert (len(engine.requests), engine.connections) == (4, 3)

    run(check())


def test_an_engine_that_asks_to_close_is_not_asked_again_on_that_connection(tmp_path):
    async def last(call):
        call.answer(b"{}", 200, "Connection: close")

    async def check():
        async with engines(1, last) as (engine,), routing(tmp_path, table_for([engine])) as router:
            for _ in range(2):
                answer = await ask(router.port, post(chat()))
                assert b"connection" not in answer.headers
            assert engine.connections == 2

    run(check())


def test_pipelined_requests_are_answered_in_order(tmp_path):
    async def echo(call):
        call.answer(call.json["messages"][-1]["content"].encode())

    async def check():
        async with (
            engines(2, echo, echo) as found,
            routing(tmp_path, table_for(found)) as router,
        ):
            async with connected(router.port) as client:
                client.send(b"".join(post(chat(f"user {number}")) for number in range(10)) + get("/v1/models"))
                answers = [await client.answer() for _ in range(11)]
            assert [answer.body for answer in answers[:10]] == [b"user %d" % number for number in range(10)]
            assert answers[10].json["object"] == "list"

    run(check())


@pytest.mark.heavy
def test_a_slow_client_makes_the_engine_wait_and_memory_stays_bounded(tmp_path):
    sent = 0

    async def flood(call):
        nonlocal sent
        call.begin_stream()
        for _ in range(2000):
            call.chunk(b"x" * 65536)
            sent += 65536
            await call.writer.drain()
        call.send(b"0\r\n\r\n")

    async def check():
        nonlocal sent
        async with engines(1, flood) as (engine,), routing(tmp_path, table_for([engine])) as router:
            async with connected(router.port) as client:
                client.send(post(chat()))
                await client.reader.readexactly(100)
                before = -1
                while before != sent:  # until nothing flows any more
                    before = sent
                    await asyncio.sleep(0.1)
                # what the sockets of both hops and the two ends' buffers hold, far from the 131 MB of the answer
                assert sent < 40_000_000
                while len(await client.reader.read(2**20)) > 0 and sent < 2000 * 65536:
                    pass
            assert sent == 2000 * 65536

    run(check())


def test_sessions_that_move_are_counted(tmp_path):
    async def check():
        async with engines(2) as found, routing(tmp_path, table_for(found)) as router:
            body = session_at(router, 0)
            assert (await ask(router.port, post(body))).served_by.endswith("/0")
            found[0].behave = reset
            assert (await ask(router.port, post(body))).served_by.endswith("/1")
            assert 'sessions_moved_total{group="chat/support"} 1' in metrics(router)
            (move,) = (await ask(router.admin_port, get("/table"))).json["moves"]
            assert (move["from"][-2:], move["to"][-2:]) == ("/0", "/1")

    run(check())


def test_without_a_match_any_replica_of_the_model_serves_and_the_prompt_is_listed(tmp_path):
    async def check():
        async with engines(1) as (engine,), routing(tmp_path, table_for([engine])) as router:
            answer = await ask(router.port, post(chat(system="Something else.")))
            assert (answer.status, answer.served_by) == (200, "-")
            assert b"x-promptgroup-revision" not in answer.headers
            listed = (await ask(router.admin_port, get("/unmatched"))).json["unmatched"]
            assert [(each["model"], each["requests"], each["systemBytes"]) for each in listed] == [("llama", 1, 15)]
            assert 'unmatched_requests_total{model="llama"} 1' in metrics(router)

    run(check())


def test_requests_that_miss_a_declared_prompt_are_one_line_each_that_says_how(tmp_path):
    rules = "You translate between English, German and French. " * 60

    declared = SYSTEM + " Answer briefly, and in the language of the customer." * 5

    async def check():
        async with engines(1) as (engine,):
            own = group(
                "support", revision(declared, (slot(0, address=engine.address),), engine=Engine(prefill_rate=9000))
            )
            async with routing(tmp_path, table(own)) as router:
                await misses(router)

    async def misses(router):
        for second in range(10):
            for system in (f"2026-11-24 12:00:{second:02}\n{rules}", f"12:00:{second:02} {declared}"):
                await ask(router.port, post(chat(system=system)))
            await ask(router.port, post(chat(system=declared[:60] + "ver" + declared[63:])))
        listed = (await ask(router.admin_port, get("/unmatched"))).json["unmatched"]
        told = [(each["requests"], each["texts"] > 1, each.get("varies"), each.get("near")) for each in listed]
        assert {each["prefillTokensPerSecond"] for each in listed} == {9000}
        assert told == [
            (10, True, {"rule": "timestamp", "atByte": 0}, None),
            (10, True, {"rule": "time", "atByte": 0}, {"group": "chat/support", "atByte": 0}),
            (10, False, None, {"group": "chat/support", "atByte": 60}),
        ]

    run(check())


def test_text_of_undeclared_prompts_is_kept_only_where_it_is_asked_for_and_of_none_that_is_nearly_declared(tmp_path):
    async def check():
        for number, (limit, told) in enumerate(((0, []), (9, ["Something"]))):
            folder = tmp_path / str(number)
            folder.mkdir()
            async with engines(1) as (engine,), routing(folder, table_for([engine]), keep_samples=limit) as router:
                for system in ("Something else.", SYSTEM[:-4] + "GmbH"):
                    await ask(router.port, post(chat(system=system)))
                listed = (await ask(router.admin_port, get("/unmatched"))).json["unmatched"]
                assert len(listed) == 2
                assert [each["sample"]["system"] for each in listed if "sample" in each] == told

    run(check())


def test_a_lent_replica_answers_with_the_revision_that_the_request_belongs_to(tmp_path):
    async def check():
        async with engines(1) as (engine,):
            alike = {"engine": Engine(settings="one")}
            absent = (slot(0, SlotState.ABSENT),)
            mine = group("mine", revision("You are mine.", absent, **alike))
            lender = group("lender", revision("You lend.", (slot(0, address=engine.address),), **alike))
            async with routing(tmp_path, table(mine, lender)) as router:
                answer = await ask(router.port, post(chat(system="You are mine.")))
                assert answer.served_by.startswith("chat/lender/")
                own = mine.revisions[0].fingerprint[:8]
                assert answer.headers[b"x-promptgroup-revision"] == own.encode()

    run(check())


def test_a_table_without_groups_serves_nothing_and_says_so(tmp_path):
    async def check():
        async with routing(tmp_path, RoutingTable()) as router:
            answer = await ask(router.port, post(chat()))
            assert (answer.status, answer.json["error"]["code"]) == (404, "model_not_found")

    run(check())


def test_a_request_keeps_the_table_it_began_with(tmp_path):
    async def check():
        go = asyncio.Event()

        async def wait(call):
            await go.wait()
            call.answer()

        async with engines(1, wait) as (engine,), routing(tmp_path, table_for([engine])) as router:
            async with connected(router.port) as client:
                client.send(post(chat()))
                await until(lambda: engine.requests, "the request")
                router.state.install(table(group("other", revision("x", (slot(0),)))), "file", 0.0)
                go.set()
                assert (await client.answer()).served_by.startswith("chat/support/")
            assert router.state.balancer.placed.loads == {}

    run(check())


def test_many_clients_at_once(tmp_path):
    async def check():
        async with engines(3) as found, routing(tmp_path, table_for(found)) as router:

            async def one(number: int) -> None:
                with contextlib.suppress(ConnectionError):
                    async with connected(router.port) as client:
                        for turn in range(5):
                            assert (await client.ask(post(chat(f"user {number}")))).status == 200, turn

            await asyncio.gather(*(one(number) for number in range(40)))
            assert sum(len(each.requests) for each in found) == 200
            assert router.state.balancer.placed.loads == {}

    run(check())


def test_neither_prompts_nor_keys_reach_logs_metrics_or_the_admin_port(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)

    async def check():
        async with engines(2, reset, garbage) as found, routing(tmp_path, table_for(found)) as router:
            fields = ("Authorization: Bearer hush-key", "X-Session-Id: hush-session", "Cookie: hush-cookie")
            for body in (chat("hush user"), chat(system="hush system"), chat("hush", model="support")):
                await ask(router.port, post(body, *fields))
            await ask(router.port, post(b'{"hush', *fields))
            shown = [(await ask(router.admin_port, get(path))).body for path in ("/metrics", "/table", "/unmatched")]
            told = b"".join(shown).decode() + "".join(str(vars(record)) for record in caplog.records)
            assert "refused" in told
            assert "engine failed" in told
            assert "hush" not in told
            assert SYSTEM not in told

    run(check())


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(3))
def test_any_mixture_of_misbehaviour_leaves_nothing_behind(tmp_path, seed):
    """Engines fail in random ways, clients leave at random: answers are whole or visibly cut, and the books close."""
    chance = random.Random(seed)
    ways = [well, well, stream, stream, refuse_by_status, reset, garbage, head_then_death, mid_stream_death]

    async def misbehave(call):
        await chance.choice(ways)(call)

    async def check():
        outcomes = collections.Counter()
        async with engines(4, *[misbehave] * 4) as found, routing(tmp_path, table_for(found)) as router:

            async def one(number: int) -> None:
                for _ in range(6):
                    async with connected(router.port) as client:
                        client.send(post(chat(f"user {number}")) * chance.choice([1, 1, 2]))
                        if chance.random() < 0.2:
                            await asyncio.sleep(chance.random() * 0.01)
                            client.leave()
                            outcomes["left"] += 1
                            continue
                        try:
                            answer = await client.answer()
                        except (EOFError, ConnectionError):
                            outcomes["cut"] += 1
                        else:
                            whole = (b'{"ok":true}', b'{"busy":true}')
                            assert answer.status in (200, 502, 503)
                            assert answer.status == 502 or answer.body in whole or answer.body.endswith(b"}\n\n")
                            outcomes[answer.status] += 1

            await asyncio.gather(*(one(number) for number in range(30)))
            await until(lambda: not router.state.balancer.placed.loads, f"the loads to be released: {outcomes}")
            assert outcomes[200] > 60
            assert outcomes["cut"] > 0
            assert not router._connections._connecting

    run(check())


def test_a_request_that_misses_a_group_by_a_little_is_counted_with_where_it_leaves_the_prompt(tmp_path):
    async def check():
        async with engines(1) as (engine,), routing(tmp_path, table_for([engine])) as router:
            at = len(SYSTEM) - 4
            await ask(router.port, post(chat(system=SYSTEM[:at] + "Inc.")))
            await ask(router.port, post(chat(system="Something else.")))
            await ask(router.port, post(chat()))
            text = metrics(router)
            assert 'near_miss_requests_total{group="chat/support"} 1' in text
            assert f'near_miss_offset_bytes{{group="chat/support"}} {at}' in text

    run(check())


def test_a_request_that_misses_a_group_which_serves_no_other_is_refused_and_counted_all_the_same(tmp_path):
    async def check():
        served = table(group("support", sharing=Sharing.DEDICATED))
        async with routing(tmp_path, served) as router:
            answer = await ask(router.port, post(chat(system=SYSTEM[:-4] + "Inc.")))
            assert (answer.status, answer.json["error"]["code"]) == (503, "no_replica")
            assert "for prompts which no group declares" in answer.json["error"]["message"]
            assert 'near_miss_requests_total{group="chat/support"} 1' in metrics(router)

    run(check())


OPENINGS = {
    "chat": (
        "/v1/chat/completions",
        chat(stream=True),
        [b": ping\n\n", b'data: {"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'],
        b'data: {"choices":[{"delta":{"content":"Hi"},"finish_reason":null}]}\n\n',
    ),
    "messages": (
        "/v1/messages",
        {"model": "support", "max_tokens": 9, "stream": True, "messages": [{"role": "user", "content": "Hi"}]},
        [b'event: message_start\ndata: {"type":"message_start","message":{}}\n\n', b'data: {"type":"ping"}\n\n'],
        b'data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"Hi"}}\n\n',
    ),
    "responses": (
        "/v1/responses",
        {"model": "support", "stream": True, "input": "Hi"},
        [b'data: {"type":"response.created","response":{}}\n\n', b'data: {"type":"response.in_progress"}\n\n'],
        b'data: {"type":"response.output_text.delta","delta":"Hi"}\n\n',
    ),
}


@pytest.mark.parametrize("api", OPENINGS)
def test_a_stream_that_is_lost_before_its_first_token_is_answered_by_another_engine(tmp_path, api):
    path, body, opening, token = OPENINGS[api]
    calls = []

    async def opens_and_dies_once(call):
        calls.append(call)
        call.begin_stream()
        for event in opening:
            call.chunk(event)
            await call.writer.drain()
        if len(calls) == 1:
            await asyncio.sleep(0.05)  # so that the events are not lost with the reset
            call.reset()
            return
        call.chunk(token)
        call.send(b"0\r\n\r\n")

    async def check():
        behave = opens_and_dies_once
        async with engines(2, behave, behave) as both, routing(tmp_path, table_for(both)) as router:
            found = await ask(router.port, post(body, path=path))
            assert found.status == 200
            assert found.body == b"".join(opening) + token
            assert len(calls) == 2

    run(check())


def test_a_compressed_stream_is_not_held_until_a_token_is_seen_in_it(tmp_path):
    gate = asyncio.Event()

    async def compresses(call):
        call.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\n")
        call.send(b"Transfer-Encoding: chunked\r\n\r\n")
        call.chunk(gzip.compress(b'data: {"choices":[{"delta":{"content":"Hi"}}]}\n\n'))
        await gate.wait()
        call.send(b"0\r\n\r\n")

    async def check():
        async with (
            engines(1, compresses) as (engine,),
            routing(tmp_path, table_of(engine.address)) as router,
            connected(router.port) as client,
        ):
            client.send(post(chat(stream=True), "Accept-Encoding: gzip"))
            assert await client.reader.readuntil(b"\r\n\r\n") != b""
            assert b"\x1f\x8b" in await client.reader.read(100)
            gate.set()

    run(check())


@pytest.mark.parametrize("api", OPENINGS)
def test_a_stream_that_is_lost_after_its_first_token_is_cut(tmp_path, api):
    path, body, opening, token = OPENINGS[api]

    async def dies(call):
        call.begin_stream()
        for event in (*opening, token):
            call.chunk(event)
        await call.writer.drain()
        await asyncio.sleep(0.05)  # so that the events are not lost with the reset
        call.reset()

    async def check():
        async with engines(2, dies, dies) as both, routing(tmp_path, table_for(both)) as router:
            with pytest.raises(EOFError):
                await ask(router.port, post(body, path=path))
            assert sum(len(each.requests) for each in both) == 1

    run(check())


@pytest.mark.heavy
def test_an_engine_that_never_begins_is_given_up_after_the_groups_limit(tmp_path):
    async def check():
        async with engines(2, hang, stream) as both:
            slots = tuple(slot(number, address=each.address) for number, each in enumerate(both))
            limits = TimeLimits(first_token=2)
            served = table(group("support", revision(slots=slots), time_limits=limits))
            async with routing(tmp_path, served) as router:
                found = await ask(router.port, post(session_at(router, 0) | {"stream": True}))
                assert (found.status, found.served_by[-2:]) == (200, "/1")
                assert 'retries_total{reason="no token in time"} 1' in metrics(router)

    run(check())


@pytest.mark.heavy
def test_a_stream_that_stalls_is_cut_after_the_groups_limit(tmp_path):
    async def stalls(call):
        call.begin_stream()
        call.chunk(b"data: one\n\n")
        await call.client_gone()

    async def check():
        async with engines(1, stalls) as (engine,):
            served = table(
                group("support", revision(slots=(slot(0, address=engine.address),)), time_limits=TimeLimits(idle=1))
            )
            async with routing(tmp_path, served) as router:
                with pytest.raises(EOFError):
                    await ask(router.port, post(chat(stream=True)))

    run(check())
