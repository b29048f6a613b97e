"""Clients and engines that are slow, stop or vanish, in every order: no byte is lost, none is hoarded, none waits.

The state machine moves bytes by hand between the real connections, relays and handler of the router. After each step
the buffers are within their bounds and pooled connections are clean. In the end everybody behaves, and every request of
a client that stayed has its answer.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from promptgroup_router.base.errors import Failure, HttpError
from promptgroup_router.http11.framing import Chunked
from promptgroup_router.http11.http1 import Framing
from promptgroup_router.http11.reader import RequestReader, ResponseReader
from promptgroup_router.proxy import downstream
from promptgroup_router.proxy.api_handler import ApiHandler
from promptgroup_router.proxy.body_budget import BodyBudget
from promptgroup_router.proxy.downstream import PIPELINED_BYTES, ClientListener
from promptgroup_router.proxy.upstream import EngineConnections
from promptgroup_router.routing.state import RouterState
from support.memorynet import HIGH_WATER, ONE_READ, MemoryTransport
from support.wire import chat, get, post, table_of

ENGINES = ("engine-0:1", "engine-1:1")
LARGE = 200_000
SIZES = st.sampled_from([0, 1, 300, 40_000, LARGE])
STEPS = st.sampled_from([1, 7, 1000, 70_000, 10**6])


class Attempt:
    """A connection that is being opened."""

    def __init__(self, connection) -> None:
        self.connection = connection
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class MemoryEngines(EngineConnections):
    """Connections that the test opens."""

    def __init__(self, clock) -> None:
        self._clock = clock
        self._idle, self._connecting = {}, {}
        self._loop = self
        self.attempts = []

    def create_task(self, attempt):
        return attempt

    def _connect(self, connection):
        self.attempts.append(Attempt(connection))
        return self.attempts[-1]

    @property
    def idle(self):
        return [connection for pooled in self._idle.values() for connection in pooled]


class Engine:
    """The engine's end of one connection."""

    def __init__(self, connection, transport) -> None:
        self.connection = connection
        self.transport = transport
        self.reader = RequestReader(2**30)
        self.requests = []
        """Whole, not answered."""
        self.to_send = bytearray()
        self.closes = False
        """After what is to be sent."""
        self.deaf = False
        """Reads no more."""

    @property
    def alive(self) -> bool:
        return not self.transport.lost and not self.transport.closing

    def read(self, size: int) -> bool:
        data = b"" if self.deaf else self.transport.read(size)
        if data:
            self.reader.feed(data)
        while (request := self.reader.next()) is not None:
            self.requests.append(request)
        return bool(data)

    def send(self, size: int) -> bool:
        part = self.to_send[:size]
        del self.to_send[: len(part)]
        if self.alive:
            self.transport.incoming += part
        if not self.to_send and self.closes and self.alive and not self.transport.incoming:
            self.transport.end()
            self.closes = False
            return True
        return bool(part)


class Client:
    """A client's end of one connection."""

    def __init__(self, connection, transport) -> None:
        self.connection = connection
        self.transport = transport
        self.asked = []
        """(name, HEAD, minor version) of each request, in order."""
        self.to_send = bytearray()
        self.received = bytearray()
        self.left = False
        self.last = False
        """Whether it has asked for the end of the connection, or sent what is no request."""
        self.saw_reset = False

    def read(self, size: int) -> bool:
        data = self.transport.read(size)
        self.received += data
        self.saw_reset = self.saw_reset or self.transport.was_reset
        return bool(data)


class Proxy(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.callbacks = []
        self.clients, self.engines = [], []
        self.bodies: dict[str, set[bytes]] = {}
        """By the name of a request, what engines have answered."""
        self.count = 0
        self.patch = pytest.MonkeyPatch()

    @initialize()
    def start(self) -> None:
        self.patch.setattr(downstream, "_reset", reset)
        state = RouterState()
        state.install(table_of(*ENGINES), "file", 0.0)
        self.state = state
        self.pool = MemoryEngines(lambda: self.now)
        handler = ApiHandler(state, self.pool, lambda: self.now, 600.0)
        self.budget = BodyBudget(10 * LARGE)
        self.listener = ClientListener(handler, lambda: self.now, 2 * LARGE, budget=self.budget)
        self.listener.call_soon = self.callbacks.append

    def teardown(self) -> None:
        try:
            if hasattr(self, "pool"):
                self.let_all_end()
        finally:
            self.patch.undo()

    # --- Clients -------------------------------------------------------------------------------------------------

    @rule()
    @precondition(lambda self: sum(not client.left for client in self.clients) < 3)
    def connect(self) -> None:
        connection = self.listener.accept()
        transport = MemoryTransport(connection, self.callbacks.append)
        connection.connection_made(transport)
        self.clients.append(Client(connection, transport))

    def client(self, data) -> Client:
        return data.draw(st.sampled_from([client for client in self.clients if not client.left]), "client")

    some_client = precondition(lambda self: any(not client.left for client in self.clients))

    @some_client
    @rule(
        data=st.data(),
        kind=st.sampled_from(["chat", "chat", "chat", "large", "close", "old", "own", "head", "broken"]),
        times=st.sampled_from([1, 1, 2, 40]),
    )
    def ask(self, data, kind, times) -> None:
        client = self.client(data)
        for _ in range(times):
            if client.last:
                return
            self.count += 1
            name = f"request {self.count}"
            match kind:
                case "own":
                    request = get("/nowhere")
                case "head":
                    request = get("/nowhere").replace(b"GET", b"HEAD")
                case "broken":
                    request = b"no request\r\n\r\n"
                case "large":
                    request = post(chat(name, padding="x" * LARGE))
                case _:
                    fields = ["Connection: close"] if kind == "close" else []
                    request = post(chat(name), *fields, version="1.0" if kind == "old" else "1.1")
            client.last = kind in ("close", "old", "broken")
            client.asked.append((name if kind not in ("own", "head", "broken") else "", kind == "head", kind))
            client.to_send += request

    @some_client
    @rule(data=st.data(), size=STEPS)
    def client_sends(self, data, size) -> None:
        client = self.client(data)
        part = client.to_send[:size]
        del client.to_send[:size]
        client.transport.incoming += part
        client.transport.deliver()

    @some_client
    @rule(data=st.data(), size=STEPS)
    def client_reads(self, data, size) -> None:
        self.client(data).read(size)

    @some_client
    @rule(data=st.data(), how=st.sampled_from(["reset", "end"]))
    def client_leaves(self, data, how) -> None:
        client = self.client(data)
        client.left = True
        if how == "reset":
            client.saw_reset = True
            client.transport.break_off()
        else:
            client.transport.end()

    # --- Engines -------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.pool.attempts)
    @rule(data=st.data(), fails=st.sampled_from([False, False, False, True]))
    def open(self, data, fails) -> None:
        attempt = data.draw(st.sampled_from(self.pool.attempts), "attempt")
        self.open_one(attempt, fails=fails)

    def open_one(self, attempt, *, fails: bool = False) -> None:
        self.pool.attempts.remove(attempt)
        self.pool._connecting.pop(attempt.connection, None)
        if attempt.cancelled:
            return
        if fails:
            attempt.connection.connect_failed(Failure.REFUSED)
            return
        transport = MemoryTransport(attempt.connection, self.callbacks.append)
        self.engines.append(Engine(attempt.connection, transport))
        attempt.connection.connection_made(transport)

    def engine(self, data) -> Engine:
        return data.draw(st.sampled_from([engine for engine in self.engines if engine.alive]), "engine")

    some_engine = precondition(lambda self: any(engine.alive for engine in self.engines))

    @some_engine
    @rule(data=st.data(), size=STEPS)
    def engine_reads(self, data, size) -> None:
        self.engine(data).read(size)

    @some_engine
    @rule(
        data=st.data(),
        size=SIZES,
        how=st.sampled_from(
            ["length", "length", "chunks", "close", "until close", "interim", "busy", "error", "empty"]
        ),
    )
    def engine_answers(self, data, size, how) -> None:
        engine = self.engine(data)
        if engine.requests:
            self.answer_one(engine, size, how)

    def answer_one(self, engine: Engine, size: int, how: str) -> None:
        name = name_of(engine.requests.pop(0))
        body = (name.encode() + b";") * (size // len(name) + 1)
        body = b"" if how == "empty" else body[:size]
        head = {"busy": b"HTTP/1.1 503 Busy\r\n", "error": b"HTTP/1.1 400 No\r\n", "empty": b"HTTP/1.1 204 No\r\n"}
        data = head.get(how, b"HTTP/1.1 200 OK\r\n")
        if how == "interim":
            data = b"HTTP/1.1 102 Processing\r\n\r\n" + data
        if how == "chunks":
            data += b"transfer-encoding: chunked\r\n\r\n"
            for at in range(0, size, 10_000):
                data += b"%x\r\n%b\r\n" % (len(body[at : at + 10_000]), body[at : at + 10_000])
            data += b"0\r\n\r\n"
        elif how in ("until close", "close"):
            data += b"connection: close\r\n"
            data += b"\r\n" if how == "until close" else b"content-length: %d\r\n\r\n" % size
            data += body
            engine.closes = True
        else:
            data += b"\r\n" if how == "empty" else b"content-length: %d\r\n\r\n" % len(body)
            data += body
        self.bodies.setdefault(name, set()).add(body)
        engine.to_send += data

    @some_engine
    @rule(data=st.data())
    def engine_refuses_early(self, data) -> None:
        """It answers before it has read the request, and reads no more of it."""
        engine = self.engine(data)
        if engine.reader.head is not None and not engine.to_send and not engine.requests:
            engine.to_send += b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno"
            self.bodies.setdefault("", set()).add(b"no")
            engine.deaf = True

    @some_engine
    @rule(data=st.data(), size=STEPS)
    def engine_sends(self, data, size) -> None:
        self.engine(data).send(size)

    @some_engine
    @rule(data=st.data(), size=STEPS)
    def router_reads(self, data, size) -> None:
        self.engine(data).transport.deliver(size)

    @some_engine
    @rule(data=st.data(), how=st.sampled_from(["reset", "end"]))
    def engine_vanishes(self, data, how) -> None:
        engine = self.engine(data)
        if how == "reset":
            engine.transport.break_off()
        else:
            engine.transport.end()

    @rule(
        size=st.sampled_from([300, 40_000, 60_000, LARGE]),
        how=st.sampled_from(["length", "chunks", "close", "until close"]),
    )
    def engines_work(self, size, how) -> None:
        """A stretch in which nobody stands still but the clients' reading: reaches the deep states soon."""
        for client in self.clients:
            if not client.left:
                client.transport.incoming += client.to_send
                client.to_send.clear()
                client.transport.deliver()
        for attempt in list(self.pool.attempts):
            self.open_one(attempt)
        for engine in self.engines:
            while engine.alive and engine.read(10**7):
                pass
            if engine.alive and engine.requests:
                self.answer_one(engine, size, how)
            while engine.alive and (engine.send(10**6) or engine.transport.deliver()):
                pass

    # --- Time ----------------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.3, 1.0, 3.0]))
    def time_passes(self, seconds) -> None:
        self.now += seconds
        self.tick()

    def tick(self) -> None:
        self.listener.tick(self.now)
        self.pool.tick(self.now)
        self.state.expire_waiting(self.now)

    @rule()
    def loop_runs(self) -> None:
        self.run_callbacks()

    def run_callbacks(self) -> bool:
        callbacks, self.callbacks[:] = list(self.callbacks), []
        for callback in callbacks:
            callback()
        return bool(callbacks)

    # --- What must hold ------------------------------------------------------------------------------------------

    @invariant()
    def buffers_are_bounded(self) -> None:
        for client in self.clients:
            assert len(client.transport.out) <= HIGH_WATER + ONE_READ + 4096
            assert client.connection._reader.buffered <= PIPELINED_BYTES + ONE_READ
        if hasattr(self, "budget"):
            assert 0 <= self.budget.used <= self.budget.limit

    @invariant()
    def pooled_connections_are_clean(self) -> None:
        for connection in self.pool.idle if hasattr(self, "pool") else ():
            (engine,) = (engine for engine in self.engines if engine.connection is connection)
            if engine.transport.closing:
                continue  # it ends in the next turn of the loop
            assert engine.transport.reading
            assert not engine.transport.out
            assert not engine.to_send

    @invariant()
    def answers_are_what_engines_sent(self) -> None:
        for client in self.clients:
            self.check(client)

    def check(self, client: Client) -> int:
        """Compare what a client has with what it asked for; return the number of whole answers."""
        data, at = bytes(client.received), 0
        ended = client.transport.ended and not client.transport.wire
        for number, (name, head_only, kind) in enumerate(client.asked):
            found = read_answer(data[at:], head_only=head_only, ended=ended)
            if found is None:
                return number
            head, body, at = found[0], found[1], at + found[2]
            if kind == "broken":
                assert head.status == 400
            elif not name:
                assert head.status == 404
            elif any(field == b"x-promptgroup-served-by" for field, _ in head.headers):
                possible = self.bodies.get(name, set()) | self.bodies.get("", set())
                if head.framing is Framing.UNTIL_CLOSE or (kind == "old" and head.framing is not Framing.LENGTH):
                    # only a reset may end what is not whole
                    assert body in possible or not ended or client.saw_reset
                else:
                    assert body in possible
            else:
                assert head.status in (408, 502, 503, 504)
        assert at == len(data), f"bytes behind the last answer: {data[at : at + 80]!r}"
        return len(client.asked)

    def let_all_end(self) -> None:
        """Everybody behaves: whoever still waits after that has been forgotten."""
        moved = True
        while moved:
            moved = self.run_callbacks()
            for attempt in list(self.pool.attempts):
                self.open_one(attempt)
                moved = True
            for engine in self.engines:
                if not engine.alive:
                    continue
                moved |= engine.read(10**7)
                while engine.requests:
                    self.answer_one(engine, 300, "length")
                    moved = True
                moved |= engine.send(10**7)
                moved |= engine.transport.deliver()
            for client in self.clients:
                if client.left:
                    continue
                client.transport.incoming += client.to_send
                client.to_send.clear()
                moved |= client.transport.deliver()
                moved |= client.read(10**7)
            if not moved and len(self.state.admission_queue):
                self.now += 1.0
                self.tick()
                moved = True
        for client in self.clients:
            answered = self.check(client)
            if not client.left and not client.transport.lost and not client.transport.ended:
                assert answered == len(client.asked), f"no answer to {client.asked[answered]}"
        assert not any(self.state.balancer.loads.values())
        assert self.budget.used == 0


def reset(transport) -> None:
    transport.was_reset = True
    transport.wire.clear()
    transport.abort()


def name_of(request) -> str:
    at = request.body.index(b'"request ')
    return request.body[at + 1 : request.body.index(b'"', at + 1)].decode()


def read_answer(data: bytes, *, head_only: bool, ended: bool):
    """Head, content and length of the first final answer; None while it is not whole."""
    at = 0
    while True:
        end = data.find(b"\r\n\r\n", at) + 4
        if end < 4:
            return None
        if data[at:].startswith(b"HTTP/1.1 1"):
            at = end
            continue
        break
    reader = ResponseReader()
    if head_only:
        reader.feed(data[at:end])
        return reader.head, b"", end
    try:
        raw = reader.feed(data[at:])
    except HttpError as error:
        raise AssertionError(f"the client got {data[at : at + 200]!r}") from error
    if not reader.done and not (reader.ends_by_close and ended):
        return None
    body = raw
    if reader.head.framing is Framing.CHUNKED:
        content = bytearray()
        Chunked().feed(raw, content)
        body = bytes(content)
    return reader.head, body, end + len(raw)


Proxy.TestCase.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
TestProxy = Proxy.TestCase
