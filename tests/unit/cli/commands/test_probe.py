"""The command against a stand-in engine with a KV tier, over real sockets."""

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import urllib3
import uvloop

from promptgroup_cli.commands import probe
from promptgroup_cli.commands.probe import prompt
from promptgroup_local.engine.flags import Knobs, parse
from promptgroup_local.engine.scheduler import Cost
from promptgroup_local.engine.server import serving
from promptgroup_operator.engines.engine import EngineClient

FLAGS = (
    "tiny", "--host=127.0.0.1", "--port=0", "--enable-prompt-tokens-details", "--num-gpu-blocks-override=8000",
)  # fmt: skip
TIER = '--kv-transfer-config={"kv_connector":"LMCacheMPConnector"}'
RATE = 10_000.0
"""Prompt tokens a second: lengths so different that no busy machine makes short prompts as late as long ones."""
WORDS = ("--model=tiny", "--tokens=256,1024,4096", "--repeat=2", "--output=json")


@pytest.fixture(params=[(TIER,)])
def engine(request) -> Iterator[str]:
    started: threading.Event = threading.Event()
    found: list[str] = []
    done: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def serve() -> None:
        end = asyncio.Event()
        knobs = Knobs(Cost(prefill_rate=RATE))
        async with serving(parse([*FLAGS, *request.param]), knobs, dev_mode=True) as url:
            found.append(url)
            done.append((asyncio.get_running_loop(), end))
            started.set()
            await end.wait()

    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(uvloop.run, serve())
        assert started.wait(20) or running.result(0)
        yield found[0]
        loop, end = done[0]
        loop.call_soon_threadsafe(end.set)


def chat(url: str, text: str) -> int:
    messages = [{"role": "system", "content": text}, {"role": "user", "content": "a"}]
    body = {"model": "tiny", "messages": messages, "max_tokens": 1}
    usage = urllib3.request("POST", f"{url}/v1/chat/completions", json=body).json()["usage"]
    return usage["prompt_tokens_details"]["cached_tokens"]


def metric(url: str, name: str) -> float:
    lines = urllib3.request("GET", f"{url}/metrics").data.decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


@pytest.mark.heavy
def test_a_replica_and_its_tier_are_measured_and_nobody_elses_prompt_is_touched(engine, command):
    own = "You answer questions about trains. " * 100
    chat(engine, own)
    kept = chat(engine, own)
    status, out, err = command("probe", engine, *WORDS, "--reset", exits=True)
    if status:  # the stand-in copies in no time
        assert "the times of the copies do not grow" in err
    else:
        assert json.loads(out)["tier"]["tokensPerSecond"] > json.loads(out)["prefillTokensPerSecond"]
    assert metric(engine, "vllm:external_prefix_cache_hits_total") > 0
    assert chat(engine, own) == kept


@pytest.mark.heavy
def test_without_a_tier_to_measure_none_is_told_and_no_prompt_finds_anything(engine, command):
    status, out, _ = command("probe", engine, *WORDS, exits=True)
    found = json.loads(out)
    assert (status, found["tier"], found["kvTokens"]) == (0, None, 128_000)
    assert 0 < found["prefillTokensPerSecond"] < 2 * RATE
    assert metric(engine, "vllm:prefix_cache_hits_total") == 0


@pytest.mark.parametrize("engine", [("--num-gpu-blocks-override=600",)], indirect=True)
def test_a_replica_without_room_for_the_prompts_is_left_alone(engine, command):
    status, _, err = command("probe", engine, *WORDS, exits=True)
    assert status == 2
    assert "would take more than 10% of the replica's 9,600 tokens of KV cache" in err
    assert metric(engine, "vllm:prefix_cache_queries_total") == 0


@pytest.mark.heavy
@pytest.mark.parametrize("engine", [()], indirect=True)
def test_a_tier_that_brings_nothing_is_told(engine, command):
    status, _, err = command("probe", engine, *WORDS, "--reset", exits=True)
    assert status == 1
    assert "the KV tier brought 0% of the prompts" in err


@pytest.mark.heavy
def test_a_cache_that_is_held_is_emptied_once_it_is_free(engine, command, monkeypatch):
    held, emptied = iter((False, False)), EngineClient.reset
    monkeypatch.setattr(probe, "RESET_PAUSE", 0)
    monkeypatch.setattr(EngineClient, "reset", lambda *given: next(held, None) is None and emptied(*given))
    command("probe", engine, *WORDS, "--reset", exits=True)
    assert next(held, None) is None
    assert metric(engine, "vllm:external_prefix_cache_hits_total") > 0


@pytest.mark.heavy
def test_a_cache_that_others_hold_is_not_taken_for_an_empty_one(engine, command, monkeypatch):
    monkeypatch.setattr(probe, "RESET_SECONDS", 0)
    monkeypatch.setattr(EngineClient, "reset", lambda *_: False)
    status, _, err = command("probe", engine, *WORDS, "--reset", exits=True)
    assert status == 1
    assert "did not empty its cache" in err


def test_a_replica_that_is_not_there(command):
    status, _, err = command("probe", "127.0.0.1:1", *WORDS, exits=True)
    assert status == 3
    assert "127.0.0.1:1: /metrics: the connection was refused" in err


def test_no_prompt_begins_as_another():
    texts = [prompt(64) for _ in range(200)]
    assert len({text[:16] for text in texts}) == 200
    assert all(len(text.split()) == 65 for text in texts)
