"""Drives the router's connections through random lives of clients and engines, without sockets and without waiting.

    make fuzz-connections STEPS=1000000 SEED=1

The real listener, handler, relays and pool run on a loop that is turned by hand; each step moves some bytes, opens or
breaks a connection, or lets time pass. h11 reads both ends, so that it, not the router's own parser, decides what is
whole. An episode has a few clients and engines, a part of the actions (swarm testing: Groce et al., ISSTA 2012), and
ends with everybody behaving: whoever still waits then has been forgotten. After each step

- nothing is hoarded: a paused side is written to no further, and no buffer exceeds its bound;
- a pooled connection is clean: it reads, nothing is unsent, and the engine has its whole request;
- what an engine reads is what a client sent; what a client reads is the answer to its own request;
- an answer is whole to h11 only if it is whole, and a cut one only if an engine failed on it.

A failure names the episode, which `--episode N` runs again alone.
"""

import argparse
import asyncio
import gc
import random
import socket
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

import h11

from promptgroup_router.apis.session_key import SessionKey
from promptgroup_router.decision.composition import router_state
from promptgroup_router.features.stored_responses.response_id import RANDOM_BYTES, response_id
from promptgroup_router.proxy.api_handler import ApiHandler
from promptgroup_router.proxy.body_budget import BodyBudget
from promptgroup_router.proxy.downstream import (
    IDLE_SECONDS,
    LINGER_SECONDS,
    READ_SECONDS,
    STALL_SECONDS,
    ClientConnection,
    ClientListener,
)
from promptgroup_router.proxy.relay import Relay
from promptgroup_router.proxy.request_intake import PIPELINED_BYTES
from promptgroup_router.proxy.upstream import UNREAD_BYTES, EngineConnection, EngineConnections
from promptgroup_router.reading.body_reader import BodyReader
from support.memorynet import SMALL, Buffers, MemoryTransport
from support.steploop import StepLoop
from support.wire import chat, get, post, table_of

ENGINES = ("engine-0:1", "engine-1:1")
STEPS_IN_EPISODE = 200
MOST_CLIENTS = 4
SIZES = (0, 1, 7, 300, 3000, 9000, 30_000)
PARTS = (1, 7, 200, 1000, 5000, 5000, 20_000, 10**6)
WAYS = ("length", "length", "chunks", "chunks", "close", "until close", "old", "old kept", "interim", "empty", "busy")
"""The ways in which an engine answers."""
BUDGET = 3_000_000
CONNECT_SECONDS = 2.0
"""Limit of the router for the opening of a connection."""
TIMEOUT = 600.0
WHILE_PAUSED = 2048
"""Bytes that may be written to a side that is paused: the end of an answer, an error, an interim answer."""


@dataclass
class Ask:
    """A request as the client remembers it."""

    name: str
    kind: str
    head_only: bool = False
    minor: int = 1
    body: bytes = field(default=b"", repr=False)
    closes: bool = False


class Client:
    """A client's end of one connection."""

    def __init__(self, machine: "Machine", number: int) -> None:
        self.machine = machine
        self.number = number
        self.connection = machine.listener.accept()
        self.transport = machine.transport(self.connection)
        self.connection.connection_made(self.transport)
        self.asked: list[Ask] = []
        self.to_send = bytearray()
        self.answered = 0
        self.left = False
        self.finished = False
        """Whether it has asked for the end of the connection, or sent what is no request."""
        self.closed_by_answer = False
        self.cut: Ask | None = None
        self.excused = False
        """Whether it was so slow that the router may have given up on it."""
        self._h11: h11.Connection | None = None
        self._head: h11.Response | None = None
        self._body = bytearray()
        self.over = False
        self._stalled = self._slow = self._idle = self._lingered = 0.0

    # --- Acts ----------------------------------------------------------------------------------------------------

    def ask(self, ask: Ask, data: bytes) -> None:
        self.asked.append(ask)
        self.finished = self.finished or ask.closes
        self.to_send += data

    def send(self, size: int) -> bool:
        part = bytes(self.to_send[:size])
        del self.to_send[: len(part)]
        if part:
            self._idle = 0.0
            self.transport.send(part)
        return self.transport.deliver() or bool(part)

    def read(self, size: int) -> bool:
        data = self.transport.read(size)
        if data:
            self._stalled = 0.0
            self._take(data)
        if self.transport.was_reset and not self.over:
            self.over = True
            self.cut = self._current()
        elif self.transport.ended and not self.transport.wire and not self.over:
            self.over = True
            self._take_end()
        return bool(data)

    def leave(self, how: str) -> None:
        self.left = True
        if how == "reset":
            self.transport.break_off()
        else:
            self.transport.end()

    def wait(self, seconds: float) -> None:
        """Note for how long it has kept the router waiting."""
        transport = self.transport
        self._stalled = self._stalled + seconds if transport.out or transport.wire else 0.0
        self._slow = self._slow + seconds if self.to_send and self.asked else 0.0
        self._idle += seconds
        self._lingered = self._lingered + seconds if transport.eof_asked else 0.0
        self.excused |= self._stalled >= STALL_SECONDS - 4 or self._slow >= READ_SECONDS - 4
        self.excused |= self._idle >= IDLE_SECONDS - 4 or self._lingered >= LINGER_SECONDS / 2
        self.excused |= seconds >= TIMEOUT / 2

    # --- What it sees --------------------------------------------------------------------------------------------

    def _current(self) -> Ask | None:
        return self.asked[self.answered] if self.answered < len(self.asked) else None

    def _take(self, data: bytes) -> None:
        while data:
            if self.closed_by_answer and self._head.status_code == 408 and self.asked[self.answered - 1].head_only:
                return  # the router cannot know that half a request line would have been HEAD
            assert not self.closed_by_answer, f"bytes behind the last answer: {data[:80]!r}"
            if self._h11 is None:
                assert self._current() is not None, f"bytes that nobody asked for: {data[:80]!r}"
                self._start()
            self._h11.receive_data(data)
            data = self._events()

    def _start(self) -> None:
        ask = self._current()
        self._h11 = h11.Connection(h11.CLIENT)
        method = "HEAD" if ask.head_only else "POST"
        self._h11.send(h11.Request(method=method, target="/", headers=[("host", "h"), ("content-length", "0")]))
        self._h11.send(h11.EndOfMessage())
        self._head, self._body = None, bytearray()

    def _events(self) -> bytes:
        """Take what h11 finds; the bytes behind a whole answer."""
        while True:
            event = self._h11.next_event()
            if event is h11.NEED_DATA or event is h11.PAUSED:
                return b""
            if isinstance(event, h11.InformationalResponse):
                assert self._current().minor == 1, "an interim answer to an HTTP/1.0 client"
            elif isinstance(event, h11.Response):
                self._head = event
            elif isinstance(event, h11.Data):
                self._body += event.data
            elif isinstance(event, h11.EndOfMessage):
                rest = self._h11.trailing_data[0]
                self._whole()
                return rest
            else:
                return b""

    def _take_end(self) -> None:
        """Take the end of the connection: only where it ends an answer may that look whole."""
        if self._h11 is None:
            return
        self._h11.receive_data(b"")
        try:
            self._events()
        except h11.RemoteProtocolError:
            self.cut = self._current()

    def _whole(self) -> None:
        ask, head, body = self._current(), self._head, bytes(self._body)
        fields = {bytes(name): bytes(value) for name, value in head.headers}
        self.machine.answered(self, ask, head.status_code, fields, body)
        self.closed_by_answer = b"close" in fields.get(b"connection", b"") or self.over
        assert ask.minor or b"transfer-encoding" not in fields, "chunks for an HTTP/1.0 client"
        assert self.closed_by_answer or not ask.closes
        self._h11 = None
        self.answered += 1

    def owed(self) -> Ask | None:
        """The first request that it should have the answer to and has not."""
        gone = self.left or self.excused or self.closed_by_answer
        return None if gone else self._current()


class Engine:
    """The engine's end of one connection."""

    def __init__(self, machine: "Machine", connection: EngineConnection, transport: MemoryTransport) -> None:
        self.machine = machine
        self.connection = connection
        self.transport = transport
        self.requests: list[tuple[str, bytes]] = []
        """Name and body of those that are whole and not answered."""
        self.to_send = bytearray()
        self.closes = False
        """After what is to be sent."""
        self.deaf = False
        """Reads no more."""
        self.until_close = False
        """Whether the end of the connection ends its answer."""
        self.ended = False
        self.name = ""
        """Of the request that it reads or answers."""
        self.early = False
        """Whether it answers a request that it has not read whole."""
        self._h11: h11.Connection | None = None
        self._body = bytearray()

    @property
    def alive(self) -> bool:
        return not self.ended and not self.transport.lost and not self.transport.closing

    @property
    def between_requests(self) -> bool:
        return self._h11 is None and not self.transport.wire

    def read(self, size: int) -> bool:
        data = b"" if self.deaf else self.transport.read(size)
        rest = data
        while rest:
            if self._h11 is None:
                self._h11, self._body, self.name = h11.Connection(h11.SERVER), bytearray(), ""
            self._h11.receive_data(rest)
            rest = self._events()
        return bool(data)

    def _events(self) -> bytes:
        while True:
            event = self._h11.next_event()
            if isinstance(event, h11.Request):
                self.name = dict(event.headers)[b"user-agent"].decode()
            elif isinstance(event, h11.Data):
                self._body += event.data
            elif isinstance(event, h11.EndOfMessage):
                rest = self._h11.trailing_data[0]
                self._h11 = None
                self.machine.check_request(self.name, bytes(self._body))
                if self.early:
                    self.early = False
                else:
                    self.requests.append((self.name, bytes(self._body)))
                    assert len(self.requests) == 1, "a second request before the answer to the first"
                return rest
            else:
                return b""

    def send(self, size: int) -> bool:
        if not self.alive:
            return False
        part = bytes(self.to_send[:size])
        del self.to_send[: len(part)]
        self.transport.send(part)
        if not self.to_send and self.closes:
            self.closes = False
            self.ended = True
            self.transport.end()
            return True
        return bool(part)

    def vanish(self, how: str) -> None:
        self.machine.note_trouble(self.connection)
        if self.until_close and how == "end":
            self.machine.ended_early.add(self.name)
        self.ended = True
        if how == "reset":
            self.transport.break_off()
        else:
            self.transport.end()

    @property
    def can_answer_early(self) -> bool:
        return self._h11 is not None and bool(self.name) and not self.to_send and not self.early


class Machine:
    """One episode."""

    def __init__(self, seed: int, episode: int, options: socket.socket) -> None:
        self.random = random.Random(f"{seed}/{episode}")
        self.loop = StepLoop()
        self.counts: Counter[str] = Counter()
        self.clients: list[Client] = []
        self.engines: list[Engine] = []
        self.asks: dict[str, Ask] = {}
        self.answers: dict[str, set[tuple[int, bytes]]] = {}
        """By the name of a request, what engines have answered: status and body."""
        self.troubled: set[str] = set()
        """Names of requests on which an engine has failed."""
        self.ended_early: set[str] = set()
        """Names of those whose answer ended in a way that nobody can tell from a whole one."""
        self.refused = False
        self._tried = 0.0
        """Seconds for which there was always an opening that has not ended."""
        """Whether a connection could not be opened."""
        self._options = options
        self._buffers = SMALL if self.random.random() < 0.9 else Buffers()
        asyncio._set_running_loop(self.loop)
        self.state = router_state()
        self.state.install(table_of(*ENGINES), "file", 0.0)
        self.pool = EngineConnections(self.loop.time, 2.0)
        handler = ApiHandler(self.state, self.pool, BodyReader(), self.loop.time, TIMEOUT)
        self.budget = BodyBudget(BUDGET)
        self.listener = ClientListener(handler, self.loop.time, 150_000, budget=self.budget)
        (self._members,) = [
            revision.candidates.ready for group in self.state.index.groups for revision in group.revisions
        ]
        actions = [
            (self.connect, 3), (self.ask, 16), (self.flood, 1), (self.client_sends, 14), (self.client_reads, 12),
            (self.client_leaves, 1), (self.open, 6), (self.cannot_open, 1), (self.engine_reads, 10),
            (self.engine_answers, 12), (self.engine_answers_early, 4), (self.engine_sends, 12), (self.router_reads, 12),
            (self.engine_vanishes, 3), (self.engine_garbles, 1), (self.engine_babbles, 1), (self.all_work, 4),
            (self.seconds_pass, 3), (self.minutes_pass, 1), (self.loop_turns, 8), (self.loop_starves, 1),
            (self.table_changes, 1),
        ]  # fmt: skip
        # every episode without some of the actions: what happens always hides what happens in its absence
        rare = (self.client_leaves, self.cannot_open, self.engine_vanishes, self.engine_garbles, self.engine_babbles,
                self.seconds_pass, self.minutes_pass, self.engine_answers_early, self.client_reads,
                self.flood)  # fmt: skip
        left_out = {action for action in rare if self.random.random() < 0.5}
        self._actions = [action for action, _ in actions if action not in left_out]
        self._weights = [weight for action, weight in actions if action not in left_out]

    def run(self, steps: int) -> None:
        for action in self.random.choices(self._actions, self._weights, k=steps):
            action()
            self.counts[action.__name__] += 1
            self.check()
        self.let_all_end()

    def transport(self, protocol) -> MemoryTransport:
        return MemoryTransport(protocol, self.loop.call_soon, buffers=self._buffers, options=self._options)

    # --- Clients -------------------------------------------------------------------------------------------------

    def _client(self) -> Client | None:
        here = [client for client in self.clients if not client.left]
        return self.random.choice(here) if here else None

    def connect(self) -> None:
        for client in [each for each in self.clients if each.transport.lost and (each.over or each.left)]:
            self._settle(client)
            self.clients.remove(client)
        if len(self.clients) < MOST_CLIENTS:
            self.clients.append(Client(self, len(self.clients)))

    def ask(self) -> None:
        if (client := self._client()) is not None:
            kind = self.random.choice(
                ["chat"] * 6
                + ["large", "chunked", "expects", "close", "old", "old kept", "stored", "own", "head", "broken"]
            )
            for _ in range(self.random.choice([1, 1, 2, 5])):
                self._ask(client, kind)

    def flood(self) -> None:
        """Requests by the hundred from a client that reads nothing."""
        if (client := self._client()) is not None:
            kind = self.random.choice(["own", "chat", "models"])
            for _ in range(600 if kind != "chat" else 150):
                self._ask(client, kind)
            client.send(10**6)

    def _ask(self, client: Client, kind: str) -> None:
        if client.finished:
            return
        name = f"r{len(self.asks)}"
        fields = [f"User-Agent: {name}", f"X-Request-Id: {name}"]
        if kind in ("own", "head", "broken", "models"):
            request = get("/v1/models" if kind == "models" else "/nowhere", *fields)
            if kind == "head":
                request = request.replace(b"GET", b"HEAD")
            if kind == "broken":
                request = b"no request\r\n\r\n"
            ask = Ask(name, kind, head_only=kind == "head", closes=kind == "broken")
        elif kind == "stored":
            member = self.random.choice(self._members)
            found = response_id(member, SessionKey(7), bytes(RANDOM_BYTES))
            request, ask = get(f"/v1/responses/{found}", *fields), Ask(name, kind)
        else:
            size = self.random.choice([3000, 8000, 20_000, 100_000]) if kind in ("large", "expects", "chunked") else 0
            request = post(chat(name, padding="x" * size), *fields, *self._extra(kind), version=self._version(kind))
            head, _, body = request.partition(b"\r\n\r\n")
            ask = Ask(name, kind, minor=int(self._version(kind)[-1]), body=body, closes=kind in ("close", "old"))
            if kind == "chunked":
                lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"content-length")]
                coded = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in _parts(body, 7000)) + b"0\r\n\r\n"
                request = b"\r\n".join([*lines, b"Transfer-Encoding: chunked", b"", b""]) + coded
        self.asks[name] = ask
        client.ask(ask, request)

    @staticmethod
    def _version(kind: str) -> str:
        return "1.0" if kind in ("old", "old kept") else "1.1"

    @staticmethod
    def _extra(kind: str) -> list[str]:
        return {
            "close": ["Connection: close"],
            "old kept": ["Connection: keep-alive"],
            "expects": ["Expect: 100-continue"],
        }.get(kind, [])

    def client_sends(self) -> None:
        if (client := self._client()) is not None:
            client.send(self.random.choice(PARTS))

    def client_reads(self) -> None:
        if (client := self._client()) is not None:
            client.read(self.random.choice(PARTS))

    def client_leaves(self) -> None:
        if (client := self._client()) is not None:
            client.leave(self.random.choice(["reset", "end"]))

    # --- Engines -------------------------------------------------------------------------------------------------

    def _engine(self) -> Engine | None:
        alive = [engine for engine in self.engines if engine.alive]
        return self.random.choice(alive) if alive else None

    def _opening(self):
        self.loop.turn()
        self.loop.openings = [opening for opening in self.loop.openings if opening.pending]
        return self.random.choice(self.loop.openings) if self.loop.openings else None

    def open(self) -> None:
        if (opening := self._opening()) is not None:
            self._open(opening)
            if self.random.random() < 0.1:
                # the engine is fast, the loop busy: the answer is handled before the task that opened the connection
                engine = self.engines[-1]
                while engine.alive and engine.read(10**7):
                    pass
                if engine.requests:
                    self.answer_one(engine, early=False, plainly=True)
                while engine.alive and (engine.send(10**6) or engine.transport.deliver()):
                    pass
                self.loop_starves()

    def _open(self, opening) -> None:
        transport = self.transport(opening.protocol)
        self.engines = [engine for engine in self.engines if not engine.transport.lost]
        self.engines.append(Engine(self, opening.protocol, transport))
        opening.succeed(transport)

    def cannot_open(self) -> None:
        if (opening := self._opening()) is not None:
            self.refused = True
            opening.fail()

    def engine_reads(self) -> None:
        if (engine := self._engine()) is not None:
            engine.read(self.random.choice(PARTS))

    def engine_answers(self) -> None:
        engine = self._engine()
        if engine is not None and engine.requests:
            self.answer_one(engine, early=False)

    def engine_answers_early(self) -> None:
        """It answers a request of which it has the head alone."""
        engine = self._engine()
        if engine is not None and engine.can_answer_early:
            self.answer_one(engine, early=True)
            if self.random.random() < 0.5:
                engine.send(10**6)
                engine.transport.deliver()

    def answer_one(self, engine: Engine, *, early: bool, plainly: bool = False) -> None:
        name = engine.name if early else engine.requests.pop(0)[0]
        size = 300 if plainly else self.random.choice(SIZES)
        how = "length" if plainly else self.random.choice(WAYS)
        status = 200 if plainly else self.random.choice([200, 200, 200, 200, 400, 404, 413, 500])
        if how == "busy":
            status = 503
            self.troubled.add(name)
        elif how == "empty":
            status = 204
        body = (name.encode() + b";") * (size // (len(name) + 1) + 1)
        body = b"" if how == "empty" else body[:size]
        head = b"HTTP/1.%d %d X\r\n" % (0 if how.startswith("old") else 1, status)
        if how == "interim":
            head = b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Hints\r\nlink: x\r\n\r\n" + head
        if how == "chunks":
            data = head + b"transfer-encoding: chunked\r\n\r\n"
            step = self.random.choice([1, 50, 4000]) if size < 9000 else 4000
            data += b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in _parts(body, step))
            data += self.random.choice([b"0\r\n\r\n", b"0\r\nx-trailer: y\r\n\r\n"])
        else:
            fields = b"connection: keep-alive\r\n" if how == "old kept" else b""
            fields += b"connection: close\r\n" if how in ("close", "until close") else b""
            fields += b"content-length: %d\r\n" % len(body) if how not in ("until close", "empty", "old") else b""
            data = head + fields + b"\r\n" + body
        if early:
            # a server that does not read a request to its end must close, and says so (RFC 9112 section 9.6); one that
            # says 413 and keeps the connection open is what engines do
            engine.early = True
            large = len(self.asks[name].body) > UNREAD_BYTES  # a smaller one has come with its head
            engine.deaf = status >= 400 and large and self.random.random() < 0.5
        engine.closes = how in ("close", "until close", "old")
        engine.until_close = how in ("until close", "old")
        self.answers.setdefault(name, set()).add((status, body))
        engine.to_send += data

    def engine_sends(self) -> None:
        if (engine := self._engine()) is not None:
            engine.send(self.random.choice(PARTS))

    def router_reads(self) -> None:
        if (engine := self._engine()) is not None:
            engine.transport.deliver(self.random.choice(PARTS))

    def engine_vanishes(self) -> None:
        """It ends or resets a connection: any one, or one on which it has just begun to answer."""
        busy = [engine for engine in self.engines if engine.alive and (engine.requests or engine.to_send)]
        engine = self.random.choice(busy) if busy else self._engine()
        if engine is None:
            return
        if self.random.random() < 0.7:
            if engine.requests:
                self.answer_one(engine, early=False)
            engine.send(self.random.choice((1, 7, 200, 1000)))
            engine.transport.deliver()
        if engine.alive:
            engine.vanish(self.random.choice(["reset", "end"]))

    def engine_garbles(self) -> None:
        """It sends what is no HTTP, instead of an answer or within one."""
        engine = self._engine()
        # within a body that ends with the connection, or instead of its last bytes, garbage is the body
        if engine is not None and engine.name and (engine.requests or (engine.to_send[60:] and not engine.until_close)):
            self.note_trouble(engine.connection)
            engine.to_send[: len(engine.to_send) // 2] = b"\0no answer\n\n"
            engine.requests.clear()
            engine.send(10**6)
            engine.closes = True

    def engine_babbles(self) -> None:
        """It sends an answer that nobody asked for, on a connection that is kept or together with one that was."""
        engine = self._engine()
        stray = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nstray"
        if engine is None or engine.transport.incoming or engine.to_send or not engine.transport.reading:
            return
        idle = any(engine.connection in pooled for pooled in self.pool._idle.values())
        if engine.requests:
            self.answer_one(engine, early=False, plainly=True)
            stray = bytes(engine.to_send) + stray
            engine.to_send.clear()
        elif not idle or not engine.between_requests:
            return
        engine.transport.send(stray)
        engine.transport.deliver()
        assert engine.transport.closing, "an answer that nobody asked for, and the connection is kept"

    def all_work(self) -> None:
        """A stretch in which nobody stands still but the clients' reading: reaches the deep states soon."""
        for client in self.clients:
            if not client.left:
                client.send(10**7)
        self.loop.turn()
        for opening in [opening for opening in self.loop.openings if opening.pending]:
            self._open(opening)
        for engine in list(self.engines):
            while engine.alive and engine.read(10**7):
                pass
            if engine.alive and engine.requests:
                self.answer_one(engine, early=False)
            while engine.alive and (engine.send(10**6) or engine.transport.deliver()):
                pass

    # --- Time and the table --------------------------------------------------------------------------------------

    def seconds_pass(self) -> None:
        self._pass(self.random.choice([0.3, 0.3, 1.0, 3.0]))

    def minutes_pass(self) -> None:
        self._pass(self.random.choice([10.0, 61.0, 61.0, 80.0, 601.0]))

    def _pass(self, seconds: float) -> None:
        # a loop that is not overloaded has read before a second passes what has come
        self.loop.turn()
        for side in (*self.clients, *self.engines):
            while side.transport.deliver():
                pass
        for client in self.clients:
            client.wait(seconds)
        opening = any(each.pending for each in self.loop.openings)
        self._tried = self._tried + seconds if opening else 0.0
        self.refused |= self._tried > CONNECT_SECONDS
        if seconds >= TIMEOUT / 2:
            self.troubled.update(self.asks)
        self.loop.now += seconds
        now = self.loop.now
        self.listener.tick(now)
        self.pool.tick(now)
        self.state.expire_waiting(now)

    def loop_starves(self) -> None:
        """Time passes, and the loop has no turn: what it has read was handled before."""
        for client in self.clients:
            client.wait(3.0)
        self.refused |= bool(self.loop.openings)
        self.loop.now += 3.0

    def loop_turns(self) -> None:
        self.loop.turn()

    def table_changes(self) -> None:
        self.state.install(table_of(*self.random.sample(ENGINES, 2)), "file", self.loop.now)

    # --- What must hold ------------------------------------------------------------------------------------------

    def check(self) -> None:
        buffers = self._buffers
        for client in self.clients:
            transport = client.transport
            assert transport.written_while_paused <= WHILE_PAUSED, "a client that does not read is written to"
            if not transport.paused:
                transport.written_while_paused = 0
            assert len(transport.out) <= buffers.high + buffers.one_read + 4096
            assert client.connection.intake.buffered <= PIPELINED_BYTES + buffers.one_read
        assert 0 <= self.budget.used <= self.budget.limit
        for connection in (each for idle in self.pool._idle.values() for each in idle):
            assert not connection._transport.closed, "a pooled connection is closed"
        for engine in self.engines:
            if engine.transport.closing or not any(engine.connection in idle for idle in self.pool._idle.values()):
                continue
            assert engine.transport.reading, "a pooled connection is not read"
            assert not engine.transport.out, "a pooled connection has bytes to send"
            # an engine that still has to read the end of what it answered early will: but not one that reads no more
            assert not (engine.deaf and engine.transport.wire), "a pooled connection whose request nobody reads"
            assert not engine.to_send or engine.ended, "a pooled connection whose answer has not ended"

    def note_trouble(self, connection: EngineConnection) -> None:
        """Note the request that a connection fails on."""
        for client in self.clients:
            active, request = client.connection._active, client.connection._request
            if active is not None and active._engine is connection:
                self.troubled.add(request.head.fields[b"user-agent"].decode())

    def check_request(self, name: str, body: bytes) -> None:
        assert body == self.asks[name].body, f"an engine got another body than {name} has"

    def answered(self, client: Client, ask: Ask, status: int, fields: dict[bytes, bytes], body: bytes) -> None:
        """Check a whole answer."""
        self.counts[f"answer {status}"] += 1
        if status == 408 or (status == 503 and b"x-request-id" not in fields):
            assert client.excused or self.budget.used > 0, f"{status} for {ask}"
            return
        if ask.kind == "broken":
            assert status == 400, status
            return
        if ask.kind == "models":
            assert status == 200, status
            return
        assert fields[b"x-request-id"] == ask.name.encode(), f"{ask.name} got the answer of {fields[b'x-request-id']!r}"
        if b"x-promptgroup-served-by" not in fields:
            expected = {"own": 404, "head": 404}.get(ask.kind)
            if expected is not None:
                assert status == expected, status
                assert bool(body) != ask.head_only
            else:
                assert status in (502, 503, 504), f"{status} for {ask.name}: {body[:200]!r}"
                assert self.refused or ask.name in self.troubled, f"{status} for {ask.name}, and no engine failed"
            return
        if ask.name in self.ended_early:
            assert any(whole.startswith(body) for _, whole in self.answers[ask.name])
            return
        assert (status, body) in self.answers[ask.name], f"{ask.name} looks whole with {len(body)} bytes: {body[:60]!r}"

    def let_all_end(self) -> None:
        """Everybody behaves: whoever still waits after that has been forgotten."""
        moved = True
        while moved:
            moved = self.loop.turn()
            for opening in [opening for opening in self.loop.openings if opening.pending]:
                self._open(opening)
                moved = True
            for engine in list(self.engines):
                engine.deaf = False
                if not engine.alive:
                    moved |= not engine.transport.closing and engine.transport.deliver()
                    continue
                moved |= engine.read(10**7)
                while engine.requests:
                    self.answer_one(engine, early=False, plainly=True)
                    moved = True
                moved |= engine.send(10**7)
                moved |= engine.transport.deliver()
            for client in self.clients:
                if client.left:
                    moved |= client.transport.deliver() or bool(client.transport.read(10**7))
                else:
                    moved |= client.send(10**7)
                    moved |= client.read(10**7)
            self.check()
        for client in self.clients:
            self._settle(client)
        assert not any(self.state.balancer.placed.loads.values()), "a load was not released"
        assert self.budget.used == 0, "bytes of a body were not given back"
        self.close()

    def _settle(self, client: Client) -> None:
        owed = client.owed()
        if owed is not None and client.cut is not None:
            # a reset also takes what the client has not read of the answers before the one that is cut
            unread = client.asked[client.answered :]
            assert any(ask.name in self.troubled for ask in unread), f"{client.cut.name} was cut, and no engine failed"
        else:
            assert owed is None, f"no answer to {owed.name} ({owed.kind}) of {len(client.asked)}"

    def close(self) -> None:
        """Everybody leaves: nothing may stay."""
        for client in self.clients:
            if not client.left:
                client.leave("end")
        for _ in range(3):
            while self.loop.turn():
                pass
            self._pass(STALL_SECONDS + 1)
        while self.loop.turn():
            pass
        assert not self.listener.connections, "a client's connection was forgotten"
        assert not self.pool._idle, "an engine's connection was forgotten"
        assert not self.pool._connecting, "an opening was forgotten"


def _parts(body: bytes, size: int) -> list[bytes]:
    return [body[at : at + size] for at in range(0, len(body), size)]


class EpisodeError(AssertionError):
    """An episode in which something did not hold."""


def run(steps: int, seed: int, first: int = 0) -> Counter[str]:
    """Run episodes until so many steps were made; what happened how often.

    Raises:
        EpisodeError: something did not hold.
    """
    counts: Counter[str] = Counter()
    done, episode = 0, first
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as options:
        try:
            while done < steps:
                machine = Machine(seed, episode, options)
                try:
                    machine.run(min(STEPS_IN_EPISODE, steps - done))
                except Exception as error:
                    raise EpisodeError(f"seed {seed}, episode {episode}: {error!r}") from error
                done += STEPS_IN_EPISODE
                episode += 1
                counts += machine.counts
                del machine
        finally:
            asyncio._set_running_loop(None)
    gc.collect()
    kinds = (ClientConnection, EngineConnection, Relay)
    left = Counter(type(each).__name__ for each in gc.get_objects() if isinstance(each, kinds))
    if left:
        raise EpisodeError(f"seed {seed}: objects that nobody needs are still there: {dict(left)}")
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--episode", type=int, default=None, help="run this episode alone")
    given = parser.parse_args()
    began = time.process_time()
    if given.episode is not None:
        counts = run(STEPS_IN_EPISODE, given.seed, given.episode)
    else:
        counts = run(given.steps, given.seed)
    lines = [f"{given.steps} steps, seed {given.seed}, {time.process_time() - began:.0f} s of CPU"]
    lines += [f"  {count:9} {what}" for what, count in sorted(counts.items())]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
