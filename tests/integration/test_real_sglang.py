"""Real SGLang engines on CPU. Skipped where SGLANG names no folder with venv/, tiny/ and shims/.

What is judged is what is counted: the times of these engines say nothing.
"""

import itertools
import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import urllib3

from promptgroup_contract.table import Prompt
from promptgroup_local.kubectl import wait_for
from promptgroup_local.load.prompts import system_prompt
from promptgroup_local.real import diagnosis
from promptgroup_local.real.engine import TASK
from promptgroup_local.real.sglang import SGLANG
from promptgroup_operator.engines.engine import EngineClient
from promptgroup_operator.world.snapshot import Reading
from support.crosscaller import all_learned, within, world
from support.realengines import SERVED, marks, named, serving

pytestmark = marks(SGLANG)

POOL = 20_480
"""Tokens of KV cache of the engine beside no cluster."""
SECONDS = 1500.0
"""Longest time of some hundred prompts on two cores that have other work."""
PROMPT = Prompt(system_prompt(TASK, 1), "", "")
SYSTEM = {"role": "system", "content": PROMPT.system}
CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
numbers = itertools.count()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("sglang") / "log"
    with serving(SGLANG, log, [f"--max-total-tokens={POOL}"]) as found:
        yield found


@pytest.fixture
def client() -> Iterator[EngineClient]:
    found = EngineClient()
    yield found
    found.close()


def post(address: str, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
    answer = urllib3.request("POST", f"http://{address}{path}", json={"model": SERVED, **body}, timeout=SECONDS)
    assert answer.status == 200, (answer.status, answer.data[:300])
    found: dict[str, Any] = answer.json()
    return found


def said(text: str, **more: object) -> dict[str, Any]:
    return {"messages": [SYSTEM, {"role": "user", "content": text}], "max_tokens": 1, "temperature": 0, **more}


def cached(address: str, text: str, **more: object) -> int:
    """Tokens of one chat that were found, by its usage."""
    details: dict[str, int] = post(address, CHAT, said(text, **more))["usage"]["prompt_tokens_details"]
    return details["cached_tokens"]


def streamed(address: str, text: str) -> dict[str, Any]:
    """The usage of a chat that streams."""
    body = {"model": SERVED, **said(text), "stream": True, "stream_options": {"include_usage": True}}
    answer = urllib3.request("POST", f"http://{address}{CHAT}", json=body, timeout=SECONDS)
    events = [line.removeprefix("data: ") for line in answer.data.decode().splitlines() if line.startswith("data: {")]
    found: dict[str, Any] = next(event["usage"] for event in map(json.loads, reversed(events)) if event.get("usage"))
    return found


def flush(address: str) -> None:
    """Empty the cache; it is refused while a request runs."""

    def flushed() -> bool | None:
        return urllib3.request("POST", f"http://{address}{SGLANG.reset}", timeout=30).status == 200 or None

    wait_for(flushed, "the cache to be flushed")


def counted(client: EngineClient, address: str, requests: float) -> Reading:
    """The reading that has so many requests: SGLang counts them after they are answered."""

    def found() -> Reading | None:
        reading = client.read(address, SGLANG.dialect)
        return reading if reading.requests == requests else None

    return wait_for(found, f"{requests} requests", lambda: client.read(address, SGLANG.dialect))


def test_warmth_is_proven_and_a_reset_is_seen(address: str, client: EngineClient) -> None:
    flush(address)
    proof = client.prove(address, SGLANG.dialect, SERVED, PROMPT)
    assert (proof.caching, proof.step) == (None, 1)  # its settings say that caching is on, and not its metrics
    assert proof.kv_tokens == POOL
    assert proof.shared_tokens is not None
    # to the token: all that the two prompts share is found
    assert proof.cached_tokens == proof.shared_tokens > 2000
    needed = proof.shared_tokens
    again = client.refresh(address, SGLANG.dialect, SERVED, PROMPT, needed)
    assert (again.cached or 0) >= needed
    flush(address)
    lost = client.refresh(address, SGLANG.dialect, SERVED, PROMPT, needed)
    assert (lost.cached or 0) < needed
    assert (lost.then or 0) >= needed


def computed(address: str) -> float:
    """Prompt tokens that the engine computed, for whomever."""
    page = urllib3.request("GET", f"http://{address}{SGLANG.dialect.metrics.path}", timeout=30).data.decode()
    names = ("sglang:realtime_tokens_total{", 'mode="prefill_compute"')
    return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if all(name in line for name in names))


def test_a_probe_computes_nothing(address: str) -> None:
    before = computed(address)
    assert before > 0
    assert urllib3.request("GET", f"http://{address}{SGLANG.dialect.health}", timeout=30).status == 200
    assert computed(address) == before


def test_evictions_are_counted_and_a_prompt_is_busy_while_it_is_computed(address: str, client: EngineClient) -> None:
    flush(address)
    before = client.read(address, SGLANG.dialect)
    written = 0
    with ThreadPoolExecutor(1) as executor:
        while written <= POOL:
            text = " ".join(f"{written}-{word}" for word in range(1000))
            body = {"messages": [{"role": "user", "content": text}], "max_tokens": 1}
            asked, seen = executor.submit(post, address, CHAT, body), 0
            while not asked.done():
                seen = max(seen, client.read(address, SGLANG.dialect).busy)
            assert seen == 1
            usage = asked.result()["usage"]
            written += usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]
    evicted = (client.read(address, SGLANG.dialect).evicted or 0) - (before.evicted or 0)
    # the prompts that were least recently used leave: what does not fit, and the rest of one at most
    assert written - POOL <= evicted <= written


def test_hit_rates_are_exact_to_the_token(address: str, client: EngineClient) -> None:
    cached(address, "let all counters be there")
    streamed(address, "these, too")
    before = client.read(address, SGLANG.dialect)
    usages = [post(address, CHAT, said(f"question {number % 3}"))["usage"] for number in range(5)]
    usages += [streamed(address, f"question {number}") for number in range(5)]
    after = counted(client, address, before.requests + len(usages))
    assert after.queries - before.queries == sum(each["prompt_tokens"] for each in usages)
    found = sum(each["prompt_tokens_details"]["cached_tokens"] for each in usages)
    assert after.hits - before.hits == found > 0
    assert after.tiered == before.tiered == 0.0


def test_salts_part_the_cache_where_the_operator_says_that_they_do(address: str) -> None:
    text = f"a text of its own {next(numbers)}"
    whole = cached(address, text) and cached(address, text)
    assert whole > 2000
    for field in ("cache_salt", "extra_key"):
        assert cached(address, text, **{field: "a"}) == 0
        assert cached(address, text, **{field: "a"}) == whole
        assert cached(address, text, **{field: "b"}) == 0
    # Anthropic's API takes no salt: it finds what was sent without one, and the operator does not list it
    body = {"system": PROMPT.system, "messages": [{"role": "user", "content": text}], "max_tokens": 1}
    post(address, MESSAGES, body)
    assert post(address, MESSAGES, body | {"cache_salt": "c"})["usage"]["cache_read_input_tokens"] > 2000
    assert "messages" not in SGLANG.dialect.salted
    assert {"chat", "text", "responses"} == SGLANG.dialect.salted


def test_no_way_tells_anything_of_callers_who_are_kept_apart(tmp_path: Path, address: str) -> None:
    async def check() -> None:
        async with world(tmp_path, isolated=True, dialect=SGLANG.dialect, engine=address, words=60) as it:
            found, again = await all_learned(it)
            print(found, "own:", again)  # noqa: T201 - shown by pytest -s
            assert again > 100
            assert {name: tokens for name, tokens in found.items() if tokens > 0} == {}

    within(check(), SECONDS)


def test_conditions_say_what_is_done_to_real_engines() -> None:
    assert diagnosis.main([f"--sglang={named('SGLANG')}"]) == 0
