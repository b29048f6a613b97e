"""Plays sessions over HTTP in an open loop: they begin when they begin, however the router and its engines are doing.

Requests are streamed and ask for `usage`, as chat clients do. A turn that fails ends its session.
"""

import asyncio
import contextlib
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp
import orjson

from bench.peers import prose
from promptgroup_research.simulator.turns import Session, Turn

REQUEST_SECONDS = 60.0
"""A request without an end after this has failed: at the rates used here a router that needs it has collapsed."""
NAME = "mix"
"""The model."""

_TEXT = re.compile(rb'"content":"[^"]')


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one request. Times are seconds; `began` counts from the first session's."""

    began: float
    ttft: float
    """To the first text of the answer; to the failure where there was none."""
    error: str
    """Empty for a whole answer."""
    prompt: int
    """Tokens by the engine's count."""
    planned: int
    """Tokens by the load's."""


async def play(sessions: Sequence[Session], url: str, seed: int, *, header: str, until: float) -> list[Outcome]:
    """Play sessions; no turn begins after `until` seconds, and those that run are seen to their ends.

    Args:
        sessions: what is said, and when.
        url: the router.
        seed: of the load, for its text.
        header: carries the session's id; none when empty.
        until: seconds.
    """
    outcomes: list[Outcome] = []
    begun = time.monotonic()
    timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as http, asyncio.TaskGroup() as tasks:

        async def one(number: int, session: Session) -> None:
            headers = {"content-type": "application/json"} | ({header: f"session-{seed}-{number}"} if header else {})
            messages = [{"role": "system", "content": prose.system(session, seed)}]
            for turn in session.turns:
                if time.monotonic() - begun + turn.think >= until:
                    return
                await asyncio.sleep(turn.think)
                began = time.monotonic()
                messages.append({"role": "user", "content": prose.message(turn, seed)})
                answer = await _ask(http, url, headers, messages, turn)
                outcomes.append(
                    Outcome(
                        began - begun,
                        (answer.first or time.monotonic()) - began,
                        answer.error,
                        answer.prompt,
                        turn.prompt,
                    )
                )
                if answer.error:
                    return
                messages.append({"role": "assistant", "content": answer.text})

        for number, session in enumerate(sessions):
            await asyncio.sleep(begun + session.began - time.monotonic())
            tasks.create_task(one(number, session))
    return outcomes


@dataclass(slots=True)
class _Answer:
    error: str = ""
    first: float = 0.0
    text: str = ""
    prompt: int = 0


async def _ask(
    http: aiohttp.ClientSession, url: str, headers: dict[str, str], messages: list[dict[str, str]], turn: Turn
) -> _Answer:
    body = {
        "model": NAME,
        "messages": messages,
        "max_tokens": turn.output,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    answer = _Answer()
    stream = bytearray()
    try:
        async with http.post(f"{url}/v1/chat/completions", data=orjson.dumps(body), headers=headers) as response:
            async for data in response.content.iter_any():
                stream += data
                if not answer.first and has_text(stream):
                    answer.first = time.monotonic()
            if response.status != 200:
                answer.error = f"status {response.status}"
                return answer
    except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
        answer.error = type(error).__name__
        return answer
    answer.text, answer.prompt = read(bytes(stream))
    if not answer.text or not stream.rstrip().endswith(b"[DONE]"):
        answer.error = "a stream without its end"
    return answer


def has_text(stream: bytes | bytearray) -> bool:
    """Whether an event with text is there; the first one may have a role and no text."""
    return _TEXT.search(stream) is not None


def read(stream: bytes) -> tuple[str, int]:
    """The text of an answer and the tokens of its prompt, from a stream of events."""
    pieces: list[str] = []
    prompt = 0
    for line in stream.splitlines():
        if not line.startswith(b"data: {"):
            continue
        with contextlib.suppress(ValueError):
            match orjson.loads(line[len(b"data: ") :]):
                case {"choices": [{"delta": {"content": str(text)}}]}:
                    pieces.append(text)
                case {"usage": {"prompt_tokens": int(prompt)}}:
                    pass
    return "".join(pieces), prompt
