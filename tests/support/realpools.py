"""A real KV pool for real vLLM engines: LMCache's multi-process server, with a Redis or Valkey behind it if wanted."""

import itertools
import json
import os
import subprocess
import threading
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Self

from promptgroup_contract.names import HEADER_SERVED_BY
from promptgroup_local.kubectl import wait_for
from promptgroup_local.load.prompts import system_prompt
from promptgroup_local.ports import free_ports
from promptgroup_local.real.engine import MODEL, TASK, RealEngine
from promptgroup_local.real.vllm import VLLM
from support.redisserver import BINARY, UNSAVED, answers

CHUNK = 256
"""Tokens that LMCache keeps together."""
MEMORY = 1.0
"""GiB of its memory: half a million tokens of this model."""
START_SECONDS = 900.0

POOLED: RealEngine = replace(
    VLLM,
    program='exec pool-venv/bin/python -m vllm.entrypoints.cli.main serve "$@" --host {pod_ip}',
    parts=("pool-venv/bin/lmcache", *VLLM.parts[1:]),
    environment={**VLLM.environment, "VLLM_NO_USAGE_STATS": "1"},
)
"""vLLM from an environment that has LMCache as well."""


_loads = itertools.count()


class Store:
    """A Redis or Valkey behind a pool; killed and started again on its port, empty."""

    def __init__(self, folder: Path) -> None:
        (self.port,) = free_ports(1)
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        flags = ("--bind", "127.0.0.1", "--port", str(self.port), *UNSAVED)
        quiet, command = subprocess.DEVNULL, [str(BINARY), *flags, "--dir", str(self._folder)]
        self._process = subprocess.Popen(command, stdout=quiet, stderr=quiet)
        wait_for(lambda: answers(self.port) or None, "the store to answer")

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class Pool:
    """LMCache's server; killed and started again on the same ports."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self.http = free_ports(2)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def spec(self) -> dict[str, str]:
        """`spec.cache.pool` of a group that uses it."""
        return {"type": "LMCache", "address": f"127.0.0.1:{self.port}", "monitor": f"127.0.0.1:{self.http}"}

    def start(self, store: Store | None = None) -> None:
        """Start it, empty, and wait until it says that it is healthy."""
        command = [
            "pool-venv/bin/lmcache", "server", "--host=127.0.0.1", f"--port={self.port}", "--http-host=127.0.0.1",
            f"--http-port={self.http}", f"--l1-size-gb={MEMORY}", f"--chunk-size={CHUNK}", "--eviction-policy=LRU",
            "--supported-transfer-mode=engine_driven",
        ]  # fmt: skip
        if store is not None:
            behind = {"type": "resp", "host": "127.0.0.1", "port": store.port, "num_workers": 2}
            command.append(f"--l2-adapter={json.dumps(behind)}")
        environment = os.environ | {"LMCACHE_TRACK_USAGE": "false", "OMP_NUM_THREADS": "1"}
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(command, cwd=self.folder, env=environment, stdout=quiet, stderr=quiet)
        wait_for(self._healthy, "the pool to be healthy", seconds=START_SECONDS)

    def kill(self) -> None:
        """End it at once, as a node that is lost."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stored(self) -> float:
        """Chunks that the store behind it has taken since its start."""
        metrics = f"http://127.0.0.1:{self.http}/metrics"
        return summed(metrics, "lmcache_mp_l2_store_completed_objects_chunks_total")

    def _healthy(self) -> bool | None:
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self.http}/healthcheck", timeout=5) as page:
            return True if page.status == 200 else None
        return None


@contextmanager
def running(folder: Path) -> Iterator[Pool]:
    """A pool with nothing behind it, while the context lasts."""
    pool = Pool(folder)
    pool.start()
    try:
        yield pool
    finally:
        pool.kill()


def summed(url: str, name: str, without: str = "\0") -> float:
    """Sum of the series of a name on a page of metrics, but for those that have a text."""
    with urllib.request.urlopen(url, timeout=30) as page:
        lines = page.read().decode().splitlines()
    found = (each for each in lines if each.startswith((f"{name}{{", f"{name} ")) and without not in each)
    return sum(float(each.rsplit(" ", 1)[1]) for each in found)


def copied(engine: str) -> float:
    """Tokens that an engine says came from elsewhere than its device, by vLLM's counter by source."""
    return summed(f"{engine}/metrics", "vllm:prompt_tokens_cached_by_source_total", 'source="device"')


def forget(engine: str) -> None:
    """Empty an engine's own cache; it does nothing, behind a 200, while a request runs."""

    def emptied() -> bool | None:
        request = urllib.request.Request(f"{engine}/reset_prefix_cache", method="POST")
        with urllib.request.urlopen(request, timeout=30) as answer:
            return None if b"false" in answer.read() else True

    wait_for(emptied, "the engine's cache to be emptied")


class Answer(NamedTuple):
    """What one request was told."""

    prompt: int
    cached: int
    served_by: str
    """The router's word; empty without a router."""


def ask(url: str, question: str, timeout: float = 300) -> Answer:
    """Ask with the group's system prompt, for one token."""
    return go_on(url, [{"role": "user", "content": question}], timeout)


def go_on(url: str, talk: Sequence[Mapping[str, str]], timeout: float = 300) -> Answer:
    """Go on with a talk behind the group's system prompt, for one token."""
    messages = [{"role": "system", "content": system_prompt(TASK, 1)}, *talk]
    return sent(url, {"model": MODEL, "messages": messages, "max_tokens": 1, "temperature": 0}, timeout)


def sent(url: str, body: Mapping[str, object], timeout: float = 300) -> Answer:
    """Send a chat and return what its usage says."""
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        usage = json.load(answer)["usage"]
        served_by = answer.headers.get(HEADER_SERVED_BY, "")
    details = usage.get("prompt_tokens_details") or {}
    return Answer(usage["prompt_tokens"], details.get("cached_tokens") or 0, served_by)


class Asking:
    """Clients that ask one question after the other, none twice, while the context lasts."""

    def __init__(self, url: str, clients: int) -> None:
        self.failed: list[str] = []
        self.answers: list[Answer] = []
        self._stop = threading.Event()
        names = [f"{next(_loads)}-{at}" for at in range(clients)]
        self._threads = [threading.Thread(target=self._ask, args=(url, name)) for name in names]

    def _ask(self, url: str, name: str) -> None:
        turn = 0
        while not self._stop.is_set():
            turn += 1
            try:
                self.answers.append(ask(url, f"Point {turn} of client {name} " + "and its neighbours " * 200))
            except Exception as error:  # noqa: BLE001 - each is a failed request
                self.failed.append(repr(error))

    def more(self, count: int) -> None:
        """Wait for so many more answers."""
        wanted = len(self.answers) + count
        wait_for(lambda: True if len(self.answers) >= wanted else None, f"{count} more answers", seconds=300)

    def __enter__(self) -> Self:
        for each in self._threads:
            each.start()
        self.more(len(self._threads))
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for each in self._threads:
            each.join()
