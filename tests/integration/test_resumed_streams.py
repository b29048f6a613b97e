"""A hundred streams while one engine is killed and another must leave: all are whole, as if nothing had happened.

Stand-in engines are processes of their own behind a router on real sockets. Their answers have words of several
scripts, whose tokens end within characters.
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys

import aiohttp
import pytest
import uvloop

from promptgroup_contract.table import SlotState
from promptgroup_local.ports import free_ports
from support.tables import group, revision, slot, table
from support.wire import chat, routing

pytestmark = pytest.mark.slow

LIMIT = 120.0
"""Seconds that the test may take."""
STREAMS, ENGINES, TOKENS = 100, 4, 150
BEGUN = 10
"""Events that each stream has before an engine is lost."""


@contextlib.asynccontextmanager
async def engine():
    """A stand-in engine: its process and its address."""
    (port,) = free_ports(1)
    words = [sys.executable, "-m", "promptgroup_local.engine", "llama", "--host=127.0.0.1", f"--port={port}"]
    words.append("--enable-prompt-tokens-details")
    knobs = {"STANDIN_STARTUP_SECONDS": "0", "STANDIN_SCRIPTS": "1", "STANDIN_STEP_MS": "30"}
    process = subprocess.Popen(words, env=os.environ | knobs, stdout=subprocess.DEVNULL)  # noqa: ASYNC220 - at once
    try:
        while True:
            assert process.poll() is None, "the engine did not start"
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                break
            await asyncio.sleep(0.05)
        yield process, f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def request(number):
    fields = {"stream": True, "temperature": 0, "max_tokens": TOKENS, "ignore_eos": True}
    return chat(f"question {number}", stream_options={"include_usage": True}, **fields)


async def answer(session, url, number, begun=None):
    """Return a stream's text, its usage and its ids; tell `begun` once it has begun."""
    text, usage, ids, done, events = "", [], set(), False, 0
    async with session.post(f"{url}/v1/chat/completions", json=request(number)) as response:
        assert response.status == 200
        async for line in response.content:
            if not line.startswith(b"data: "):
                continue
            if line.strip() == b"data: [DONE]":
                done = True
                continue
            document = json.loads(line[6:])
            assert "error" not in document, document
            ids.add(document["id"])
            text += "".join(choice["delta"].get("content") or "" for choice in document["choices"])
            if document.get("usage"):
                usage.append(
                    {name: count for name, count in document["usage"].items() if name != "prompt_tokens_details"}
                )
            events += 1
            if events == BEGUN and begun is not None:
                begun()
    assert done
    assert len(ids) == 1
    return text, usage


def test_all_streams_are_whole_when_an_engine_is_killed_and_another_leaves(tmp_path):
    async def check():
        async with contextlib.AsyncExitStack() as stack:
            engines = [await stack.enter_async_context(engine()) for _ in range(ENGINES)]
            addresses = [address for _, address in engines]

            def served(states, version):
                slots = tuple(
                    slot(number, state, address)
                    for number, (state, address) in enumerate(zip(states, addresses, strict=True))
                )
                return table(group("support", revision(slots=slots), max_resumes=1), version=version)

            states = [SlotState.READY] * ENGINES
            router = await stack.enter_async_context(routing(tmp_path, served(states, "v1")))
            timeout = aiohttp.ClientTimeout(total=LIMIT)
            connector = aiohttp.TCPConnector(limit=0)
            session = await stack.enter_async_context(aiohttp.ClientSession(timeout=timeout, connector=connector))
            left, all_begun = STREAMS, asyncio.Event()

            def begun():
                nonlocal left
                left -= 1
                if not left:
                    all_begun.set()

            url = f"http://127.0.0.1:{router.port}"
            streams = [asyncio.ensure_future(answer(session, url, number, begun)) for number in range(STREAMS)]
            await asyncio.wait([asyncio.ensure_future(all_begun.wait()), *streams], return_when="FIRST_COMPLETED")
            engines[0][0].kill()
            states[1] = SlotState.DRAINING
            router.state.install(served(states, "v2"), "test", 0.0)
            told = await asyncio.gather(*streams)
            # what a single engine says when nothing happens
            single = f"http://{addresses[2]}"
            expected = await asyncio.gather(*(answer(session, single, number) for number in range(STREAMS)))
            assert told == expected
            usages = [usage for _, usage in told]
            assert {len(usage) for usage in usages} == {1}
            assert {usage[0]["completion_tokens"] for usage in usages} == {TOKENS}
            exposition = router.state.exposition(0.0, 0)
            resumed = [line for line in exposition.splitlines() if "answers_resumed_total{" in line]
            assert len(resumed) == 2, exposition
            assert "answers_cut_total{" not in exposition
            assert router.state.token_bytes == 0

    async def limited():
        async with asyncio.timeout(LIMIT):
            await check()

    uvloop.run(limited())
