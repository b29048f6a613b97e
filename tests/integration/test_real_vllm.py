"""Real vLLM engines on CPU. Skipped where VLLM names no folder with venv/ and tiny/."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3

from promptgroup_local import vllm, vllmdiagnosis
from promptgroup_local.kubectl import wait_for
from support.crosscaller import all_learned, timed_pairs, within, world
from support.ports import free_ports

VLLM = os.environ.get("VLLM", "")
SECONDS = 1500.0
"""Longest time of 600 prompts on two cores that have other work."""
WORDS = 60
"""Words of a text: some ten blocks."""

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.skipif(not VLLM, reason="VLLM names no folder with a real vLLM: see docs/research/real-vllm.md"),
]


def test_conditions_say_what_is_done_to_real_engines() -> None:
    assert vllmdiagnosis.main([f"--vllm={VLLM}"]) == 0


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of one engine that serves its model as `llama`."""
    found = vllm.folder("pytest", __doc__, [f"--vllm={VLLM}"])
    (port,) = free_ports(1)
    command, environment = vllm.served(found, "llama", port, ["--max-model-len=8192"])
    log = tmp_path_factory.mktemp("vllm") / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=found, env=os.environ | environment, stdout=out, stderr=out, start_new_session=True
        )

        def up() -> bool | None:
            assert process.poll() is None, log.read_text()[-4000:]
            with contextlib.suppress(urllib3.exceptions.HTTPError):
                return urllib3.request("GET", f"http://127.0.0.1:{port}/health", retries=False).status == 200 or None
            return None

        try:
            wait_for(up, "vLLM to serve", seconds=vllm.START_SECONDS)
            yield f"127.0.0.1:{port}"
        finally:
            # its workers are processes of their own
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@pytest.mark.parametrize("isolated", [True, False])
def test_no_way_tells_anything_of_callers_who_are_kept_apart(tmp_path: Path, engine: str, isolated: bool) -> None:
    async def check() -> None:
        async with world(tmp_path, isolated=isolated, engine=engine, words=WORDS) as it:
            found, again = await all_learned(it)
            print(found, "own:", again)  # noqa: T201 - shown by pytest -s
            assert again > 100
            if isolated:
                assert {name: tokens for name, tokens in found.items() if tokens > 0} == {}
            else:
                assert sum(tokens > 100 for tokens in found.values()) >= 15, found

    within(check(), SECONDS)


@pytest.mark.parametrize(("isolated", "pairs"), [(True, 200), (False, 40)])
def test_times_tell_nothing_of_callers_who_are_kept_apart(
    tmp_path: Path, engine: str, isolated: bool, pairs: int
) -> None:
    async def check() -> None:
        async with world(tmp_path, isolated=isolated, engine=engine, words=WORDS) as it:
            chance = await timed_pairs(it, pairs)
            print(f"{pairs} pairs, isolated {isolated}: p = {chance:.2g}")  # noqa: T201
            assert chance > 1e-3 if isolated else chance < 1e-6

    within(check(), SECONDS)
