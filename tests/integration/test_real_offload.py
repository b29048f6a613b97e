"""vLLM's own offloading on the CPU: the memory behind its cache, and the volume behind that, with the operator's flags.

vLLM refuses to offload where there is no GPU. `support.hostoffload`, a plugin, stands in for streams and copies of one;
all else is vLLM's own. Skipped where VLLM names no folder with venv/ and tiny/.
"""

import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import support.hostoffload
from promptgroup_contract.table import Prompt
from promptgroup_local.kubectl import wait_for
from promptgroup_local.load.prompts import system_prompt
from promptgroup_local.real.engine import TASK
from promptgroup_local.real.vllm import VLLM
from promptgroup_operator.engines import tiers
from promptgroup_operator.engines.dialects.pod_parts import FOLDER
from promptgroup_operator.engines.dialects.vllm import LEFT_BEHIND
from promptgroup_operator.engines.engine import EngineClient
from promptgroup_operator.world.snapshot import Reading
from support.builders import spec
from support.realengines import SERVED, marks, serving
from support.realpools import Answer, copied, forget, sent, summed

logger = logging.getLogger(__name__)

pytestmark = marks(VLLM)

BLOCK = 32
BLOCKS = 512
"""Of the engine's own cache: 16,384 tokens."""
PROMPT = Prompt(system_prompt(TASK, 1), "", "")

Started = Callable[[dict[str, Any]], AbstractContextManager[str]]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    """Starts an engine as the operator does for `spec.cache`; the volume is a folder of the test."""
    plugin = tmp_path / "plugin"
    about = plugin / "hostoffload-0.dist-info"
    about.mkdir(parents=True)
    shutil.copy(support.hostoffload.__file__, plugin)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: hostoffload\nVersion: 0\n")
    (about / "entry_points.txt").write_text("[vllm.general_plugins]\nhostoffload = hostoffload:register\n")
    engine = replace(VLLM, environment={**VLLM.environment, "PYTHONPATH": str(plugin), "VLLM_NO_USAGE_STATS": "1"})

    def start(offload: dict[str, Any]) -> AbstractContextManager[str]:
        made = tiers.parts(spec(cache={"offload": offload}))
        args = [each.replace(FOLDER, str(tmp_path)) for each in made.args]
        return serving(engine, tmp_path / "log", [f"--num-gpu-blocks-override={BLOCKS}", *args])

    before = set(regions())
    yield start
    for left in set(regions()) - before:  # as the operator's hook does in a pod
        left.unlink()


def regions() -> list[Path]:
    """Files in which vLLM keeps KV."""
    folder, _, pattern = LEFT_BEHIND.rpartition("/")
    return list(Path(folder).glob(pattern))


@pytest.fixture
def client() -> Iterator[EngineClient]:
    found = EngineClient()
    yield found
    found.close()


def asked(address: str, text: str, **more: object) -> Answer:
    """Ask one thing behind the system prompt."""
    messages = [{"role": "system", "content": PROMPT.system}, {"role": "user", "content": text}]
    return sent(f"http://{address}", {"model": SERVED, "messages": messages, "max_tokens": 1, **more})


def question(number: int) -> str:
    return f"Session {number}. " + " ".join(f"item {number * 7 + each} of it;" for each in range(300))


def read(client: EngineClient, address: str) -> Reading:
    return client.read(address, VLLM.dialect)


def test_what_memory_behind_the_cache_brings_is_counted_to_the_token(started: Started, client: EngineClient) -> None:
    """More sessions than the engine's cache holds, twice in turn; then the cache is emptied."""
    with started({"memory": "1Gi"}) as address:
        first = client.prove(address, VLLM.dialect, SERVED, PROMPT)
        assert (first.copied, first.tiered) == (0, 0)
        one = asked(address, question(0))
        count = 2 * BLOCKS * BLOCK // (one.prompt - one.cached)
        for number in range(count):
            asked(address, question(number))
        before, brought = read(client, address), copied(f"http://{address}")
        answers = [asked(address, question(number)) for number in range(count)]
        after, brought = read(client, address), copied(f"http://{address}") - brought
        cached = sum(each.cached for each in answers)
        logger.info("%d sessions again: of %d tokens %d found", count, sum(each.prompt for each in answers), cached)
        logger.info("%d of them copied", brought)
        assert after.queries - before.queries == sum(each.prompt for each in answers)
        assert after.hits - before.hits == cached
        assert after.tiered - before.tiered == brought
        assert after.sources["memory"] - before.sources.get("memory", 0) == brought
        # nothing is computed twice but the block that is not full
        assert [each for each in answers if each.cached != each.prompt // BLOCK * BLOCK] == []
        assert brought > cached / 3
        forget(f"http://{address}")
        again = client.prove(address, VLLM.dialect, SERVED, PROMPT)
        logger.info("%s", again)
        # the proof says that the prefix is in the engine's own cache, and that it was copied there
        needed = (again.shared_tokens or 0) // BLOCK * BLOCK
        assert (again.cached_tokens, again.copied, again.tiered) == (needed, needed, 0)


def test_a_volume_outlives_the_engine_and_keeps_salts_apart(started: Started, client: EngineClient) -> None:
    volume = {"memory": "1Gi", "claimName": "kv"}
    with started(volume) as address:
        told = [asked(address, question(1), cache_salt=salt) for salt in ("a", "b")]
        assert [each.cached for each in told] == [0, 0]
        size = sum(each.prompt // BLOCK * BLOCK for each in told)
        asked(address, "What a step has computed is written with the next one.")

        def written() -> bool | None:
            stored, kept = (
                summed(f"http://{address}/metrics", f"vllm:kv_offload_{each}_total")
                for each in ("store_bytes", "tiering_write_bytes")
            )
            return stored == kept > size or None

        wait_for(written, "the volume to have what was computed")
    with started(volume) as address:  # its memory is empty
        before, brought = read(client, address), copied(f"http://{address}")
        found = [asked(address, question(1), cache_salt=salt) for salt in ("a", "b", "c")]
        after, brought = read(client, address), copied(f"http://{address}") - brought
        logger.info("%s, %d copied", found, brought)
        assert [each.cached for each in found] == [*(each.prompt // BLOCK * BLOCK for each in told), 0]
        assert after.tiered - before.tiered == brought == after.hits - before.hits == size
