"""Requests of a group that keeps answers, through a router on real sockets."""

import asyncio
import sys
from dataclasses import replace

import orjson
import pytest

from promptgroup_contract.caller_rules import CallerRules, EngineField
from promptgroup_contract.table import CacheScope, Engine, ModelAlias, OwnInstructions
from promptgroup_router.http11.http1 import MAX_HEAD
from promptgroup_router.http11.reader import MAX_INTERIM
from promptgroup_router.response_cache.purge import Purge
from support.accesslog import access_lines
from support.answered import CACHING, Oracle, exact, keeping, said
from support.fakeengine import engines, until, well
from support.tables import SYSTEM, group, revision, slot, table
from support.wire import ask, connected, post, routing, run, table_of

KEY, STATUS = b"x-promptgroup-cache-key", b"cache-status"


def served(tmp_path, test, **fields):
    """Run a test against a router and one engine."""

    async def inside() -> None:
        oracle = Oracle()
        async with engines(1, oracle) as (engine,), routing(tmp_path, keeping(engine.address, **fields)) as router:
            await test(router, oracle, engine)

    run(inside())


@pytest.mark.parametrize("streamed", [False, True])
def test_a_request_that_was_answered_before_gets_the_same_answer_without_an_engine(tmp_path, streamed):
    async def test(router, oracle, _engine):
        first = await ask(router.port, post(exact(stream=streamed)))
        again = await ask(router.port, post(exact(stream=streamed)))
        assert oracle.inferences == 1
        assert said(first.body) == said(again.body) == "Hi #1"
        assert first.headers[STATUS] == b"promptgroup; fwd=miss"
        assert again.headers[STATUS].startswith(b"promptgroup; hit; ttl=3")
        assert again.headers[b"age"] == b"0"
        assert first.headers[KEY] == again.headers[KEY]
        assert first.headers[b"x-promptgroup-revision"] == again.headers[b"x-promptgroup-revision"]
        assert first.headers[b"content-type"] == again.headers[b"content-type"]

    served(tmp_path, test)


def test_who_asks_about_the_engines_cache_goes_past_this_one(tmp_path):
    async def test(router, _oracle, engine):
        body, asks = exact(cache={"ttl": 60}), "x-promptgroup-diagnostics: "
        answer = await ask(router.port, post(body, asks))
        assert (answer.status, answer.headers[STATUS]) == (200, b"promptgroup; fwd=bypass; detail=diagnostics")
        assert b"x-promptgroup-cache-miss" in answer.headers
        assert orjson.loads(engine.requests[0].body) == exact()
        kept_only = await ask(router.port, post(body, asks, "Cache-Control: only-if-cached"))
        assert (kept_only.status, kept_only.json["error"]["code"], len(engine.requests)) == (504, "not_cached", 1)

    served(tmp_path, test)


@pytest.mark.parametrize("streamed", [False, True])
def test_an_answer_that_is_given_again_has_a_new_id_and_marks_its_tokens_as_cached(tmp_path, streamed):
    async def test(router, _oracle, _engine):
        first = await ask(router.port, post(exact(stream=streamed)))
        again = await ask(router.port, post(exact(stream=streamed)))
        third = await ask(router.port, post(exact(stream=streamed)))
        assert b'"chatcmpl-engine-00000001"' in first.body
        assert b'"cached_tokens":32' in first.body
        assert b'"chatcmpl-engine-00000001"' not in again.body
        assert b'"id":"chatcmpl-req-' in again.body
        assert b'"cached_tokens":40' in again.body
        assert third.body != again.body, "ids are new each time"
        assert first.body.count(b"\n\n") == again.body.count(b"\n\n")

    served(tmp_path, test)


@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        ({"temperature": 0.7}, b"sampling"),
        ({"temperature": None}, b"sampling"),
        ({"seed": 7, "temperature": 1}, b"sampling"),
        ({"n": 2}, b"choices"),
    ],
)
def test_what_has_no_single_answer_goes_past_the_cache(tmp_path, fields, detail):
    async def test(router, oracle, _engine):
        for _ in range(2):
            answer = await ask(router.port, post(exact(**fields)))
            assert answer.headers[STATUS] == b"promptgroup; fwd=bypass; detail=" + detail
        assert oracle.inferences == 2

    served(tmp_path, test)


def test_a_body_that_goes_past_the_cache_is_passed_on_byte_for_byte(tmp_path):
    async def test(router, _oracle, engine):
        spelled = orjson.dumps(exact(temperature=1), option=orjson.OPT_INDENT_2)
        answer = await ask(router.port, post(spelled))
        assert answer.status == 200
        assert engine.requests[-1].body == spelled

    served(tmp_path, test)


@pytest.mark.parametrize(("allowed", "inferences"), [((), 1), ((EngineField.SESSION_PARAMS,), 4)])
def test_sessions_that_an_engine_keeps_share_no_answers(tmp_path, allowed, inferences):
    async def test(router, oracle, engine):
        for session in ("ann", "ben", "ann", "ben"):
            answer = await ask(router.port, post(exact(session_params={"id": session})))
            assert (b"detail=session" in answer.headers[STATUS]) is bool(allowed)
        assert oracle.inferences == inferences
        assert all((b"session_params" in request.body) is bool(allowed) for request in engine.requests)

    served(tmp_path, test, callers=CallerRules(allowed=frozenset(allowed)))


def test_a_trusted_seed_is_enough(tmp_path):
    async def test(router, oracle, _engine):
        for seed in (1, 1, 2):
            await ask(router.port, post(exact(temperature=1, seed=seed)))
        assert oracle.inferences == 2

    served(tmp_path, test, trust_seed=True)


def test_nothing_is_kept_while_the_engine_settings_are_unknown(tmp_path):
    async def test(router, oracle, _engine):
        for _ in range(2):
            await ask(router.port, post(exact()))
        assert oracle.inferences == 2

    served(tmp_path, test, settings="")


def test_a_client_can_forbid_to_keep_and_ask_for_a_new_answer(tmp_path):
    async def test(router, oracle, engine):
        await ask(router.port, post(exact(), "Cache-Control: no-store"))
        await ask(router.port, post(exact(cache={"no-store": True})))
        assert oracle.inferences == 2
        await ask(router.port, post(exact()))
        new = await ask(router.port, post(exact(), "Cache-Control: no-cache"))
        assert oracle.inferences == 4
        assert new.headers[STATUS] == b"promptgroup; fwd=request"
        kept = await ask(router.port, post(exact(cache={"ttl": 60, "no-cache": False})))
        assert said(kept.body) == "Hi #4"
        assert all(b'"cache"' not in request.body for request in engine.requests)
        only = await ask(router.port, post(exact("else"), "Cache-Control: only-if-cached"))
        assert only.status == 504
        wrong = await ask(router.port, post(exact(cache="no")))
        assert (wrong.status, wrong.json["error"]["param"]) == (400, "cache")

    served(tmp_path, test)


def test_a_shorter_lifetime_holds_for_what_is_kept_already(tmp_path):
    async def test(router, oracle, engine):
        await ask(router.port, post(exact()))
        wall = router.answers.wall
        router.answers.wall = lambda: wall() + 3600
        router.state.install(keeping(engine.address, ttl=4200, version="v2"), "test", 0.0)
        kept = await ask(router.port, post(exact()))
        assert kept.headers[STATUS].startswith(b"promptgroup; hit; ttl=")
        assert int(kept.headers[STATUS].rpartition(b"=")[2]) <= 600, "an hour of it has passed"
        router.state.install(keeping(engine.address, ttl=60, version="v3"), "test", 0.0)
        only = await ask(router.port, post(exact(), "Cache-Control: only-if-cached"))
        assert only.status == 504
        assert said((await ask(router.port, post(exact()))).body) == "Hi #2"
        assert oracle.inferences == 2

    served(tmp_path, test, ttl=7 * 86400)


def test_engines_are_asked_for_plain_answers_since_several_clients_read_them(tmp_path):
    async def test(router, _oracle, engine):
        await ask(router.port, post(exact(), "Accept-Encoding: gzip"))
        assert b"accept-encoding" not in engine.requests[0].head.fields

    served(tmp_path, test)


def test_credentials_that_only_the_engine_checks_part_callers(tmp_path):
    async def test(router, oracle, _engine):
        for header in ("Authorization: Bearer a", "Authorization: Bearer b", "X-Other: 1", "Authorization: Bearer a"):
            await ask(router.port, post(exact(), header))
        assert oracle.inferences == 3

    served(tmp_path, test)


def test_callers_who_cannot_be_told_apart_share_nothing_where_each_has_its_own_answers(tmp_path):
    async def test(router, oracle, _engine):
        for _ in range(2):
            answer = await ask(router.port, post(exact()))
            assert answer.headers[STATUS].endswith(b"detail=caller")
        for _ in range(2):
            await ask(router.port, post(exact(), "Authorization: Bearer a"))
        assert oracle.inferences == 3

    served(tmp_path, test, scope=CacheScope.CALLER)


def test_equal_requests_at_once_are_one_inference_and_all_get_the_events_as_they_come(tmp_path):
    async def test(router, oracle, _engine):
        oracle.gate.clear()
        async with connected(router.port) as first, connected(router.port) as second:
            first.send(post(exact(stream=True)))
            await until(lambda: oracle.inferences, "the engine to be asked")
            second.send(post(exact(stream=True)))
            early = await second.reader.readuntil(b"Hi")
            assert b"collapsed" in early, "the first event came before the answer was whole"
            oracle.gate.set()
            whole = await first.answer()
            rest = await second.reader.readuntil(b"0\r\n\r\n")
            assert said(whole.body) == "Hi #1"
            assert b"[DONE]" in rest
            assert b'"cached_tokens":40' in rest
        assert oracle.inferences == 1

    served(tmp_path, test)


def test_a_flight_goes_on_without_the_client_that_began_it_and_ends_with_the_last(tmp_path):
    async def test(router, oracle, engine):
        oracle.gate.clear()
        async with connected(router.port) as first, connected(router.port) as second:
            first.send(post(exact(stream=True)))
            await first.reader.readuntil(b"Hi")
            second.send(post(exact(stream=True)))
            await second.reader.readuntil(b"Hi")
            first.leave()
            await until(lambda: not router.state.metrics.cut.values.get(("chat/support", "engine")), "nothing")
            oracle.gate.set()
            assert b"[DONE]" in await second.reader.readuntil(b"0\r\n\r\n")
        oracle.gate.clear()
        async with connected(router.port) as alone:
            alone.send(post(exact("other", stream=True)))
            await alone.reader.readuntil(b"other")
        await until(lambda: len(engine.open) == 0 or router.state.balancer.placed.loads == {}, "the engine to be left")
        oracle.gate.set()
        later = await ask(router.port, post(exact("other", stream=True)))
        assert said(later.body) == "other #3"

    served(tmp_path, test)


async def error_within_a_stream(call):
    call.begin_stream()
    call.chunk(b'data: {"id":"a","choices":[{"index":0,"delta":{"content":"half"},"finish_reason":null}]}\n\n')
    call.chunk(b'data: {"error":{"message":"EngineCore encountered an issue","code":500}}\n\n')
    call.chunk(b"data: [DONE]\n\n")
    call.send(b"0\r\n\r\n")


async def bad_request(call):
    call.answer(b'{"error":{"message":"too long"}}', 400)


async def no_reason(call):
    call.answer(b'{"id":"a","choices":[{"index":0,"message":{"content":"x"},"finish_reason":null}]}')


@pytest.mark.parametrize("behaviour", [bad_request, no_reason, well])
def test_an_answer_that_is_no_whole_success_is_passed_on_and_not_kept(tmp_path, behaviour):
    async def inside() -> None:
        async with engines(1, behaviour) as (engine,), routing(tmp_path, keeping(engine.address)) as router:
            for _ in range(2):
                answer = await ask(router.port, post(exact()))
                assert b"hit" not in answer.headers[STATUS]
            assert len(engine.requests) == 2

    run(inside())


def test_a_stream_that_ends_with_an_engines_error_is_passed_on_up_to_it_and_not_kept(tmp_path):
    async def inside() -> None:
        async with engines(1, error_within_a_stream) as (engine,), routing(tmp_path, keeping(engine.address)) as router:
            for _ in range(2):
                async with connected(router.port) as client:
                    client.send(post(exact(stream=True)))
                    answer = await client.closed()
                assert b"EngineCore encountered an issue" in answer
                assert b"[DONE]" not in answer
                assert b"; hit" not in answer
            assert len(engine.requests) == 2

    run(inside())


def test_the_access_log_has_a_line_for_whoever_asks_no_engine(tmp_path):
    async def test(router, _oracle, _engine):
        with access_lines() as lines:
            for _ in range(2):
                await ask(router.port, post(exact()))
            await ask(router.port, post({"model": "nobody"}))
        (_, computed), (event, hit), (last, refused) = lines
        assert (event, hit["promptgroup.response_cache"], hit["promptgroup.group"]) == ("served", "hit", "chat/support")
        assert (hit["http.response.status_code"], "promptgroup.slot" in hit) == (200, False)
        assert "promptgroup.response_cache" not in computed
        assert (last, refused["http.response.status_code"], refused["http.request.id"][:4]) == ("refused", 400, "req-")
        assert refused["error.type"]

    served(tmp_path, test)


def test_a_purge_forgets_what_is_kept_and_keeps_nothing_that_began_before_it(tmp_path):
    async def test(router, oracle, _engine):
        first = await ask(router.port, post(exact()))
        key = bytes.fromhex(first.headers[KEY].decode())
        assert router.answers.purge(Purge(key=key)) == 1
        await ask(router.port, post(exact()))
        assert oracle.inferences == 2
        oracle.gate.clear()
        running = asyncio.ensure_future(ask(router.port, post(exact("late"))))
        await until(lambda: oracle.inferences == 3, "the engine to be asked")
        router.answers.purge(Purge(group="chat/support"))
        oracle.gate.set()
        assert said((await running).body) == "late #3"
        assert said((await ask(router.port, post(exact("late")))).body) == "late #4"

    served(tmp_path, test)


def test_the_admin_port_purges(tmp_path):
    async def test(router, oracle, _engine):
        first = await ask(router.port, post(exact()))
        key = first.headers[KEY].decode()
        for body, purged in (({"key": key}, 1), ({"group": "chat/support"}, 0), ({"all": True}, 0)):
            told = await ask(router.admin_port, post(body, path="/responses/purge"))
            assert (told.status, told.json) == (200, {"purged": purged})
        assert (await ask(router.admin_port, post({}, path="/responses/purge"))).status == 400
        await ask(router.port, post(exact()))
        assert oracle.inferences == 2

    served(tmp_path, test)


def test_a_purge_is_done_once_the_store_has_purged_too(tmp_path):
    class Shelf:
        def __init__(self):
            self.purged = []

        def get(self, name, found):
            return None

        def put(self, answer):
            pass

        async def purge(self, purge):
            self.purged.append(purge)
            if len(self.purged) > 1:
                raise OSError("it is away")

    async def test(router, _oracle, _engine):
        router.answers.store = Shelf()
        await ask(router.port, post(exact()))
        request = post({"all": True}, path="/responses/purge")
        assert (await ask(router.admin_port, request)).json == {"purged": 1}
        assert router.answers.store.purged == [Purge()]
        refused = await ask(router.admin_port, request)
        assert (refused.status, refused.json["error"]["code"]) == (503, "overloaded")
        assert "it is away" in refused.json["error"]["message"]

    served(tmp_path, test)


def test_old_clients_get_what_their_version_can_read(tmp_path):
    async def test(router, _oracle, _engine):
        for _ in range(2):
            async with connected(router.port) as client:
                client.send(post(exact(stream=True), version="1.0"))
                got = await client.closed()
                assert got.startswith(b"HTTP/1.1 200")
                assert b"transfer-encoding" not in got
                assert got.endswith(b"data: [DONE]\n\n")

    served(tmp_path, test)


def test_results_are_counted(tmp_path):
    async def test(router, _oracle, _engine):
        for body in (exact(), exact(), exact(temperature=1)):
            await ask(router.port, post(body))
        found = router.state.metrics
        assert found.responses.values == {
            ("chat/support", "miss"): 1,
            ("chat/support", "hit"): 1,
            ("chat/support", "bypass"): 1,
        }
        assert found.requests.values["chat/support", "200"] == 3
        router.answers.tell()
        assert found.responses_kept.values == {("chat/support",): 1}
        assert orjson.dumps(found.responses_bytes.values["chat/support",])

    served(tmp_path, test)


CACHE = ("/response_cache/", "/flights/", "/semantic/")


@pytest.mark.interpreted
@pytest.mark.parametrize("keeps", [False, True])
def test_a_request_of_a_group_that_keeps_no_answers_runs_no_line_of_the_cache(tmp_path, keeps):
    """The cost of the cache for those who do not use it is no call at all; ratios of CPU would hide a small one."""

    async def inside() -> None:
        called: set[str] = set()

        def profile(frame, event, _argument) -> None:
            if event == "call" and any(f"promptgroup_router{folder}" in frame.f_code.co_filename for folder in CACHE):
                called.add(f"{frame.f_code.co_filename}:{frame.f_code.co_name}")

        async with engines(1, Oracle()) as (engine,):
            served = keeping(engine.address) if keeps else table_of(engine.address)
            async with routing(tmp_path, served) as router:
                router.core._on_tick = lambda _now: None  # what is told every second is told of all groups
                router.state.features.secrets.clear()  # which Secrets to read is asked for each table
                sys.setprofile(profile)
                try:
                    for streamed in (False, True):
                        assert (await ask(router.port, post(exact(stream=streamed)))).status == 200
                finally:
                    sys.setprofile(None)
        assert bool(called) is keeps, called

    run(inside())


def test_a_request_by_an_alias_gets_the_answer_of_one_by_the_model(tmp_path):
    async def inside():
        oracle = Oracle()
        async with engines(1, oracle) as (engine,):
            (kept,) = keeping(engine.address).groups
            async with routing(tmp_path, table(replace(kept, aliases=(ModelAlias("gpt"),)))) as router:
                first = await ask(router.port, post(exact(model="gpt")))
                again = await ask(router.port, post(exact()))
                assert first.headers[KEY] == again.headers[KEY]
                assert oracle.inferences == 1
                assert said(first.body) == said(again.body)

    run(inside())


WHOLE = b'{"id":"a","choices":[{"text":"x","finish_reason":"stop","message":{"content":"x"}}],"usage":{}}'


@pytest.mark.parametrize("messages", [5, False, "x", {}])
def test_a_field_of_another_api_is_a_part_of_the_key_whatever_it_is(tmp_path, messages):
    async def answers(call):
        call.answer(WHOLE)

    async def check():
        async with engines(1, answers) as (engine,), routing(tmp_path, keeping(engine.address)) as router:
            body = {"model": "llama", "prompt": SYSTEM + " hello", "temperature": 0}
            for sent in (messages, messages, [9], [8]):
                asked = await ask(router.port, post(body | {"messages": sent}, path="/v1/completions"))
                assert asked.status == 200
            assert len(engine.requests) == 3

    run(check())


@pytest.mark.heavy
@pytest.mark.parametrize("depth", range(246, 257))
def test_a_request_is_answered_however_deep_its_body_is(tmp_path, depth):
    async def test(router, _oracle, engine):
        deep = b'{"a":' * depth + b"1" + b"}" * depth
        answer = await ask(router.port, post(orjson.dumps(exact())[:-1] + b',"more":%b}' % deep))
        assert (answer.status, len(engine.requests)) in ((200, 1), (400, 0))
        assert answer.headers.get(STATUS, b"").startswith(b"promptgroup; fwd=") == (answer.status == 200)

    served(tmp_path, test)


@pytest.mark.parametrize("long", ["id", "head"])
def test_a_long_head_harms_nobody_who_waits_for_the_same_answer(tmp_path, long):
    gate = asyncio.Event()

    async def answers(call):
        await gate.wait()
        fill = b"" if long == "id" else b"x-fill: %b\r\n" % (b"r" * (MAX_HEAD - 100))
        call.send(b"HTTP/1.1 200 OK\r\n%bcontent-length: %d\r\n\r\n" % (fill, len(WHOLE)) + WHOLE)

    async def check():
        named = ["x-request-id: " + "r" * (MAX_HEAD - 200)] if long == "id" else []
        async with (
            engines(1, answers) as (engine,),
            routing(tmp_path, keeping(engine.address)) as router,
            connected(router.port) as one,
            connected(router.port) as two,
        ):
            one.send(post(exact(), "Connection: close", *named))
            await until(lambda: engine.requests, "the first request")
            two.send(post(exact(), "Connection: close"))
            await until(lambda: 'result="collapsed"' in router.state.metrics.text(), "the second to wait for it")
            gate.set()
            for each in (one, two):
                assert (await each.closed()).startswith(b"HTTP/1.1 200 ")

    run(check())


EXAMPLE = [{"role": "user", "content": "Q1"}, {"role": "assistant", "content": "A1"}]
BROUGHT = {
    "a text": (revision(), {}, b"/v1/completions", {"prompt": f"{SYSTEM} Hi"}),
    "instructions": (
        revision(),
        {"own_instructions": OwnInstructions.APPEND},
        b"/v1/chat/completions",
        {"messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Hi"}]},
    ),
    "examples": (
        revision("", messages=[("user", "Q1"), ("assistant", "A1")]),
        {},
        b"/v1/chat/completions",
        {"messages": [*EXAMPLE, {"role": "user", "content": "Hi"}]},
    ),
}


@pytest.mark.parametrize("brought", BROUGHT)
def test_a_prompt_that_a_request_brings_and_one_that_is_put_in_front_of_it_are_two(tmp_path, brought):
    """Of one body, with the name of the model or of the group, engines make two prompts."""
    of, fields, path, body = BROUGHT[brought]

    async def inside():
        async def complete(call):
            choice = {"index": 0, "text": "x", "message": {"content": "x"}, "finish_reason": "stop"}
            call.answer(orjson.dumps({"id": "a", "choices": [choice]}))

        async with engines(1, complete) as (engine,):
            of_engine = replace(of, slots=(slot(0, address=engine.address),), engine=Engine("e1"))
            keeps = group("support", of_engine, responses=CACHING, **fields)
            async with routing(tmp_path, table(keeps)) as router:
                answers = [
                    await ask(router.port, post(body | {"model": model, "temperature": 0}, path=path.decode()))
                    for model in ("llama", "support", "llama", "support")
                ]
                assert [answer.status for answer in answers] == [200] * 4
                by_content, by_name = (prompt_of(request) for request in engine.requests)
                assert by_content != by_name
                assert answers[0].headers[KEY] == answers[2].headers[KEY] != answers[1].headers[KEY]

    run(inside())


def prompt_of(request):
    sent = orjson.loads(request.body)
    return sent.get("prompt") or sent["messages"]


def test_interim_answers_of_several_engines_are_no_more_than_one_may_send(tmp_path):
    hints = b"HTTP/1.1 103 Early Hints\r\n\r\n" * MAX_INTERIM

    async def dying(call):
        call.send(hints)
        await call.writer.drain()
        call.writer.close()

    async def living(call):
        call.send(hints)
        call.answer()

    async def check():
        turns = iter((dying, living))

        async def behave(call):
            await next(turns)(call)

        async with engines(2, behave, behave) as both, routing(tmp_path, keeping(*(e.address for e in both))) as router:
            answer = await ask(router.port, post(exact()))
            assert (answer.status, answer.headers[STATUS]) == (200, b"promptgroup; fwd=miss")

    run(check())


@pytest.mark.parametrize("named", [(), ("x-tenant", "endpoint-load-metrics-format", "endpoint-load-metrics")])
def test_an_answer_is_for_those_who_sent_the_fields_that_its_engine_got(tmp_path, named):
    """What nobody named reaches no engine, so that all who sent it or not share one answer."""
    askers = [(), ("X-Tenant: a",), ("X-Tenant: b",), ("Endpoint-Load-Metrics-Format: JSON",)]

    async def test(router, oracle, engine):
        for _ in range(2):
            for fields in askers:
                answer = await ask(router.port, post(exact(), *fields))
                assert answer.status == 200
        assert oracle.inferences == (len(askers) if named else 1)
        got = [
            request.head.fields.keys() & {b"x-tenant", b"endpoint-load-metrics-format"} for request in engine.requests
        ]
        assert any(got) is bool(named)

    served(tmp_path, test, callers=CallerRules(headers=frozenset(named)))


def test_queries_that_no_engine_gets_split_nothing(tmp_path):
    """The router drops them, so that none of their spellings fills the cache with copies of one answer."""

    async def test(router, oracle, engine):
        for query in ("", "?", "?beta=true", "?beta=true&x=1", *(f"?{number}" for number in range(20))):
            answer = await ask(router.port, post(exact(), path=f"/v1/chat/completions{query}"))
            assert answer.status == 200
        assert oracle.inferences == 1
        assert [request.head.query for request in engine.requests] == [b""]

    served(tmp_path, test)


def test_who_waits_for_anothers_answer_gets_no_field_that_only_the_other_asked_for(tmp_path):
    told = "Endpoint-Load-Metrics: JSON {}"

    async def teller(call):
        await gate.wait()
        choice = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
        call.answer(
            orjson.dumps({"id": "chatcmpl-1", "choices": [choice]}), 200, told, "Server: uvicorn", "Vary: Accept"
        )

    async def test():
        rules = CallerRules(headers=frozenset(("endpoint-load-metrics",)))
        async with engines(1, teller) as (engine,), routing(tmp_path, keeping(engine.address, callers=rules)) as router:
            async with asyncio.TaskGroup() as asking:
                both = [asking.create_task(ask(router.port, post(exact()))) for _ in range(2)]
                await until(lambda: 'result="collapsed"' in router.state.metrics.text(), "the second to wait for it")
                gate.set()
            for answer in (asked.result() for asked in both):
                assert not {b"endpoint-load-metrics", b"server"} & answer.headers.keys()
                assert answer.headers[b"vary"] == b"Accept"
            assert len(engine.requests) == 1

    gate = asyncio.Event()
    run(test())
