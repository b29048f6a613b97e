"""Clients that hold all conversations of a shape, so many at a time, and note what they see."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import aiohttp
import orjson

from bench.prefix.forms import STREAMED, Answer, Form
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
    form: Form = STREAMED,
) -> Played:
    """Have all conversations, so many at once.

    Args:
        http: client.
        url: base URL of the router.
        asked: the conversations.
        options: further fields of each request.
        clients: conversations at once.
        form: of the requests.
    """
    waiting, played = iter(asked), Played()

    async def worker() -> None:
        for talk in waiting:
            body = {**talk.body, "model": MODEL, "max_tokens": ANSWER, "stream": True, "ignore_eos": True, **options}
            for turn in range(1 + len(talk.later)):
                path, asked_body = form.write(talk.path, body)
                answer = await _ask(http, url + path, asked_body, played, form)
                if answer is None:
                    played.failed += 1
                    break
                if turn < len(talk.later):
                    body |= _next_turn(
                        body, talk.welcome if talk.welcome and turn == 0 else answer.text, talk.later[turn]
                    )

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


async def _ask(
    http: aiohttp.ClientSession, url: str, body: Mapping[str, object], played: Played, form: Form
) -> Answer | None:
    """Send a request, note what became of it, and return the answer; None without one."""
    began, first, content = time.monotonic(), 0.0, bytearray()
    try:
        async with http.post(url, data=orjson.dumps(body), headers={"content-type": "application/json"}) as response:
            async for data in response.content.iter_any():
                content += data
                first = first or time.monotonic() - began
            if response.status != 200:
                return None
    except (aiohttp.ClientError, TimeoutError, ConnectionError):
        return None
    played.seconds.append(first)
    answer = form.read(bytes(content))
    played.prompt += answer.prompt
    played.cached += answer.cached
    return answer
