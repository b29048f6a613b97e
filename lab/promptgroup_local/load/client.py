"""Drives sessions in a closed loop: so many at a time, each turn when the answer before it has ended.

Requests carry no session header unless one is named: affinity must follow from the content.
"""

import asyncio
import contextlib
import itertools
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import aiohttp
import orjson

from promptgroup_contract.names import HEADER_SERVED_BY
from promptgroup_local.load.reference import Exchange
from promptgroup_local.load.workload import Conversation, Turn

REQUEST_SECONDS = 120.0
"""A request without an end after this counts as failed: nothing in a trial run takes longer."""
_CODE = re.compile(r"[a-z][a-z_]{0,39}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one request."""

    session: str
    turn: int
    task: str
    url: str
    status: int
    """HTTP status; 0 without an answer."""
    error: str
    """The reason why it failed, empty when it did not; never text of the prompt."""
    ttft: float
    """Seconds from sending to the first text."""
    e2e: float
    """Seconds from sending to the end."""
    served_by: str
    """The router's word on who answered; empty without a router."""
    streamed: bool
    """True if the answer was streamed; one that breaks off after its first byte cannot be tried again."""
    exchange: Exchange

    @property
    def failed(self) -> bool:
        """True if the request got no complete answer."""
        return bool(self.error)


@dataclass(frozen=True, slots=True)
class Target:
    """The destination of requests, and the names that they use."""

    urls: Sequence[str]
    """Base URLs, used in turn, a request each."""
    model: str
    """Model of requests that contain their system prompt."""
    groups: Mapping[str, str] = field(default_factory=dict)
    """Task to group name: those requests name the group as their model and contain no system prompt."""
    session_header: str = ""
    """Header that carries the session's id; none when empty."""
    usage: bool = False
    """True to request token counts in streams; other answers have them anyway."""
    on_top: Callable[[], str] = str
    """Text in front of the system prompt, made anew for each request: nothing, or the time for example."""


async def drive(
    conversations: Iterable[Conversation],
    target: Target,
    *,
    concurrency: int,
    turns: int | None = None,
    pause: float = 0.0,
    record: Callable[[Outcome], None] | None = None,
) -> list[Outcome]:
    """Send the conversations' remaining turns, at most `turns` of each; returns outcomes in the order of their ends.

    The conversations are drawn one by one, when another can start. After each turn pass `pause` seconds. A
    failed turn ends its conversation's part in this run. `record` is called with each outcome at once. Cancel to stop
    early: recorded outcomes stay.
    """
    waiting = iter(conversations)
    urls = itertools.cycle(target.urls)
    outcomes: list[Outcome] = []

    async def work() -> None:
        for conversation in waiting:
            for turn in list(conversation.rest)[:turns]:
                outcome = await _send(http, target, next(urls), conversation, turn)
                outcomes.append(outcome)
                if record is not None:
                    record(outcome)
                await asyncio.sleep(pause)
                if outcome.failed:
                    break
                _continue(conversation, turn, outcome.exchange.answer)

    timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS)
    connector = aiohttp.TCPConnector(limit=0)  # `concurrency` is the limit
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as http, asyncio.TaskGroup() as tasks:
        for _ in range(concurrency):
            tasks.create_task(work())
    return outcomes


def _continue(conversation: Conversation, turn: Turn, answer: str) -> None:
    conversation.history += [{"role": "user", "content": turn.text}, {"role": "assistant", "content": answer}]
    conversation.sent += 1


async def _send(
    http: aiohttp.ClientSession, target: Target, url: str, conversation: Conversation, turn: Turn
) -> Outcome:
    session = conversation.session
    messages = [*conversation.history, {"role": "user", "content": turn.text}]
    whole = [{"role": "system", "content": target.on_top() + session.task.system}, *messages]
    group = target.groups.get(session.task.name)
    body = {
        "model": group or target.model,
        "messages": messages if group else whole,
        "max_tokens": turn.max_tokens,
        "stream": session.streamed,
    }
    if target.usage and session.streamed:
        body["stream_options"] = {"include_usage": True}
    headers = {"Content-Type": "application/json"}
    if target.session_header:
        headers[target.session_header] = session.id
    answer = _Answer()
    began = time.monotonic()
    try:
        async with http.post(f"{url}/v1/chat/completions", data=orjson.dumps(body), headers=headers) as response:
            answer.status = response.status
            answer.served_by = response.headers.get(HEADER_SERVED_BY, "")
            if response.status != 200:
                answer.error = f"status {response.status}{_code(await response.read())}"
            elif session.streamed:
                await _read_stream(response, answer)
            else:
                _read_whole(await response.read(), answer)
    except (aiohttp.ClientError, TimeoutError, ConnectionError, ValueError) as error:
        answer.error = type(error).__name__
    ended = time.monotonic()
    return Outcome(
        session=session.id,
        turn=conversation.sent,
        task=session.task.name,
        url=url,
        status=answer.status,
        error=answer.error,
        ttft=(answer.first or ended) - began,
        e2e=ended - began,
        served_by=answer.served_by,
        streamed=session.streamed,
        exchange=Exchange(whole, "".join(answer.pieces)),
    )


@dataclass(slots=True)
class _Answer:
    """An answer while it is received."""

    status: int = 0
    error: str = "the stream ended before [DONE]"
    served_by: str = ""
    first: float | None = None
    pieces: list[str] = field(default_factory=list)


def _code(body: bytes) -> str:
    """The word of an error that is meant for programs, behind a comma; empty where there is none."""
    with contextlib.suppress(ValueError):
        match orjson.loads(body):
            case {"error": {"code": str(code)}} if _CODE.fullmatch(code):
                return f", {code}"
            case _:
                pass
    return ""


def _read_whole(body: bytes, answer: _Answer) -> None:
    """Read an answer that is not streamed."""
    match orjson.loads(body):
        case {"choices": [{"message": {"content": str(text)}}]}:
            answer.pieces.append(text)
            answer.error = ""
        case _:
            answer.error = "no whole answer"


async def _read_stream(response: aiohttp.ClientResponse, answer: _Answer) -> None:
    """Read an event stream to its end; only `[DONE]` clears the error."""
    async for line in response.content:
        if not line.startswith(b"data: "):
            continue
        data = line[len(b"data: ") :].strip()
        if data == b"[DONE]":
            answer.error = ""
            continue
        match orjson.loads(data):
            case {"choices": [{"delta": {"content": str(text)}}]} if text:
                answer.first = answer.first or time.monotonic()
                answer.pieces.append(text)
            case {"choices": _}:
                pass  # a role, the reason of the end, usage
            case {"error": _}:
                answer.error = "an error event in the stream"
                return
            case _:
                answer.error = "an event that is no chunk of an answer"
                return
