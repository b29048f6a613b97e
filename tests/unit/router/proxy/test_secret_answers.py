"""No answer repeats a prompt from a Secret: of any API, whole, streamed, stored, or an engine's error."""

import contextlib

import orjson
import pytest

from promptgroup_contract.table import PromptRef
from promptgroup_local.engine.flags import Cost, Knobs
from support.fakeengine import Call, engines
from support.served import standing_in
from support.tables import group, revision, slot, table
from support.wire import Answer, ask, get, post, routing, run

SECRET = " ".join(f"Rule {number}: nobody else may know the word {number * 7919:x}." for number in range(40))
FUNCTION = {"description": SECRET[:200], "name": "look_up", "parameters": {"type": "object"}}
TOOLS = orjson.dumps([{"function": FUNCTION, "type": "function"}]).decode()
PIECE = 30
"""Bytes of the prompt that no answer may have in a row."""

CHAT = {"model": "support", "messages": [{"role": "user", "content": "Hello there"}], "max_tokens": 8}
RESPONSE = {"model": "support", "input": "Hello there", "max_output_tokens": 8}
REQUESTS = [
    ("/v1/chat/completions", CHAT),
    ("/v1/chat/completions", CHAT | {"stream": True, "stream_options": {"include_usage": True}}),
    ("/v1/messages", CHAT),
    ("/v1/messages", CHAT | {"stream": True}),
    ("/v1/messages/count_tokens", CHAT),
    ("/v1/responses", RESPONSE),
    ("/v1/responses", RESPONSE | {"stream": True}),
    ("/v1/responses", RESPONSE | {"store": True}),
    ("/v1/responses", RESPONSE | {"background": True, "store": True}),
    ("/v1/responses", RESPONSE | {"enable_response_messages": True}),
    ("/v1/completions", {"model": "support", "prompt": "Hello there", "max_tokens": 8}),
    ("/v1/completions", {"model": "support", "prompt": "Hello there", "max_tokens": 8, "stream": True}),
    ("/v1/completions", {"model": "support", "prompt": "Hello there", "echo": True}),
    ("/tokenize", CHAT),
    ("/tokenize", {"model": "support", "prompt": "Hello there"}),
    ("/detokenize", {"model": "support", "tokens": [1, 2, 3]}),
    ("/v1/embeddings", {"model": "support", "input": "Hello there"}),
    ("/rerank", {"model": "support", "query": "Hello", "documents": ["there"]}),
    ("/v1/audio/speech", {"model": "support", "input": "Hello there"}),
    # the engine refuses these
    ("/v1/chat/completions", CHAT | {"stream_options": {"include_usage": True}}),
    ("/v1/chat/completions", CHAT | {"max_tokens": 10**7}),
    ("/v1/chat/completions", CHAT | {"cache_salt": 7}),
    ("/v1/messages", CHAT | {"max_tokens": -1}),
]


def repeats(body: bytes) -> bool:
    return any(SECRET[at : at + PIECE].encode() in body for at in range(len(SECRET) - PIECE))


def known(address: str, tools: str = TOOLS):
    made = revision(SECRET, (slot(0, address=address),), tools=tools, prompt_from=PromptRef("Secret", "support-1"))
    return table(group("support", made))


@contextlib.asynccontextmanager
async def answering(folder, tools: str = TOOLS):
    """A router before a stand-in engine, and all that it has answered."""
    async with (
        standing_in(1, Knobs(Cost(), time_scale=0.0, startup=0.0)) as (address,),
        routing(folder, known(address, tools)) as router,
    ):
        yield router


@pytest.mark.parametrize("tools", ["", TOOLS])
def test_no_answer_of_any_api_has_a_piece_of_a_secret_prompt(tmp_path, tools):
    async def check():
        async with answering(tmp_path, tools) as router:
            served = set()
            for path, body in REQUESTS:
                answer = await ask(router.port, post(body, "Content-Type: application/json", path=path))
                assert not repeats(answer.body), (path, body, answer.status)
                served |= {path} if answer.status == 200 else set()
                if path == "/v1/responses":
                    assert (answer.status, answer.json["error"]["code"]) == (400, "secret_prompt")
            assert {"/v1/chat/completions", "/v1/messages"} <= served

    run(check())


@pytest.mark.parametrize("stream", [False, True])
def test_who_brings_the_prompt_reads_it_back(tmp_path, stream):
    """What the test above looks for is there where a client may have it."""

    async def check():
        async with answering(tmp_path, "") as router:
            body = RESPONSE | {"model": "llama", "instructions": SECRET, "store": True, "stream": stream}
            answer = await ask(router.port, post(body, "Content-Type: application/json", path="/v1/responses"))
            assert repeats(answer.body)
            if not stream:
                read = await ask(router.port, get(f"/v1/responses/{answer.json['id']}"))
                assert repeats(read.body)

    run(check())


async def repeating(call: Call) -> None:
    """Refuse as FastAPI does where a rule about several fields is broken: with the whole body."""
    error = [{"type": "value_error", "loc": ["body"], "input": call.json}]
    call.answer(orjson.dumps({"error": {"message": str(error), "code": 400}}), call.json.get("seed", 400))


async def asked(folder, body: dict, path: str = "/v1/chat/completions") -> Answer:
    async with engines(1, repeating) as (engine,), routing(folder, known(engine.address, "")) as router:
        return await ask(router.port, post(body, path=path))


@pytest.mark.parametrize(("status", "told"), [(400, 400), (422, 422), (500, 500), (599, 502)])
@pytest.mark.parametrize("stream", [False, True])
def test_an_engines_error_does_not_reach_who_asks_by_name(tmp_path, status, told, stream):
    async def check():
        answer = await asked(tmp_path, CHAT | {"seed": status, "stream": stream})
        assert (answer.status, answer.json["error"]["code"]) == (told, "engine_error")
        assert str(status) in answer.json["error"]["message"] or status == 599
        assert b"Rule" not in answer.body

    run(check())


def test_an_engines_error_has_the_form_of_the_api(tmp_path):
    async def check():
        answer = await asked(tmp_path, CHAT, "/v1/messages")
        assert (answer.status, answer.json["type"], answer.json["error"]["type"]) == (
            400,
            "error",
            "invalid_request_error",
        )
        assert not repeats(answer.body)

    run(check())


def test_an_engines_error_reaches_who_brings_the_prompt(tmp_path):
    async def check():
        brought = {"role": "system", "content": SECRET}
        answer = await asked(tmp_path, CHAT | {"model": "llama", "messages": [brought, *CHAT["messages"]]})
        assert answer.status == 400
        assert repeats(answer.body)

    run(check())


def test_an_api_that_the_engine_does_not_have_is_named(tmp_path):
    async def absent(call: Call) -> None:
        call.answer(b'{"detail":"Not Found"}', 404)

    async def check():
        async with engines(1, absent) as (engine,), routing(tmp_path, known(engine.address)) as router:
            answer = await ask(router.port, post(CHAT))
            assert (answer.status, answer.json["error"]["code"]) == (404, "not_served_by_engine")

    run(check())
