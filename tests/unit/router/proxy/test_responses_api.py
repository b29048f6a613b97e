"""OpenAI's Responses API through a router on real sockets."""

import re

import orjson
import pytest

from promptgroup_contract.caller_rules import CallerRules, EngineField
from promptgroup_router.features.stored_responses.response_id import RANDOM_BYTES, ResponseId, encode
from promptgroup_router.feed import table_file
from support.fakeengine import Call, engines, until
from support.tables import SYSTEM, group, revision, slot, table
from support.wire import ask, get, post, routing, run, table_of

OTHER = "You are another assistant."


async def respond(call: Call) -> None:
    """Answer as vLLM does: with the id that the request has."""
    if call.request.head.method != b"POST" or not call.request.body:
        call.answer(b'{"id":"stored"}')
        return
    usage = {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 80}, "output_tokens": 5}
    call.answer(orjson.dumps({"id": call.json.get("request_id", "resp_own"), "object": "response", "usage": usage}))


def body(given: object = "Hi", *, instructions: str | None = SYSTEM, model: str = "llama", **fields: object) -> dict:
    return {"model": model, "input": given} | ({"instructions": instructions} if instructions else {}) | fields


def posted(data: dict | bytes, path: str = "/v1/responses") -> bytes:
    return post(data, path=path)


def request(method: str, path: str) -> bytes:
    return get(path).replace(b"GET", method.encode(), 1)


def test_a_response_goes_to_its_group_and_its_usage_is_counted(tmp_path):
    async def check():
        async with engines(1, respond) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            answer = await ask(router.port, posted(body(prompt_cache_options={"prewarm": True}, unknown=[1])))
            assert (answer.status, answer.served_by.rsplit("/", 1)[1]) == (200, "0")
            sent = engine.requests[0]
            assert orjson.loads(sent.body) == body(prompt_cache_options={"prewarm": True}, unknown=[1]) | {
                "request_id": answer.json["id"]
            }
            text = router.state.exposition(0.0, 0)
            assert 'prompt_tokens_total{group="chat/support"} 100' in text
            assert 'cached_tokens_total{group="chat/support"} 80' in text

    run(check())


def test_by_name_each_turn_gets_the_declared_prompt(tmp_path):
    async def check():
        async with engines(1, respond) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            first = await ask(router.port, posted(body(instructions=None, model="support")))
            await ask(
                router.port,
                posted(body("More", instructions=None, model="support", previous_response_id=first.json["id"])),
            )
            for sent in engine.requests:
                assert (orjson.loads(sent.body)["instructions"], orjson.loads(sent.body)["model"]) == (SYSTEM, "llama")

    run(check())


def test_what_continues_a_response_goes_to_the_replica_that_holds_it(tmp_path):
    """Also by another router that has seen nothing, and in one session as far as the books are concerned."""

    async def check():
        async with engines(6, *[respond] * 6) as several:
            served = table_of(*(each.address for each in several))
            (tmp_path / "one").mkdir()
            (tmp_path / "two").mkdir()
            async with routing(tmp_path / "one", served) as one, routing(tmp_path / "two", served) as two:
                for number in range(12):
                    answer = await ask(one.port, posted(body(f"Question {number}")))
                    holder = answer.served_by
                    for router in (one, two, one, two):
                        turn = body("More", previous_response_id=answer.json["id"])
                        answer = await ask(router.port, posted(turn))
                        assert answer.served_by == holder
                assert len(one.state.balancer.locations) == 12
                assert len({each.address for each in several if each.requests}) > 1

    run(check())


def test_a_response_is_read_cancelled_and_deleted_where_it_is(tmp_path):
    async def check():
        async with (
            engines(4, *[respond] * 4) as several,
            routing(tmp_path, table_of(*(each.address for each in several))) as router,
        ):
            made = (await ask(router.port, posted(body(background=True)))).json["id"]
            holder = next(each for each in several if each.requests)
            for method, path in (
                ("GET", f"/v1/responses/{made}"),
                ("GET", f"/v1/responses/{made}?stream=true&starting_after=3"),
                ("GET", f"/v1/responses/{made}/input_items"),
                ("POST", f"/v1/responses/{made}/cancel"),
                ("DELETE", f"/v1/responses/{made}"),
            ):
                answer = await ask(router.port, request(method, path))
                head = holder.requests[-1].head
                query = b"?" + head.query if head.query else b""
                assert (answer.status, head.method + b" " + head.path + query) == (200, f"{method} {path}".encode())
            assert sum(len(each.requests) for each in several) == 6
            assert len(router.state.balancer.locations) == 1

    run(check())


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        (get("/v1/responses/resp_unknown"), 404, "response_not_found"),
        (get("/v1/responses/" + encode(ResponseId(1, 2, 3), bytes(RANDOM_BYTES))), 404, "response_not_found"),
        (get("/v1/responses/a/b"), 404, "not_found"),
        (get("/v1/responses/..%2f"), 404, "not_found"),
        (get("/v1/responses/"), 404, "not_found"),
        (request("PUT", "/v1/responses/resp_1"), 405, "method_not_allowed"),
        (get("/v1/responses"), 405, "method_not_allowed"),
        (
            posted(body(previous_response_id=encode(ResponseId(1, 2, 3), bytes(RANDOM_BYTES)))),
            404,
            "previous_response_not_found",
        ),
    ],
)
def test_what_no_replica_holds_is_refused(tmp_path, data, status, code):
    async def check():
        async with engines(1, respond) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            answer = await ask(router.port, data)
            assert (answer.status, answer.json["error"]["code"]) == (status, code)
            assert engine.requests == []

    run(check())


def test_an_id_that_an_engine_made_is_for_engines_to_know(tmp_path):
    async def check():
        allows = CallerRules(allowed=frozenset((EngineField.REQUEST_ID,)))
        async with engines(1, respond) as (engine,):
            served = table(group("support", revision(slots=(slot(0, address=engine.address),)), callers=allows))
            async with routing(tmp_path, served) as router:
                own = body(previous_response_id="resp_own", request_id="resp_mine")
                answer = await ask(router.port, posted(own))
            assert (answer.status, answer.json["id"]) == (200, "resp_mine")
            assert orjson.loads(engine.requests[0].body)["request_id"] == "resp_mine"

    run(check())


@pytest.mark.heavy
def test_a_lost_replica_a_restarted_one_and_a_superseded_revision_are_told(tmp_path):
    async def check():
        async with engines(2, respond, respond) as (one, two):
            first = slot(0, address=one.address)
            served = table(group("support", revision(slots=(first,))))
            async with routing(tmp_path, served) as router:
                made = (await ask(router.port, posted(body()))).json["id"]
                path = tmp_path / "table.json"
                for version, replaced, why in (
                    ("v2", revision(slots=(slot(0, address=one.address, incarnation="b"),)), "restarted"),
                    ("v3", revision(slots=(slot(1, address=two.address),)), "no longer serves"),
                    ("v4", revision(OTHER, slots=(slot(0, address=two.address),)), "no longer serves"),
                ):
                    table_file.write(path, table(group("support", replaced), version=version))
                    await until(lambda v=version: router.state.index.table.version == v, "the new table")
                    by_name = body("More", instructions=None, model="support", previous_response_id=made)
                    for data, code in (
                        (posted(by_name), "previous_response_not_found"),
                        (get(f"/v1/responses/{made}"), "response_not_found"),
                    ):
                        answer = await ask(router.port, data)
                        assert (answer.status, answer.json["error"]["code"]) == (404, code)
                        assert why in answer.json["error"]["message"]
                        assert made in answer.json["error"]["message"]
                assert len(one.requests) == 1
                assert two.requests == []

    run(check())


def test_a_session_stays_on_the_revision_that_holds_its_response(tmp_path):
    async def check():
        async with engines(2, respond, respond) as (one, two):
            revisions = (
                revision(slots=(slot(0, address=one.address),), weight=1),
                revision(OTHER, slots=(slot(0, address=two.address),), weight=1),
            )
            async with routing(tmp_path, table(group("support", *revisions))) as router:
                for number in range(8):
                    data = body(f"Question {number}", instructions=None, model="support")
                    answer = await ask(router.port, posted(data))
                    served, made = answer.served_by, answer.json["id"]
                    router.state.balancer.locations._locations.clear()
                    data = body("More", instructions=None, model="support", previous_response_id=made)
                    assert (await ask(router.port, posted(data))).served_by == served
                assert one.requests
                assert two.requests

    run(check())


def test_a_try_on_another_replica_has_an_id_of_its_own(tmp_path):
    async def busy(call: Call) -> None:
        call.answer(b"{}", 503)

    async def check():
        async with (
            engines(2, busy, respond) as both,
            routing(tmp_path, table_of(*(each.address for each in both))) as router,
        ):
            for number in range(20):
                await ask(router.port, posted(body(f"Question {number}")))
            tried = [orjson.loads(sent.body)["request_id"] for each in both for sent in each.requests]
            assert both[0].requests
            assert len(set(tried)) == len(tried)
            assert all(re.fullmatch(r"resp_pg_[\w-]{40}", each) for each in tried)

    run(check())
