"""What the operator sees of a stand-in engine with a KV tier, over HTTP."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
import urllib3

from promptgroup_contract.table import Prompt
from promptgroup_local.kubectl import wait_for
from promptgroup_local.ports import free_ports
from promptgroup_operator.engines.dialects.dialect import Dialect
from promptgroup_operator.engines.dialects.sglang import SGLANG
from promptgroup_operator.engines.dialects.vllm import VLLM
from promptgroup_operator.engines.engine import EngineClient
from promptgroup_operator.load.engine_history import EngineHistory
from promptgroup_operator.warmth.warmup import judge_evidence
from promptgroup_operator.world.snapshot import ContainerId
from support.groups import PROMPTS

pytestmark = pytest.mark.integration

TOKENS = 1280
"""The GPU holds one prompt, and part of another."""
ENGINES: dict[str, tuple[Dialect, list[str], str]] = {
    "vLLM": (
        VLLM,
        [
            "tiny",
            "--enable-prompt-tokens-details",
            f"--num-gpu-blocks-override={TOKENS // 16}",
            '--kv-transfer-config={"kv_connector":"LMCacheMPConnector"}',
        ],
        "/reset_prefix_cache",
    ),
    "SGLang": (
        SGLANG,
        [
            *("python3", "-m", "sglang.launch_server", "--model-path=tiny", "--page-size=16"),
            *("--enable-metrics", "--enable-cache-report", f"--max-total-tokens={TOKENS}"),
            *("--enable-hierarchical-cache", "--hicache-size=1"),
        ],
        "/flush_cache",
    ),
}
C = ContainerId("c")


@contextmanager
def running(argv: list[str]) -> Iterator[str]:
    """An engine; gives its host and port."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "promptgroup_local.engine", *argv, "--host=127.0.0.1", f"--port={port}"]
    environment = os.environ | {"VLLM_SERVER_DEV_MODE": "1"}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            wait_for(lambda: _answers(port), "the engine")
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()


def _answers(port: int) -> bool | None:
    try:
        return urllib3.request("GET", f"http://127.0.0.1:{port}/health", retries=False).status == 200 or None
    except urllib3.exceptions.HTTPError:
        return None


def ask(address: str, letter: str, question: str) -> tuple[int, int]:
    """Prompt tokens of a request, and those of them that were cached."""
    messages = [{"role": "system", "content": PROMPTS[letter]}, {"role": "user", "content": question}]
    body: dict[str, Any] = {"model": "tiny", "messages": messages, "max_tokens": 1}
    usage = urllib3.request("POST", f"http://{address}/v1/chat/completions", json=body).json()["usage"]
    return usage["prompt_tokens"], (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0


@pytest.mark.parametrize("engine", ENGINES)
def test_what_a_tier_brings_is_counted_to_the_token_and_never_called_the_gpus(engine: str) -> None:
    dialect, argv, reset = ENGINES[engine]
    with running(argv) as address, closing(EngineClient()) as client:
        first = client.prove(address, dialect, "tiny", Prompt(PROMPTS["a"]))
        assert "KV tier" not in judge_evidence(first, "").message
        assert first.shared_tokens is not None
        needed = first.shared_tokens // 16 * 16

        rates, before = EngineHistory(), client.read(address, dialect)
        rates.add(C, before, datetime.now(UTC))
        asked = [ask(address, letter, f"what is rule {turn}?") for turn in range(3) for letter in "ab"]
        touch = client.refresh(address, dialect, "tiny", Prompt(PROMPTS["a"]), needed)
        rates.spend(C, touch.spent, datetime.now(UTC))
        after = client.read(address, dialect)
        rates.add(C, after, datetime.now(UTC))
        prompt, cached = (sum(column) for column in zip(*asked, strict=True))
        brought = after.tiered - before.tiered - touch.spent.tiered
        assert after.hits - before.hits == cached + (touch.spent.hits or 0)
        assert brought > 0
        assert rates.rates([C]) == (cached / prompt, brought / prompt)

        assert urllib3.request("POST", f"http://{address}{reset}").status == 200
        lost = client.refresh(address, dialect, "tiny", Prompt(PROMPTS["a"]), needed)
        assert (lost.cached, lost.copied) == (0, needed)
        assert lost.then is not None
        assert lost.then >= needed

        assert urllib3.request("POST", f"http://{address}{reset}").status == 200
        copied = client.prove(address, dialect, "tiny", Prompt(PROMPTS["a"]))
        assert (copied.copied, copied.tiered) == (needed, 0)
        assert f"where {needed} were copied from a KV tier" in judge_evidence(copied, "").message
