"""Two real vLLM engines on CPU with a real KV pool, LMCache's multi-process server.

Skipped where VLLM_POOL names no folder with pool-venv/ (vLLM and LMCache), and tiny/ (a model's config and tokenizer).
"""

import json
import logging
import os
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import pytest

from promptgroup_local import lab
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from promptgroup_local.load.prompts import system_prompt
from promptgroup_local.real.engine import MODEL, REPLICAS, TASK
from promptgroup_local.real.vllm import VLLM
from promptgroup_operator.engines.engine import EngineClient
from promptgroup_operator.load.engine_history import EngineHistory
from promptgroup_operator.world.snapshot import ContainerId, Reading
from support.ports import free_ports

pytestmark = [pytest.mark.real, pytest.mark.integration]

logger = logging.getLogger(__name__)

FOLDER = os.environ.get("VLLM_POOL", "")
GROUP = "pooled"
START_SECONDS = 900.0
CHUNK = 256
"""Tokens that LMCache keeps together."""
QUESTIONS = ["the parser", "the cache", "the build", "the tests", "the release", "the index"]


class Pool:
    """LMCache's server; killed and started again on the same ports."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self.http = free_ports(2)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it says that it is healthy."""
        command = [
            "pool-venv/bin/lmcache", "server", "--host=127.0.0.1", f"--port={self.port}", "--http-host=127.0.0.1",
            f"--http-port={self.http}", "--l1-size-gb=0.5", f"--chunk-size={CHUNK}", "--eviction-policy=LRU",
            "--supported-transfer-mode=engine_driven",
        ]  # fmt: skip
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

    def _healthy(self) -> bool | None:
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self.http}/healthcheck", timeout=5) as page:
            return True if page.status == 200 else None
        return None


@contextmanager
def running(pool: Pool) -> Iterator[Pool]:
    pool.start()
    try:
        yield pool
    finally:
        pool.kill()


def ask(url: str, question: str, timeout: float = 300) -> tuple[int, int]:
    """Prompt tokens of one request, and those of them that usage says were cached."""
    body = {
        "model": MODEL,
        "messages": [
            {"role": "system", "content": system_prompt(TASK, 1)},
            {"role": "user", "content": f"Explain {question} in one sentence."},
        ],
        "max_tokens": 1,
        "temperature": 0,
    }
    request = urllib.request.Request(
        f"{url}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        usage = json.load(answer)["usage"]
    return usage["prompt_tokens"], (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0


def readings(client: EngineClient, engines: list[str]) -> list[Reading]:
    return [client.read(each.removeprefix("http://"), VLLM.dialect) for each in engines]


def copied(engine: str) -> float:
    """Tokens that an engine says came from elsewhere than its device, by vLLM's counter by source."""
    with urllib.request.urlopen(f"{engine}/metrics", timeout=30) as page:
        lines = page.read().decode().splitlines()
    found = [line for line in lines if line.startswith("vllm:prompt_tokens_cached_by_source_total{")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in found if 'source="device"' not in line)


def forget(engine: str) -> None:
    """Empty an engine's own cache."""
    urllib.request.urlopen(urllib.request.Request(f"{engine}/reset_prefix_cache", method="POST"), timeout=30).close()


def gate(pod: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(
        each for each in pod["status"]["conditions"] if each["type"] == "promptgroup.dev/prefix-warm"
    )
    return found


class Load:
    """Clients that ask one question after the other, each at its own router connection."""

    def __init__(self, url: str, clients: int) -> None:
        self.failed: list[str] = []
        self.answered = 0
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(url, at)) for at in range(clients)]

    def _ask(self, url: str, at: int) -> None:
        turn = 0
        while not self._stop.is_set():
            turn += 1
            try:
                ask(url, f"point {turn} of client {at} " + "and its neighbours " * 200)
                self.answered += 1
            except Exception as error:  # noqa: BLE001 - each is a failed request
                self.failed.append(repr(error))

    def __enter__(self) -> Self:
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for each in self._threads:
            each.join()


@pytest.mark.skipif(not FOLDER, reason="VLLM_POOL names no folder with a real vLLM and LMCache")
def test_a_real_pool_is_counted_told_and_missed_by_nobody(tmp_path: Path) -> None:
    folder = Path(FOLDER).resolve()
    program = 'exec pool-venv/bin/python -m vllm.entrypoints.cli.main serve --host {pod_ip} "$@"'
    images = {"vllm/vllm-openai": ["bash", "-c", f'cd "{folder}" && {program}', "vllm"]}
    with running(Pool(folder)) as pool, LocalCluster(tmp_path, images=images) as local:
        kubectl = local.kubectl(GROUP)
        lab.install_operator(kubectl)
        kubectl.run("create", "namespace", GROUP)
        lab.install_router(kubectl)
        store = {"type": "LMCache", "address": f"127.0.0.1:{pool.port}", "monitor": f"127.0.0.1:{pool.http}"}
        environment = {"VLLM_NO_USAGE_STATS": "1"}
        kubectl.apply(VLLM.group(GROUP, (), environment, replicas=REPLICAS, cache={"pool": store}))
        kubectl.wait_warm(GROUP, f"{REPLICAS}/{REPLICAS}", START_SECONDS)
        _proofs_say_what_was_copied(kubectl)
        _tokens_of_tiers_are_counted_exactly(kubectl)
        _a_pool_that_dies_fails_no_request(kubectl, pool)


def _proofs_say_what_was_copied(kubectl: Kubectl) -> None:
    """The second replica found the prefix of the first in the pool: it says so, and the first does not."""
    told = {}
    for pod in lab.engine_pods(kubectl, GROUP):
        condition = gate(pod)
        assert condition["reason"] == "PrefixCached"
        told[pod["metadata"]["name"]] = ("copied from a KV tier" in condition["message"], copied(lab.engine_url(pod)))
    assert all(said == (tokens > 0) for said, tokens in told.values()), told
    assert sorted(said for said, _ in told.values()) == [False, True], told


def _tokens_of_tiers_are_counted_exactly(kubectl: Kubectl) -> None:
    """Readings, and the shares made of them, are what clients were told and what vLLM counts by source."""
    engines = [lab.engine_url(pod) for pod in lab.engine_pods(kubectl, GROUP)]
    client, history = EngineClient(), EngineHistory()
    try:
        before, sources = readings(client, engines), sum(map(copied, engines))
        for name, reading in zip(engines, before, strict=True):
            history.add(ContainerId(name), reading, datetime.now(UTC))
        asked = []
        for turn in range(2):
            for engine in engines:
                forget(engine)
                asked += [ask(engine, f"{question} {turn}") for question in QUESTIONS]
        after = readings(client, engines)
        for name, reading in zip(engines, after, strict=True):
            history.add(ContainerId(name), reading, datetime.now(UTC))
        brought = sum(map(copied, engines)) - sources
    finally:
        client.close()
    prompt, cached = (sum(column) for column in zip(*asked, strict=True))
    assert sum(b.queries - a.queries for a, b in zip(before, after, strict=True)) == prompt
    assert sum(b.hits - a.hits for a, b in zip(before, after, strict=True)) == cached
    assert sum(b.tiered - a.tiered for a, b in zip(before, after, strict=True)) == brought
    assert brought > 0
    assert brought % CHUNK == 0
    assert history.rates(map(ContainerId, engines)) == (cached / prompt, brought / prompt)
    told = wait_for(lambda: _rates(kubectl), "the status to have both hit rates", seconds=120)
    assert told == pytest.approx(((cached - brought) / prompt, brought / prompt), abs=0.06)


def _rates(kubectl: Kubectl) -> tuple[float, float] | None:
    cache = (kubectl.get("promptgroup", GROUP) or {}).get("status", {}).get("cache", {})
    found = [cache.get(name) for name in ("gpuHitRate", "tierHitRate")]
    return (int(found[0][:-1]) / 100, int(found[1][:-1]) / 100) if all(found) else None


def _a_pool_that_dies_fails_no_request(kubectl: Kubectl, pool: Pool) -> None:
    kubectl.wait_condition(GROUP, "CachePoolReady", "True", "PoolReady")
    with Load(lab.router_url(kubectl), 3) as load:
        wait_for(lambda: True if load.answered >= 3 else None, "answers before the pool dies", seconds=300)
        pool.kill()
        died = time.monotonic()
        kubectl.wait_condition(GROUP, "CachePoolReady", "False", "PoolUnreachable")
        noticed = time.monotonic() - died
        so_far = load.answered
        wait_for(lambda: True if load.answered >= so_far + 6 else None, "answers without the pool", seconds=300)
        pool.start()
        kubectl.wait_condition(GROUP, "CachePoolReady", "True", "PoolReady")
    logger.info("%d answers, %d failed; told after %.0f s", load.answered, len(load.failed), noticed)
    assert load.failed == []
    assert noticed < 30
    assert all(
        not each.get("restartCount")
        for pod in lab.engine_pods(kubectl, GROUP)
        for each in pod["status"]["containerStatuses"]
    )
