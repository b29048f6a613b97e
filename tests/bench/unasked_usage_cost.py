"""CPU that asking for the usage of a stream takes of a router: the question in the body, and the event taken out.

    python tests/bench/unasked_usage_cost.py [--events 200] [--kilobytes 16]

Each part is timed with and without, in turns, by this thread's CPU; a low quantile of the rounds is told, which stands
for an undisturbed processor. The parts are called as `routing/` and `proxy/` call them.
"""

import argparse
import gc
import time
from collections.abc import Callable
from typing import NamedTuple

import orjson
from rich.console import Console

from promptgroup_router.apis.request import ApiKind, parse
from promptgroup_router.apis.usage import Tail
from promptgroup_router.base import build
from promptgroup_router.callers.unasked_usage import NO_CHOICES, UsageEvents
from promptgroup_router.decision.event_guard import EventGuard
from promptgroup_router.features.answer_usage import USAGE_REQUEST
from promptgroup_router.proxy.client_answer import ClientAnswer
from promptgroup_router.proxy.response import RelayedHead
from promptgroup_router.routing.route import Rewrite, written

LOW = 0.1
"""The quantile of the rounds that is told."""
CHUNK_OF = {"id": "chatcmpl-7f3a", "object": "chat.completion.chunk", "created": 1, "model": "llama"}
EVENT = CHUNK_OF | {"choices": [{"index": 0, "delta": {"content": " word"}, "finish_reason": None}]}
USAGE = CHUNK_OF | {"choices": [], "usage": {"prompt_tokens": 2000, "total_tokens": 2200, "completion_tokens": 200}}


class Costs(NamedTuple):
    """Microseconds of CPU."""

    plain_stream: float
    """A stream that goes to its client as it is."""
    asked_stream: float
    """The same with one more event, which is taken out."""
    plain_body: float
    """The body of a request that goes to its engine as it is."""
    asked_body: float
    """The same with the question."""

    @property
    def ratio(self) -> float:
        """The CPU of a stream whose usage is asked for, over that of one that passes as it is."""
        return self.asked_stream / self.plain_stream


class _Client:
    """Takes an answer."""

    keeps_alive = True

    def __init__(self) -> None:
        self.bytes = 0

    def write(self, data: bytes) -> None:
        self.bytes += len(data)

    def answer(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        raise AssertionError("the engine answers")

    def finish(self, *, keep: bool) -> None:
        """Take the end."""

    def cut(self, *, visibly: bool) -> None:
        raise AssertionError("no answer is cut")


def _chunk(document: dict[str, object]) -> bytes:
    data = b"data: %b\n\n" % orjson.dumps(document)
    return b"%x\r\n%b\r\n" % (len(data), data)


def _stream(events: int, *, asked: bool) -> Callable[[], object]:
    parts = [_chunk(EVENT) for _ in range(events)]
    parts += [_chunk(USAGE)] if asked else []
    parts += [b"e\r\ndata: [DONE]\n\n\r\n", b"0\r\n\r\n"]
    marks = NO_CHOICES if asked else ()

    def work() -> None:
        client = _Client()
        body = ClientAnswer(client, 1, Tail())
        body.begin(
            RelayedHead(b"HTTP/1.1 200 OK\r\n\r\n", True, False),
            chunked=True,
            rewriter=UsageEvents() if asked else None,
            guard=EventGuard(chunked=True, marks=marks),
            in_place=asked,
        )
        for part in parts:
            body.pass_on(part, between_chunks=True)
        body.finish()
        body.usage()

    return work


def _body(kilobytes: int, *, asked: bool) -> Callable[[], object]:
    text = {"model": "llama", "messages": [{"role": "user", "content": "x" * 1024 * kilobytes}], "stream": True}
    ask, rewrite = parse(ApiKind.CHAT, orjson.dumps(text)), Rewrite(changes=(USAGE_REQUEST,) if asked else ())
    return lambda: written(ask, rewrite)


def measure(events: int = 200, kilobytes: int = 16, rounds: int = 100) -> Costs:
    """Return what a stream and a body cost, with and without the question."""
    works = (
        _stream(events, asked=False),
        _stream(events, asked=True),
        _body(kilobytes, asked=False),
        _body(kilobytes, asked=True),
    )
    spent: list[list[int]] = [[] for _ in works]
    gc.disable()
    try:
        for _ in range(rounds):
            for times, work in zip(spent, works, strict=True):
                began = time.thread_time_ns()
                work()
                times.append(time.thread_time_ns() - began)
    finally:
        gc.enable()
    return Costs(*(sorted(times)[int(len(times) * LOW)] / 1000 for times in spent))


def main() -> None:
    """Measure, and print the microseconds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=200, help="events of the stream (default: 200)")
    parser.add_argument("--kilobytes", type=int, default=16, help="length of the prompt (default: 16)")
    arguments = parser.parse_args()
    costs = measure(arguments.events, arguments.kilobytes, 500)
    out = Console(highlight=False)
    out.print(
        f"{'compiled' if build.compiled() else 'interpreted'}, {arguments.events} events, {arguments.kilobytes} KiB"
    )
    out.print(f"stream  {costs.plain_stream:8.1f} µs as it is  {costs.asked_stream:8.1f} µs asked  {costs.ratio:.2f}x")
    out.print(f"body    {costs.plain_body:8.1f} µs as it is  {costs.asked_body:8.1f} µs asked")


if __name__ == "__main__":
    main()
