"""The command against a stand-in engine with a KV tier, over real sockets."""

import argparse
import asyncio
import json
import math
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import urllib3
import uvloop

from promptgroup_cli.commands import probe
from promptgroup_cli.commands.probe import add, document, prompt, table
from promptgroup_cli.forecast import measured
from promptgroup_cli.forecast.measured import ReplicaFigures, TierFigures
from promptgroup_local.engine.flags import Knobs, parse
from promptgroup_local.engine.scheduler import Cost
from promptgroup_local.engine.server import serving
from promptgroup_operator.engines.engine import EngineClient


def parsed(*words):
    parser = argparse.ArgumentParser(exit_on_error=False)
    add(parser)
    return parser.parse_args(words)


def test_what_is_not_given():
    found = parsed("127.0.0.1:8000", "--model", "tiny")
    assert (found.engine, found.type, found.tokens, found.repeat) == (
        "127.0.0.1:8000",
        "vLLM",
        (512, 1024, 2048, 4096),
        3,
    )
    assert (found.copy_to, found.reset, found.key_file) == (None, False, None)


def test_addresses_are_written_as_urls_too():
    assert parsed("http://[::1]:8000/", "--model", "tiny", "--copy-to", "pod:8000").engine == "[::1]:8000"


@pytest.mark.parametrize(
    "words",
    [("https://e:8000",), ("e",), ("e:0",), ("e:8000/v1",), ("e:8000", "--tokens", "512"),
     ("e:8000", "--tokens", "512,4096"),
     ("e:8000", "--tokens", "5,x"),
     ("e:8000", "--tokens", "512,999999"), ("e:8000", "--repeat", "0"), ("e:8000", "--repeat", "21"),
     ("e:8000", "--reset", "--copy-to", "f:8000")],
)  # fmt: skip
def test_what_cannot_be_measured_is_refused(words):
    with pytest.raises((argparse.ArgumentError, SystemExit)):
        parsed(*words, "--model", "tiny")


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


COPYING = TierFigures(400_000.0, 0.02, 0.05, 163.3, (380_000.0, 410_000.0))
FOUND = ReplicaFigures(8000.0, 0.0123, 0.03, 320_000, (7900.0, 8100.0), COPYING)
NEVER = TierFigures(4.0, 0.02, 0.05, math.inf, (3.9, 4.1))


def test_people_read_it():
    text = " ".join(table(FOUND, 2).split())
    assert "8,000 tokens/s (7,900 to 8,100), after 12.3 ms of each request" in text
    assert "400,000 tokens/s (380,000 to 410,000), 20.0 ms before" in text
    assert "a copy pays from 163 tokens on" in text
    assert "rely" not in text
    assert "within 5% of the line" in text
    assert "2 requests were running" in text
    never = replace(FOUND, error=0.5, kv_tokens=0, tier=NEVER)
    said = " ".join(table(never, 0).split())
    assert "a copy never pays" in said
    assert "not told by the engine" in said
    assert "do not rely on it" in said
    assert "running" not in said


def test_size_reads_it():
    found = measured.read(json.loads(document(FOUND, 0)))
    assert (found.rate, found.kv_tokens, found.tier.rate, found.tier.latency) == (8000, 320_000, 400_000, 0.02)
    assert (found.error, found.between) == (FOUND.error, FOUND.between)
    assert (found.tier.error, found.tier.between) == (COPYING.error, COPYING.between)
    never = replace(FOUND, tier=NEVER)
    assert math.isinf(measured.read(json.loads(document(never, 0))).tier.break_even)


def test_a_rate_that_other_lengths_do_not_bound_is_not_to_be_relied_on():
    unsure = replace(FOUND, tier=replace(COPYING, between=(50_000.0, math.inf)))
    text = " ".join(table(unsure, 0).split())
    assert "400,000 tokens/s (at least 50,000)" in text
    assert "do not rely on it" in text
    assert json.loads(document(unsure, 0))["tier"]["between"] == [50_000.0, None]
    wide = table(replace(FOUND, between=(6000.0, 9100.0)), 0)
    assert "do not rely on it" in " ".join(wide.split())
