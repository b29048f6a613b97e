"""Time that the router's own code takes for a request and for a streamed event, without sockets and kernel.

    python tests/bench/python_part.py [--body 8192] [--groups 1] [--slots 4] [--sessions 500]
        [--clients 16] [--keys own|mixed] [--responses] [--access-log] [--even]

The real classes run from the client's bytes to the last byte of the answer, between transports that only count. The
figure is a low quantile of short batches, so that it stands for an undisturbed processor: compare figures of one
machine only. Caches are warm here, so that a request in service costs about twice as much, and the kernel's part comes
on top.

`scripts/compile_router.py` takes it as the workload that it lays the router's code out for. With `--even` the router's
clock advances by the same time at each look, so that each run takes the same ways.
"""

import argparse
import asyncio
import gc
import itertools
import json
import logging
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

from promptgroup_contract.encoding import decode_table
from promptgroup_contract.fingerprint import fingerprint
from promptgroup_router.access.keyring import SecretRef
from promptgroup_router.base import build, logs
from promptgroup_router.decision.composition import router_state
from promptgroup_router.flights.shared_answers import SharedAnswers
from promptgroup_router.proxy.api_handler import ApiHandler
from promptgroup_router.proxy.body_budget import BodyBudget
from promptgroup_router.proxy.downstream import ClientConnection, ClientListener
from promptgroup_router.proxy.upstream import EngineConnections
from promptgroup_router.reading.body_reader import BodyReader
from promptgroup_router.response_cache.memory import Memory

BATCH = 8
"""Requests that are timed together."""
LOOKS = 10
"""Turns of the event loop in which a connection is open."""
LOW = 0.05
"""The quantile of the batches that is reported."""
SYSTEM = "You are the support assistant of Example Ltd. " * 90
EVENT = b'data: {"id":"chatcmpl-1","choices":[{"delta":{"content":"word "}}]}\n\n'
CHUNK = b"%x\r\n%b\r\n" % (len(EVENT), EVENT)
USAGE = {"prompt_tokens": 2000, "completion_tokens": 80, "prompt_tokens_details": {"cached_tokens": 1900}}
CHOICE = {"message": {"role": "assistant", "content": "a word " * 40}}
ANSWER = json.dumps({"choices": [CHOICE], "usage": USAGE}).encode()
COMMON = b"HTTP/1.1 200 OK\r\ndate: Sun, 22 Nov 2026 12:00:00 GMT\r\nserver: uvicorn\r\n"
WHOLE = COMMON + b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(ANSWER), ANSWER)
CLOSED = {
    "access": {"type": "APIKey", "secrets": ["keys"]},
    "callers": {
        "default": {
            "requestsPerMinute": 10**8,
            "tokensPerMinute": 10**11,
            "requestsInFlight": 1000,
            "tokensPerDay": 10**14,
        }
    },
}
"""What a group has that asks for keys and has all limits, which nobody reaches."""
CACHED = {"responses": {"ttlSeconds": 3600, "maxBytes": 2**26}}
"""What a group with a response cache has."""
STREAM = COMMON + b"content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n" + CHUNK


class Transport:
    """Takes bytes at once."""

    def __init__(self) -> None:
        self.written = 0

    def write(self, data: bytes) -> None:
        self.written += len(data)

    def writelines(self, parts: list[bytes]) -> None:
        for part in parts:
            self.write(part)

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, _name: str) -> None:
        return None

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def write_eof(self) -> None:
        pass

    def close(self) -> None:
        pass

    abort = close


class Bench:
    """A router between such transports."""

    def __init__(
        self,
        given: argparse.Namespace,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.loop = loop
        self.busy: list = []
        """Engine connections that have a request."""
        self.state = router_state()
        began = time.perf_counter()
        # the caller of a session: that of its connection, or one of its own as where a gateway has the connections
        callers = [each % given.clients if given.keys == "own" else each for each in range(given.sessions)]
        keys = {f"caller-{each}": key(each).encode() for each in callers}
        self.state.features.authenticator.keyring.learn_keys(SecretRef("bench", "keys"), keys)
        fields = (CLOSED if given.keys else {}) | (CACHED if "responses" in given and given.responses else {})
        known = table(given.groups, given.slots, fields)
        self.state.install(decode_table(known), "bench", clock())
        self.install_seconds = time.perf_counter() - began
        loop.create_connection = self.connect  # type: ignore[method-assign] # engines that take everything
        connections = EngineConnections(clock, 10)
        sharing = SharedAnswers(
            Memory(1 << 26),
            self.state.metrics,
            connections,
            self.state.features.limiter,
            clock=clock,
            wall=lambda: 1e9,
            home=lambda _key: None,
            lives=lambda _address: False,
        )
        handler = ApiHandler(self.state, connections, BodyReader(), clock, 600, sharing=sharing)
        self.listener = ClientListener(handler, clock, 64 << 20, budget=BodyBudget(1 << 30))
        self.clients = [self.client() for _ in range(given.clients)]
        self.whole_requests = [
            request(session, given.body, caller, stream=False) for session, caller in enumerate(callers)
        ]
        self.stream_request = request(0, given.body, 0, stream=True)
        self.at = 0

    def client(self) -> ClientConnection:
        connection = self.listener.accept()
        connection.connection_made(Transport())
        return connection

    async def connect(self, factory: Callable[[], object], _host: str, _port: int) -> None:
        connection = factory()
        transport = Transport()
        transport.writelines = lambda parts, busy=self.busy, connection=connection: busy.append(connection)  # type: ignore[method-assign]
        connection.connection_made(transport)

    async def warm_up(self) -> None:
        """Send a request of every session, which opens the connections to all engines."""
        for each in self.whole_requests:
            self.clients[0].data_received(each)
            for _ in range(LOOKS):  # a connection is opened by a task
                if self.busy:
                    break
                await asyncio.sleep(0)
            self.busy.pop().data_received(WHOLE)

    def whole(self) -> None:
        """Serve one request."""
        self.at = at = (self.at + 1) % len(self.whole_requests)
        self.clients[at % len(self.clients)].data_received(self.whole_requests[at])
        self.busy.pop().data_received(WHOLE)

    def stream(self) -> object:
        """Begin a streamed answer, and return the engine's connection."""
        self.clients[0].data_received(self.stream_request)
        engine = self.busy.pop()
        engine.data_received(STREAM)
        return engine


def even_clock() -> Callable[[], float]:
    """Return a clock that advances by a hundred microseconds at each look."""
    looks = itertools.count(1)
    return lambda: next(looks) / 10_000


def table(groups: int, slots: int, fields: dict) -> dict:
    """Return a table of groups of one model, with further fields; requests match the first."""
    return {"format": 1, "version": "bench", "groups": [group(number, slots) | fields for number in range(groups)]}


def key(caller: int) -> str:
    """Return the API key of a caller."""
    return f"sk-{caller:032x}"


def group(number: int, slots: int) -> dict:
    system = SYSTEM if not number else f"Group {number}. {SYSTEM}"
    addresses = [
        {"slot": i, "state": "Ready", "address": f"10.0.{i // 250}.{i % 250}:8000", "incarnation": "a"}
        for i in range(slots)
    ]
    revision = {"fingerprint": fingerprint(system), "systemBytes": len(system), "tokens": 1000, "weight": 100}
    revision |= {"prompt": {"system": system}, "slots": addresses, "engine": {"settings": "bench"}}
    return {"namespace": "bench", "name": f"group-{number}", "format": 1, "model": "tiny", "revisions": [revision]}


def request(session: int, body_bytes: int, caller: int, *, stream: bool) -> bytes:
    """Return a third turn of a session."""
    turns = max(64, body_bytes - len(SYSTEM) - 300)
    said = f"This is session {session}. How do I return a parcel? ".ljust(turns // 2, "x")
    messages = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": said},
        {"role": "assistant", "content": "By post. " * (turns // 40)},
        {"role": "user", "content": "And how long will it take? " * (turns // 100 + 1)},
    ]
    body = json.dumps({"model": "tiny", "messages": messages, "stream": stream}, separators=(",", ":")).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: router.example\r\nAccept: application/json\r\n"
        "Content-Type: application/json\r\nUser-Agent: OpenAI/Python 2.0.0\r\nX-Stainless-Lang: python\r\n"
        f"Authorization: Bearer {key(caller)}\r\nX-Session-Id: session-{session}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def low(samples: list[int], each: int) -> float:
    """Return the low quantile of nanoseconds for `each` units, in microseconds for one."""
    return sorted(samples)[int(len(samples) * LOW)] / each / 1000


def timed(work: Callable[[], object], batches: int) -> float:
    """Return the microseconds of one call."""
    samples, clock = [], time.perf_counter_ns
    for _ in range(batches):
        began = clock()
        for _ in range(BATCH):
            work()
        samples.append(clock() - began)
    return low(samples, BATCH)


def python() -> str:
    """Say which Python runs, and how it was built."""
    return f"Python {platform.python_version()} ({Path(sys.base_prefix)}; {platform.python_compiler()})"


async def measure(given: argparse.Namespace) -> None:
    bench = Bench(given, asyncio.get_running_loop(), even_clock() if given.even else time.monotonic)
    await bench.warm_up()
    gc.collect()
    gc.freeze()
    requests = timed(bench.whole, given.batches)
    engine = bench.stream()
    events = timed(lambda: engine.data_received(CHUNK), given.batches)
    lines = [
        f"{python()}, router {'compiled' if build.compiled() else 'interpreted'}",
        f"{given.body} bytes, {given.groups} groups of {given.slots} slots, {given.clients} clients"
        + (f", callers with keys ({given.keys}) and limits" if given.keys else "")
        + (", a response cache that requests bypass" if given.responses else "")
        + (", an access log" if given.access_log else ""),
        f"request {requests:.1f} µs, event {events:.2f} µs, table installed in {bench.install_seconds * 1000:.0f} ms",
    ]
    sys.stdout.write("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--body", type=int, default=8192, help="bytes of a body (default: %(default)s)")
    parser.add_argument("--groups", type=int, default=1, help="groups of one model (default: %(default)s)")
    parser.add_argument("--slots", type=int, default=4, help="slots of each (default: %(default)s)")
    parser.add_argument("--sessions", type=int, default=500, help="sessions that take turns (default: %(default)s)")
    parser.add_argument("--clients", type=int, default=16, help="open connections (default: %(default)s)")
    keys = "callers have keys and all limits: one for each connection, or one for each session"
    parser.add_argument("--keys", choices=("own", "mixed"), help=keys)
    parser.add_argument("--responses", action="store_true", help="a response cache, which requests bypass")
    parser.add_argument("--access-log", action="store_true", help="a line for each request, to nowhere")
    parser.add_argument("--even", action="store_true", help="a clock that advances at each look")
    parser.add_argument("--batches", type=int, default=3000, help="batches that are timed (default: %(default)s)")
    given = parser.parse_args()
    if given.access_log:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 # to the end of the process
        logs.configure("CRITICAL", "json", access=True)
    logging.disable()
    asyncio.run(measure(given))


if __name__ == "__main__":
    main()
