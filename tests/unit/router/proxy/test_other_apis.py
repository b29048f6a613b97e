"""Embeddings, scores, tokens and audio through a router on real sockets."""

import collections
from dataclasses import replace

import orjson
import pytest

from promptgroup_contract.table import ModelAlias
from promptgroup_router.apis.by_model import COUNTED_PATHS, FORM_PATHS, JSON_PATHS, TOKENIZE_PATH
from support.fakeengine import Call, engines, until
from support.tables import SYSTEM, table
from support.wire import ask, chat, connected, get, post, routing, run, table_of

FORM = (
    b'--XX\r\nContent-Disposition: form-data; name="model"\r\n\r\n%b\r\n'
    b'--XX\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\nRIFF\x00\xff\r\n--XX--\r\n'
)


async def wait(call: Call) -> None:
    await call.client_gone()


@pytest.mark.parametrize("path", [each.decode() for each in (*COUNTED_PATHS, *JSON_PATHS, TOKENIZE_PATH)])
def test_a_body_goes_to_the_model_as_received_and_to_a_group_by_its_model(tmp_path, path):
    async def check():
        async with engines(1) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            data = b'{ "model": "llama", "input": "Once", "z": 1 }'
            assert (await ask(router.port, post(data, path=path))).status == 200
            assert (engine.requests[0].head.path.decode(), engine.requests[0].body) == (path, data)
            answer = await ask(router.port, post({"model": "support", "input": "Once"}, path=path))
            assert answer.served_by.startswith("chat/support/")
            assert orjson.loads(engine.requests[1].body) == {"model": "llama", "input": "Once"}
            assert len(router.state.balancer.locations) == 0

    run(check())


@pytest.mark.parametrize("path", [each.decode() for each in FORM_PATHS])
def test_a_form_goes_to_the_model_as_received_and_to_a_group_by_its_model(tmp_path, path):
    async def check():
        async with engines(1) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            for name in (b"llama", b"support"):
                data = post(FORM % name, "Content-Type: multipart/form-data; boundary=XX", path=path)
                assert (await ask(router.port, data)).status == 200
                assert engine.requests[-1].body == FORM % b"llama"
            answer = await ask(
                router.port, post(FORM % b"gpt", 'Content-Type: Multipart/form-data; boundary="XX"', path=path)
            )
            assert (answer.status, answer.json["error"]["code"]) == (404, "model_not_found")

    run(check())


@pytest.mark.parametrize(
    "types",
    [
        (),
        ("application/json",),
        ("multipart/form-data",),
        ("multipart/form-data; boundary=YY",),
        ("multipart/form-data; boundary=X",),
        ("multipart/form-data; boundary=XX; charset=punycode",),
        ("multipart/form-data; boundary=YY; boundary=XX",),
        ("multipart/form-data; boundary=YY", "multipart/form-data; boundary=XX"),
    ],
)
def test_a_form_whose_boundary_an_engine_may_take_from_elsewhere_is_refused(tmp_path, types):
    async def check():
        async with engines(1) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            fields = [f"Content-Type: {each}" for each in types]
            answer = await ask(router.port, post(FORM % b"llama", *fields, path=FORM_PATHS[0].decode()))
            assert (answer.status, answer.json["error"]["param"]) == (400, "content-type")
            assert not engine.requests

    run(check())


@pytest.mark.heavy
def test_a_large_form_goes_to_the_model_as_received(tmp_path):
    async def check():
        async with engines(1) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            body = FORM.replace(b"RIFF", b"RIFF" * 200_000) % b"llama"
            fields = "Content-Type: multipart/form-data; boundary=XX"
            assert (await ask(router.port, post(body, fields, path=FORM_PATHS[0].decode()))).status == 200
            assert engine.requests[0].body == body
            hostile = body.replace(b'name="file"', b'name="vllm_xargs"', 1)
            answer = await ask(router.port, post(hostile, fields, path=FORM_PATHS[0].decode()))
            assert (answer.status, len(engine.requests)) == (400, 1)

    run(check())


def test_the_tokens_of_a_groups_chat_include_its_prompt(tmp_path):
    async def check():
        async with engines(1) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            await ask(router.port, post(chat(system="", model="support"), path="/tokenize"))
            sent = orjson.loads(engine.requests[0].body)
            assert sent["messages"][0] == {"role": "system", "content": SYSTEM}
            assert sent["model"] == "llama"

    run(check())


def test_the_least_loaded_replica_is_taken_and_equal_requests_go_to_one(tmp_path):
    async def check():
        async with engines(3) as several, routing(tmp_path, table_of(*(each.address for each in several))) as router:
            counts: collections.Counter[int] = collections.Counter()
            for number in range(30):
                await ask(router.port, post({"model": "llama", "input": f"Text {number}"}, path="/v1/embeddings"))
            counts.update(len(each.requests) for each in several)
            assert all(each.requests for each in several)
            data = post({"model": "llama", "input": "Once"}, path="/v1/embeddings")
            before = [len(each.requests) for each in several]
            for _ in range(5):
                await ask(router.port, data)
            grown = [len(each.requests) - earlier for each, earlier in zip(several, before, strict=True)]
            assert sorted(grown) == [0, 0, 5]
            busy = several[grown.index(5)]
            busy.behave = wait
            async with connected(router.port) as waiting:
                waiting.send(data)
                arrived = len(busy.requests) + 1
                await until(lambda: len(busy.requests) == arrived, "the request that waits")
                assert (await ask(router.port, data)).status == 200
                assert len(busy.requests) == arrived

    run(check())


@pytest.mark.heavy
@pytest.mark.parametrize("size", [4, 400_000])
def test_a_path_that_the_settings_name_is_passed_on_small_or_large(tmp_path, size):
    async def check():
        async with (
            engines(1) as (engine,),
            routing(tmp_path, table_of(engine.address), pass_paths=("/v1/further",)) as router,
        ):
            data = b'{ "model": "llama", "text": "%b" }' % (b"x" * size)
            answer = await ask(router.port, post(data, path="/v1/further"))
            assert (answer.status, answer.served_by.split("/")[0]) == (200, "-")
            assert (engine.requests[0].head.path, engine.requests[0].body) == (b"/v1/further", data)
            answer = await ask(router.port, post(data.replace(b"llama", b"support"), path="/v1/further"))
            assert answer.served_by.startswith("chat/support/")
            assert orjson.loads(engine.requests[1].body)["model"] == "llama"

    run(check())


@pytest.mark.parametrize("path", ["/v1/load_lora_adapter", "/reset_prefix_cache", "/sleep", "/metrics", "/", "/v1"])
def test_everything_else_is_refused_with_what_is_served(tmp_path, path):
    async def check():
        async with engines(1) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            for data in (post({"model": "llama"}, path=path), get(path)):
                answer = await ask(router.port, data)
                assert (answer.status, answer.json["error"]["code"]) == (404, "not_found")
                assert "POST /v1/messages" in answer.json["error"]["message"]
            assert engine.requests == []

    run(check())


def test_a_form_by_an_alias_names_the_model(tmp_path):
    async def check():
        async with engines(1) as (engine,):
            (served,) = table_of(engine.address).groups
            async with routing(tmp_path, table(replace(served, aliases=(ModelAlias("whisper-1"),)))) as router:
                for path in FORM_PATHS:
                    fields = "Content-Type: multipart/form-data; boundary=XX"
                    data = post(FORM % b"whisper-1", fields, path=path.decode())
                    assert (await ask(router.port, data)).status == 200
                    assert engine.requests[-1].body == FORM % b"llama"

    run(check())
