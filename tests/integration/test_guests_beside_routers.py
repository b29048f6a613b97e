"""Ten prompts on two engines: guests of one host beside the routers of others and round robin.

Once on stand-ins, and on real vLLM where VLLM names a folder with venv/ and tiny/. The other routers take part where
`make bench-peers` or `make bench-prefix` has installed them into .cache/peers.
"""

import contextlib
import itertools
import logging
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import urllib3
import uvloop

from bench.peers import routers
from bench.peers.routers import PINNED, Place
from promptgroup_contract.table import Engine, Prompt, Sharing
from promptgroup_local.cluster import process
from promptgroup_local.kubectl import wait_for
from promptgroup_local.load.counters import measure, scrape
from promptgroup_local.ports import free_ports
from promptgroup_local.real.vllm import VLLM
from promptgroup_operator.engines.engine import EngineClient
from promptgroup_operator.warmth.warmup import judge_evidence
from promptgroup_router.feed.table_file import write
from support.rankedturns import words
from support.realengines import SERVED, marks, running
from support.tables import group, revision, slot, table

logger = logging.getLogger(__name__)

NAMES = [f"guest-{number}" for number in range(10)]
SESSIONS, TURNS, WORKERS = 2, 3, 4
"""Sessions of each prompt, turns of each session, sessions at a time."""
BLOCK, KV_TOKENS = 32, 100_000
PROMPTS = {name: f"You are {name}. {words(name, 300)}" for name in NAMES}
CHAT = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Turn:
    """What an engine reported of one request."""

    status: int
    prompt: int
    cached: int


@dataclass(slots=True)
class Contest:
    """What one router made of the load."""

    name: str
    first: list[Turn] = field(default_factory=list)
    """The first request of each prompt."""
    turns: list[Turn] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    """Hit rates by the engines' counters: from the first request of each prompt on, and of a second round."""


HTTP = urllib3.PoolManager(maxsize=2 * WORKERS)


def send(url: str, model: str, messages: Sequence[dict[str, str]]) -> Turn:
    body = {"model": model, "messages": list(messages), "max_tokens": 4, "temperature": 0}
    answer = HTTP.request("POST", f"{url}{CHAT}", json=body, timeout=300, retries=False)
    if answer.status != 200:
        return Turn(answer.status, 0, 0)
    usage = answer.json()["usage"]
    return Turn(200, usage["prompt_tokens"], (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)


def round_of(contest: Contest, urls: Sequence[str], engines: Sequence[str], series: str) -> None:
    """Send the first request of each prompt, and then the sessions of all prompts, in an order drawn by chance."""
    following = itertools.cycle(urls)
    before = uvloop.run(scrape(engines))
    first = [{"role": "user", "content": words(f"{contest.name} {series}", 20)}]
    for prompt in PROMPTS.values():
        contest.first.append(send(next(following), SERVED, [{"role": "system", "content": prompt}, *first]))
    drawn = [(name, number) for name in NAMES for number in range(SESSIONS)]
    random.Random(series).shuffle(drawn)

    def session(name: str, number: int) -> list[Turn]:
        history = [{"role": "system", "content": PROMPTS[name]}]
        result = []
        for turn in range(TURNS):
            # each router's sessions are its own, so that none finds another's in the caches
            history.append({"role": "user", "content": words(f"{contest.name} {series} {name} {number} {turn}", 60)})
            result.append(send(next(following), SERVED, history))
            history.append({"role": "assistant", "content": words(f"{name} {number} {turn} answer", 20)})
        return result

    with ThreadPoolExecutor(WORKERS) as pool:
        for result in pool.map(lambda drawn: session(*drawn), drawn):
            contest.turns.extend(result)
    rate = measure(before, uvloop.run(scrape(engines))).hit_rate
    assert rate is not None
    contest.rates.append(rate)


def contest_of(name: str, urls: Sequence[str], engines: Sequence[str]) -> Contest:
    """Have a router serve two rounds."""
    contest = Contest(name)
    for series in ("one", "two"):
        round_of(contest, urls, engines, series)
    logger.info(
        "%-32s hit rate %.1f %%, in a second round %.1f %%; first requests that were warm: %d of %d; failed: %d",
        name, 100 * contest.rates[0], 100 * contest.rates[1], warm(contest.first[:len(NAMES)]), len(NAMES),
        sum(turn.status != 200 for turn in contest.turns + contest.first),
    )  # fmt: skip
    return contest


def warm(turns: Sequence[Turn]) -> int:
    """Requests of one prompt and one message whose prompt was cached but for its last blocks."""
    return sum(turn.prompt - turn.cached < 4 * BLOCK and turn.status == 200 for turn in turns)


def answers(url: str) -> bool:
    """Return True if a router or an engine answers a chat."""
    with contextlib.suppress(urllib3.exceptions.HTTPError):
        return send(url, SERVED, [{"role": "user", "content": "Hi"}]).status == 200
    return False


@contextlib.contextmanager
def serving(url: str, command: Sequence[str], folder: Path) -> Iterator[str]:
    """The URL of a router's process, once it serves."""
    running = process.start(command, folder / "router.log")

    try:
        wait_for(lambda: answers(url) or None, f"{command[0]} to serve", seconds=120)
        yield url
    finally:
        process.stop(running)


@contextlib.contextmanager
def peer(name: str, policy: str, engines: Sequence[str], folder: Path) -> Iterator[str]:
    """The URL of another router over the engines."""
    port, metrics = free_ports(2)
    command = routers.peer(name, "--policy", policy)(Place(engines, port, metrics, folder, (), 1))
    with serving(f"http://127.0.0.1:{port}", command, folder) as url:
        yield url


def emptied(engines: Sequence[str]) -> None:
    for url in engines:
        wait_for(
            lambda url=url: urllib3.request("POST", f"{url}{VLLM.reset}").status == 200 or None, "a cache to be emptied"
        )


@contextlib.contextmanager
def guests_of_one_host(engines: Sequence[str], folder: Path) -> Iterator[str]:
    """The URL of this project's router, with the routes that the operator gives a host and its guests."""
    slots = tuple(slot(index, address=url.removeprefix("http://")) for index, url in enumerate(engines))
    engine = Engine(settings="same", kv_tokens=KV_TOKENS)
    own: dict[str, Any] = {"slots": slots, "engine": engine}
    guests = (
        group(name, revision(prompt, **own), model=SERVED, sharing=Sharing.DEDICATED)
        for name, prompt in PROMPTS.items()
    )
    write(folder / "table.json", table(group("pool", revision("", **own), model=SERVED), *guests))
    port, admin = free_ports(2)
    flags = (f"--table={folder / 'table.json'}", "--host=127.0.0.1", f"--port={port}", f"--admin-port={admin}")
    with serving(f"http://127.0.0.1:{port}", [sys.executable, "-m", "promptgroup_router", *flags], folder) as url:
        yield url


def prove(engines: Sequence[str]) -> None:
    """Warm each prompt on each engine, as the operator does, and judge the proof as it does."""
    client = EngineClient()
    for url, prompt in itertools.product(engines, PROMPTS.values()):
        address = url.removeprefix("http://")
        evidence = client.prove(address, VLLM.dialect, SERVED, Prompt(prompt))
        assert judge_evidence(evidence, VLLM.dialect.caching_off).warm, evidence
    client.close()


@pytest.fixture(params=[pytest.param("standin", marks=pytest.mark.slow), pytest.param("vllm", marks=marks(VLLM))])
def engines(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[str]]:
    """The URLs of two engines, which start at once."""
    start = running(VLLM, tmp_path / "vllm-0"), running(VLLM, tmp_path / "vllm-1")
    if request.param == "standin":
        start = standin(tmp_path / "standin-0"), standin(tmp_path / "standin-1")
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(2) as pool:
        started = list(pool.map(stack.enter_context, start))
        yield [f"http://{address}" for address, _ in started]


@contextlib.contextmanager
def standin(log: Path) -> Iterator[tuple[str, int]]:
    """The address of a stand-in engine and its process."""
    (port,) = free_ports(1)
    flags = ("--host=127.0.0.1", f"--port={port}", f"--block-size={BLOCK}", "--enable-prompt-tokens-details")
    environment = os.environ | {"VLLM_SERVER_DEV_MODE": "1", "STANDIN_STARTUP_SECONDS": "0"}
    command = [sys.executable, "-m", "promptgroup_local.engine", SERVED, *flags]
    with log.open("wb") as out, subprocess.Popen(command, env=environment, stdout=out, stderr=out) as engine:
        try:
            wait_for(lambda: answers(f"http://127.0.0.1:{port}") or None, "the engine to serve")
            yield f"127.0.0.1:{port}", engine.pid
        finally:
            engine.terminate()


def test_guests_find_as_much_in_cache_as_with_the_best_router_and_each_first_request_is_warm(
    engines: list[str], tmp_path: Path
) -> None:
    began = time.monotonic()
    prove(engines)
    logger.info("%d prompts were proven on %d engines in %.1f s", len(NAMES), len(engines), time.monotonic() - began)
    with guests_of_one_host(engines, tmp_path) as url:
        ours = contest_of("guests of one host", [url], engines)
    emptied(engines)
    others = [contest_of("round robin", engines, engines)]
    for name in PINNED:
        if not (routers.ROOT / ".cache" / "peers" / f"{name}-{PINNED[name]}" / "bin" / name).exists():
            logger.info("%s is not installed", name)
            continue
        with peer(name, "cache_aware", engines, tmp_path) as url:
            emptied(engines)
            others.append(contest_of(f"{name} cache_aware", [url], engines))
    assert {turn.status for turn in ours.turns + ours.first} == {200}
    assert warm(ours.first) == len(ours.first)
    assert ours.rates[0] >= max(other.rates[0] for other in others)
    # in the second round all have the prompts in both caches, so that only sessions that move make a difference
    assert ours.rates[1] >= max(other.rates[1] for other in others) - 0.02
