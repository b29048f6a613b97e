"""`make gpu`: what a warm prefix and a router are worth on one GPU, in ten minutes and without a network.

The time to first token of one vLLM engine is measured without and with a warm prefix, by length. Then two engines, each
with half of the memory, serve the same conversations in turn and behind the router. The model's weights are random. The
result is two tables in Markdown. `--standin` runs the same with stand-in engines, where there is no GPU.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import uvloop

from promptgroup_contract.encoding import encode_table
from promptgroup_contract.table import Group, Prompt, Revision, RoutingTable, Slot, SlotState
from promptgroup_local.cluster import process
from promptgroup_local.load.client import Target, drive
from promptgroup_local.load.counters import measure, scrape
from promptgroup_local.load.prompts import system_prompt
from promptgroup_local.load.summary import Summary, summarise
from promptgroup_local.load.workload import Task, conversations, sessions
from promptgroup_local.ports import free_ports
from promptgroup_local.real import random_model
from promptgroup_operator.engines.dialects.dialect import arguments
from promptgroup_operator.engines.dialects.vllm import VLLM

MODEL = "random-1b"
LENGTHS = (2_000, 8_000, 32_000, 100_000)
"""Tokens of the prompts, with the tokenizer of `random_model`; of a stand-in a quarter of it."""
SUFFIX = 64
"""Tokens of a prompt that its warm prefix does not have."""
WHOLE, HALF = 0.85, 0.42
"""Shares of the GPU's memory that one engine, and each of two, may use."""
START_SECONDS = 240.0
REQUEST_SECONDS = 120.0
_HEADS = ("tokens", "TTFT cold", "TTFT warm", "cold / warm", "cached", "prefill tokens/s")


@dataclass(frozen=True, slots=True)
class Load:
    """The conversations that both ways of routing get."""

    sessions: int = 64
    turns: int = 4
    concurrency: int = 16


@dataclass(frozen=True, slots=True)
class FirstTokens:
    """Times to first token at one length of the prompt, in seconds; medians."""

    tokens: int
    cold: float
    warm: float
    cached: int
    """Tokens of the warm prompt that were cached."""

    def row(self) -> tuple[str, ...]:
        """Return the cells of a table."""
        rate = self.tokens / self.cold
        return (
            f"{self.tokens:,}",
            f"{1000 * self.cold:,.0f} ms",
            f"{1000 * self.warm:,.0f} ms",
            f"{self.cold / self.warm:.1f}",
            f"{self.cached:,}",
            f"{rate:,.0f}",
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print the tables; returns the exit status."""
    parser = argparse.ArgumentParser(prog="promptgroup_local.real.gpu", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--vllm",
        default="vllm",
        metavar="PROGRAM",
        help="the program, or a folder with venv/ (default: vllm on the PATH)",
    )
    parser.add_argument("--standin", action="store_true", help="use stand-in engines, without a GPU")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="requests a length (default: 3)")
    parser.add_argument(
        "--minutes", type=float, default=10.0, metavar="N", help="begin no length after it (default: 10)"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the tables there, too")
    given = parser.parse_args(argv)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        kit = Kit(Path(folder), given.vllm, standin=given.standin)
        try:
            text = uvloop.run(_tables(kit, given.repeat, until=began + 60 * given.minutes))
        except (TimeoutError, OSError) as error:
            print(f"error: {error}\n{kit.last_lines()}", file=sys.stderr)
            return 1
    print(text)
    if given.out is not None:
        given.out.write_text(text + "\n")
    return 0


async def _tables(kit: "Kit", repeat: int, until: float) -> str:
    kit.write_model()
    async with kit.engines(1, WHOLE) as (url,):
        result = [
            await first_tokens(url, length, repeat)
            for length in LENGTHS
            if time.monotonic() < until or length == LENGTHS[0]
        ]
    async with kit.engines(2, HALF) as urls:
        rows = [await _run("round robin", urls, urls, seed=1), await kit.routed(urls, seed=2)]
    return "\n".join(
        (f"{kit.title}\n", *markdown(_HEADS, [item.row() for item in result]), "", *markdown(*compared(rows)))
    )


async def first_tokens(url: str, tokens: int, repeat: int) -> FirstTokens:
    """Measure the time to first token of prompts that are new, and of others with the same prefix."""
    cold, warm = [], []
    first_token = _Told(0.0, 0, 0)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS)) as http:
        await _first_token(http, url, text_of(64, 0.5))  # the engine's first request is slower
        for number in range(repeat):
            prefix = text_of(tokens - SUFFIX, tokens + number)
            cold.append((await _first_token(http, url, prefix + text_of(SUFFIX, 0.1 + number))).seconds)
            first_token = await _first_token(http, url, prefix + text_of(SUFFIX, 0.2 + number))
            warm.append(first_token.seconds)
    return FirstTokens(first_token.prompt, statistics.median(cold), statistics.median(warm), first_token.cached)


@dataclass(frozen=True, slots=True)
class _Told:
    seconds: float
    """To the first event of a streamed completion."""
    prompt: int
    """Tokens of the prompt, as the engine counts them."""
    cached: int
    """Tokens of the prompt that were cached."""


async def _first_token(http: aiohttp.ClientSession, url: str, prompt: str) -> _Told:
    body = {
        "model": MODEL,
        "prompt": prompt,
        "max_tokens": 1,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    began, first, tokens, cached = time.monotonic(), 0.0, 0, 0
    async with http.post(f"{url}/v1/completions", json=body) as response:
        if response.status != 200:
            raise OSError(f"an engine answers {response.status}: {(await response.read())[:300]!r}")
        async for line in response.content:
            if not line.startswith(b"data: {"):
                continue
            first = first or time.monotonic() - began
            usage = json.loads(line[len(b"data: ") :]).get("usage") or {}
            tokens = usage.get("prompt_tokens") or tokens
            cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or cached
    return _Told(first, tokens, cached)


def text_of(length: int, seed: float) -> str:
    """Return a text of so many bytes, which are tokens, that no other seed has."""
    draw = random.Random(seed)  # noqa: S311 - a workload, no secret
    return "".join(draw.choices("abcdefghijklmnopqrstuvwxyz ", k=length))


async def _run(name: str, urls: Sequence[str], engines: Sequence[str], seed: int, load: Load = Load()) -> Summary:
    task = Task("code", system_prompt("code", 1))
    before = await scrape(engines)
    drawn = conversations(sessions([task], load.sessions, seed, turns=load.turns))
    outcomes = await drive(drawn, Target(urls, MODEL), concurrency=load.concurrency)
    return summarise(name, outcomes, measure(before, await scrape(engines)), warm=[task.system])


def compared(rows: Sequence[Summary]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return heads and lines of the table of two engines."""

    def told(value: float | None, form: str) -> str:
        return "-" if value is None else form.format(value)

    lines = [
        ("requests (failed)", [f"{row.requests} ({row.failures})" for row in rows]),
        ("prompt tokens found in cache", [told(row.measured.hit_rate, "{:.1%}") for row in rows]),
        ("of what one infinite cache would find", [told(row.of_possible, "{:.1%}") for row in rows]),
        ("TTFT p50", [told(row.ttft_p50 and 1000 * row.ttft_p50, "{:.0f} ms") for row in rows]),
        ("TTFT p99", [told(row.ttft_p99 and 1000 * row.ttft_p99, "{:.0f} ms") for row in rows]),
    ]
    heads = ("two engines of half the memory", *(row.name for row in rows))
    return heads, [(name, *cells) for name, cells in lines]


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table, numbers to the right."""
    return [
        f"| {' | '.join(heads)} |",
        f"|{'|'.join(['---', *['--:'] * (len(heads) - 1)])}|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


class Kit:
    """The programs of one run: engines, and a router without a cluster."""

    def __init__(self, folder: Path, vllm: str, *, standin: bool) -> None:
        self._folder = folder
        self._vllm = str(Path(vllm) / "venv/bin/vllm") if Path(vllm).is_dir() else vllm
        self._standin = standin
        self._logs: list[Path] = []

    @property
    def title(self) -> str:
        """The machine and the engine, for the head of the result."""
        if self._standin:
            return "Stand-in engines: compare the columns, not the milliseconds."
        query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
        gpu = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip() or "unknown GPU"
        version = subprocess.run([self._vllm, "--version"], capture_output=True, text=True, check=False).stdout
        return (
            f"vLLM {version.strip().splitlines()[-1] if version.strip() else '?'} on {gpu}; 1.1B Llama, random weights."
        )

    def write_model(self) -> None:
        """Write the model that engines load."""
        random_model.write(self._folder / MODEL)

    def last_lines(self) -> str:
        """Return the end of the last program's output."""
        return self._logs[-1].read_text(errors="replace")[-2000:] if self._logs else ""

    @contextlib.asynccontextmanager
    async def engines(self, count: int, memory: float) -> AsyncIterator[list[str]]:
        """Yield the URLs of engines, which are started one after the other: each measures the free memory."""
        urls = []
        with contextlib.ExitStack() as stack:
            for port in free_ports(count):
                urls.append(f"http://127.0.0.1:{port}")
                await _serves(stack.enter_context(self._engine(port, memory)), urls[-1] + VLLM.health)
            yield urls

    def command(self, port: int, memory: float) -> list[str]:
        """Return the command line of an engine."""
        user = [f"--served-model-name={MODEL}", "--host=127.0.0.1", f"--gpu-memory-utilization={memory}"]
        user += [
            "--load-format=dummy",
            "--dtype=bfloat16",
            "--enforce-eager",
            f"--max-model-len={random_model.LONGEST}",
        ]
        model = MODEL if self._standin else str(self._folder / MODEL)
        program = [sys.executable, "-m", "promptgroup_local.engine"] if self._standin else [self._vllm, "serve"]
        return [*program, *arguments(VLLM, model, port, tuple(user))]

    def _engine(self, port: int, memory: float) -> "contextlib.AbstractContextManager[subprocess.Popen[bytes]]":
        offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
        return self._running(self.command(port, memory), f"engine-{port}", {**VLLM.env, **offline})

    async def routed(self, engines: Sequence[str], seed: int) -> Summary:
        """Run the conversations behind a router."""
        port, admin = free_ports(2)
        table = self._folder / "table.json"
        table.write_text(json.dumps(encode_table(table_of([url.removeprefix("http://") for url in engines]))))
        command = [sys.executable, "-m", "promptgroup_router", f"--table={table}", f"--port={port}"]
        command += [f"--admin-port={admin}", "--host=127.0.0.1", "--allow-networks=127.0.0.0/8"]
        with self._running(command, "router", {}) as router:
            await _serves(router, f"http://127.0.0.1:{admin}/readyz")
            return await _run("PromptGroup router", [f"http://127.0.0.1:{port}"], engines, seed)

    @contextlib.contextmanager
    def _running(self, command: Sequence[str], name: str, env: "dict[str, str]") -> "Iterator[subprocess.Popen[bytes]]":
        log = self._folder / f"{name}.log"
        self._logs.append(log)
        started = process.start(command, log, {**os.environ, **env})
        try:
            yield started
        finally:
            process.stop(started, seconds=30)


def table_of(addresses: Sequence[str]) -> RoutingTable:
    """Return the routing table of one group at these addresses."""
    prompt = Prompt(system_prompt("code", 1))
    slots = tuple(Slot(number, SlotState.READY, address) for number, address in enumerate(addresses))
    revision = Revision(prompt.fingerprint, len(prompt.system.encode()), False, 100, slots, prompt=prompt)
    return RoutingTable((Group("gpu", "code", MODEL, "", (revision,)),))


async def _serves(program: "subprocess.Popen[bytes]", health: str) -> None:
    """Wait until a program answers 200.

    Raises:
        TimeoutError: it does not, or has ended.
    """
    until = time.monotonic() + START_SECONDS
    async with aiohttp.ClientSession() as http:
        while time.monotonic() < until:
            if program.poll() is not None:
                raise TimeoutError(f"a program ended with exit status {program.returncode}")
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                async with http.get(health, timeout=aiohttp.ClientTimeout(total=5)) as response:
                    if response.status == 200:
                        return
            await asyncio.sleep(0.2)
    raise TimeoutError(f"{health} does not answer 200 within {START_SECONDS:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
