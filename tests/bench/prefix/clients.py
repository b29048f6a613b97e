"""Clients that hold all conversations of a shape, so many at a time, and note what they see."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import aiohttp
import orjson

from bench.prefix.shapes import MODEL, Talk

AT_A_TIME = 12
ANSWER = 16
"""Tokens of an answer."""
_NONE: Mapping[str, object] = MappingProxyType({})


@dataclass(slots=True)
class Played:
    """What clients saw."""

    seconds: list[float] = field(default_factory=list)
    """To first tokens."""
    failed: int = 0
    prompt: int = 0
    """Tokens, where answers have their usage."""
    cached: int = 0
    """Those of them that engines found in their caches."""


async def play(
    http: aiohttp.ClientSession,
    url: str,
    asked: Sequence[Talk],
    options: Mapping[str, object] = _NONE,
    *,
    clients: int = AT_A_TIME,
) -> Played:
    """Have all conversations, so many at once.

    Args:
        http: client.
        url: base URL of the router.
        asked: the conversations.
        options: further fields of each request.
        clients: conversations at once.
    """
    waiting, played = iter(asked), Played()

    async def worker() -> None:
        for talk in waiting:
            body = {**talk.body, "model": MODEL, "max_tokens": ANSWER, "stream": True, "ignore_eos": True, **options}
            for turn in range(1 + len(talk.later)):
                said = await _ask(http, url + talk.path, body, played)
                if said is None:
                    played.failed += 1
                    break
                if turn < len(talk.later):
                    body |= _next_turn(body, talk.welcome if talk.welcome and turn == 0 else said, talk.later[turn])

    async with asyncio.TaskGroup() as tasks:
        for _ in range(clients):
            tasks.create_task(worker())
    return played


def _next_turn(body: Mapping[str, Any], answer: str, words: str) -> dict[str, object]:
    """Return the fields of a request that continues the last one: a text repeats all of it, a chat its messages."""
    if "prompt" in body:
        return {"prompt": body["prompt"] + answer + words}
    messages = [*body["messages"], {"role": "assistant", "content": answer}, {"role": "user", "content": words}]
    return {"messages": messages}


async def _ask(http: aiohttp.ClientSession, url: str, body: Mapping[str, object], played: Played) -> str | None:
    """Send a request, note what became of it, and return the answer; None without one."""
    began, first, stream = time.monotonic(), 0.0, bytearray()
    try:
        async with http.post(url, data=orjson.dumps(body), headers={"content-type": "application/json"}) as response:
            async for data in response.content.iter_any():
                stream += data
                first = first or time.monotonic() - began
            if response.status != 200:
                return None
    except (aiohttp.ClientError, TimeoutError, ConnectionError):
        return None
    played.seconds.append(first)
    said = []
    for line in bytes(stream).splitlines():
        if line.startswith(b"data: {"):
            event = orjson.loads(line[6:])
            choices, usage = event.get("choices") or [{}], event.get("usage") or {}
            said.append((choices[0].get("delta") or {}).get("content") or choices[0].get("text") or "")
            played.prompt += usage.get("prompt_tokens", 0)
            played.cached += (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    return "".join(said)
