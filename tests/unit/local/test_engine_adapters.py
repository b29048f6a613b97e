import asyncio
import contextlib
import functools

import aiohttp
import pytest

from promptgroup_local.engine.adapters.loaded import (
    AdapterRefusedError,
    LoadedAdapters,
    SglangAdapters,
    parse_module,
)
from promptgroup_local.engine.flags import Knobs, parse
from promptgroup_local.engine.server import serving

ARGS = ("m", "--port=0", "--host=127.0.0.1", "--enable-prompt-tokens-details", "--enable-lora")
LONG = "word " * 200


def over_sockets(test):
    @functools.wraps(test)
    def run(**fields):
        asyncio.run(asyncio.wait_for(test(**fields), 60))

    return run


@contextlib.asynccontextmanager
async def engine(*args, loads=True, scale=0.01):
    async with (
        serving(parse([*ARGS, *args]), Knobs(time_scale=scale), loads_adapters=loads) as url,
        aiohttp.ClientSession(url) as session,
    ):
        yield session


async def ask(session, model, **fields):
    body = {"model": model, "max_tokens": 4, "messages": [{"role": "user", "content": LONG}]}
    async with session.post("/v1/chat/completions", json=body | fields) as answer:
        whole = await answer.json()
        if answer.status != 200:
            return answer.status, None, None
        cached = whole["usage"]["prompt_tokens_details"]["cached_tokens"]
        return cached, whole["model"], whole["choices"][0]["message"]["content"]


async def post(session, path, name, at=None, **fields):
    body = {"lora_name": name} | ({"lora_path": str(at)} if at else {}) | fields
    async with session.post(f"/v1/{path}_lora_adapter", json=body) as answer:
        return answer.status, await answer.text()


def folder(path, content):
    path.mkdir(exist_ok=True)
    (path / "adapter_config.json").write_text("{}")
    (path / "adapter_model.safetensors").write_text(content)
    return path


@over_sockets
async def test_each_adapter_has_a_cache_and_answers_of_its_own():
    async with engine("--lora-modules", "one=a/one", "two=a/two") as session:
        first = [await ask(session, model) for model in ("m", "one", "two")]
        again = [await ask(session, model) for model in ("m", "one", "two")]
    assert [cached for cached, *_ in first] == [0, 0, 0]
    assert min(cached for cached, *_ in again) > 150
    assert [model for _, model, _ in first] == ["m", "one", "two"]
    assert len({text for *_, text in first}) == 3
    assert [text for *_, text in again] == [text for *_, text in first]


@over_sockets
async def test_the_list_of_models_has_adapters_with_path_and_parent():
    async with engine("--lora-modules=one=a/one") as session, session.get("/v1/models") as answer:
        cards = {each["id"]: each for each in (await answer.json())["data"]}
    assert (cards["m"]["parent"], cards["m"]["root"]) == (None, "m")
    assert (cards["one"]["parent"], cards["one"]["root"], cards["one"]["max_model_len"]) == ("m", "a/one", None)


@over_sockets
async def test_loading_and_unloading(tmp_path):
    async with engine() as session:
        assert (await ask(session, "one"))[0] == 404
        assert (await post(session, "load", "one", folder(tmp_path / "one", "x")))[0] == 200
        assert (await ask(session, "one"))[1] == "one"
        status, text = await post(session, "load", "one", tmp_path / "one")
        assert status == 400
        assert "already been loaded" in text
        assert (await post(session, "load", "two", tmp_path / "two"))[0] == 404
        assert (await post(session, "load", "two"))[0] == 400
        assert (await post(session, "unload", "one"))[0] == 200
        assert (await post(session, "unload", "one"))[0] == 404
        assert (await ask(session, "one"))[0] == 404


@over_sockets
async def test_without_the_variable_nothing_is_loaded_at_run_time():
    async with engine(loads=False) as session:
        assert (await post(session, "load", "one", "a/one"))[0] == 404


@over_sockets
async def test_weights_that_are_replaced_under_one_path_are_answered_from_the_old_ones_cache(tmp_path):
    path = folder(tmp_path / "one", "old")
    async with engine() as session:
        await post(session, "load", "one", path)
        _, _, old = await ask(session, "one")
        folder(path, "new")
        await post(session, "load", "one", path, load_inplace=True)
        cached, _, stale = await ask(session, "one")
        _, _, right = await ask(session, "one", cache_salt="fresh")
        assert cached > 150
        assert len({old, stale, right}) == 3
        await post(session, "unload", "one")
        await post(session, "load", "one", path)
        assert (await ask(session, "one"))[2] == stale
        await post(session, "unload", "one")
        await post(session, "load", "one", folder(tmp_path / "another", "new"))
        cached, _, found = await ask(session, "one")
        assert (cached, found) == (0, right)


@over_sockets
async def test_requests_for_more_adapters_than_run_wait():
    async with (
        engine("--max-loras=1", "--lora-modules", "one=a/one", "two=a/two", scale=1) as session,
        asyncio.TaskGroup() as tasks,
    ):
        slow = tasks.create_task(ask(session, "one", max_tokens=60, ignore_eos=True))
        while True:
            async with session.get("/metrics") as answer:
                if 'vllm:num_requests_running{engine="0",model_name="m"} 1.0' in await answer.text():
                    break
        other = tasks.create_task(ask(session, "two"))
        base = tasks.create_task(ask(session, "m"))
        await base
        assert not other.done()
        await slow
        assert (await other)[1] == "two"


@pytest.mark.parametrize("text", ["one", "=a", "one="])
def test_modules_that_are_none(text):
    with pytest.raises(ValueError, match="NAME=PATH"):
        parse_module(text)
    assert parse_module('{"name": "one", "path": "a/b"}') == ("one", "a/b")


def test_an_engine_with_a_path_that_is_not_there_does_not_start(tmp_path):
    with pytest.raises(AdapterRefusedError):
        LoadedAdapters([("one", str(tmp_path / "nowhere"))])


SGLANG = ("python3", "-m", "sglang.launch_server", "--model-path=m", "--port=0", "--host=127.0.0.1", "--enable-lora")


@contextlib.asynccontextmanager
async def sglang(*args):
    flags = parse([*SGLANG, "--enable-cache-report", "--max-loras-per-batch=2", *args])
    async with serving(flags, Knobs(time_scale=0.01)) as url, aiohttp.ClientSession(url) as session:
        yield session


async def change(session, path, name, at=None):
    body = {"lora_name": name} | ({"lora_path": str(at)} if at else {})
    async with session.post(f"/{path}_lora_adapter", json=body) as answer:
        return answer.status, await answer.json()


@over_sockets
async def test_sglang_applies_an_adapter_behind_the_model_and_a_colon_alone():
    async with sglang("--lora-paths=one=a/one") as session:
        base = await ask(session, "m")
        adapted = await ask(session, "m:one")
        alone = await ask(session, "one")
        assert (await ask(session, "m:two"))[0] == 400
        assert (await ask(session, "other:one"))[2] == adapted[2]
    assert (adapted[0], adapted[1]) == (0, "m:one")
    assert adapted[2] != base[2]
    assert alone[2] == base[2]
    assert alone[0] > 150


@over_sockets
async def test_sglang_applies_no_adapter_to_responses_but_one_to_messages():
    async with sglang("--lora-paths=one=a/one") as session:
        for model in ("m", "m:one"):
            await ask(session, model)
        texts = {}
        for model in ("m", "m:one"):
            body = {"model": model, "input": LONG, "max_output_tokens": 4}
            async with session.post("/v1/responses", json=body) as answer:
                texts[model, "responses"] = (await answer.json())["output"][0]["content"][0]["text"]
            body = {"model": model, "messages": [{"role": "user", "content": LONG}], "max_tokens": 4}
            async with session.post("/v1/messages", json=body) as answer:
                texts[model, "messages"] = (await answer.json())["content"][0]["text"]
    assert texts["m", "responses"] == texts["m:one", "responses"]
    assert texts["m", "messages"] != texts["m:one", "messages"]


@over_sockets
async def test_each_load_of_sglang_has_a_cache_of_its_own(tmp_path):
    path = folder(tmp_path / "one", "old")
    async with sglang() as session:
        status, answer = await change(session, "load", "one", path)
        assert (status, answer["success"], answer["loaded_adapters"]) == (200, True, {"one": str(path)})
        _, _, old = await ask(session, "m:one")
        assert (await ask(session, "m:one"))[0] > 150
        status, answer = await change(session, "load", "one", path)
        assert (status, answer["success"]) == (400, False)
        folder(path, "new")
        assert (await change(session, "unload", "one"))[0] == 200
        assert (await change(session, "unload", "one"))[0] == 400
        await change(session, "load", "one", path)
        cached, _, new = await ask(session, "m:one")
        assert cached == 0
        assert new != old
        assert (await change(session, "load", "two", tmp_path / "nowhere"))[0] == 400
        assert (await change(session, "load", "two"))[0] == 400


def test_sglang_unloads_the_least_recently_used_and_loads_it_again_for_a_request():
    adapters = SglangAdapters("m", [("one", "a/one"), ("two", "a/two")], most=2)
    first = adapters.requested("m:one")
    adapters.load("three", "a/three")
    assert set(adapters.by_name) == {"one", "three"}
    assert adapters.requested("m:one") == first
    again = adapters.requested("m:two")
    assert set(adapters.by_name) == {"one", "two"}
    adapters.unload("one")
    assert adapters.requested("m:one").cache_key != first.cache_key
    assert again.path == "a/two"
    assert adapters.requested("m") is adapters.requested("one") is None
