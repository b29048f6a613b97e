"""Every cell of the tables in downstream.py and upstream.py: phase, direction that is paused, event."""

import asyncio

import pytest

from promptgroup_router.base.errors import Failure
from promptgroup_router.proxy import downstream
from promptgroup_router.proxy.downstream import (
    IDLE_SECONDS,
    LINGER_SECONDS,
    STALL_SECONDS,
    ClientListener,
    ClientPhase,
)
from promptgroup_router.proxy.request_intake import PIPELINED_BYTES
from promptgroup_router.proxy.upstream import EngineConnection, EngineConnections
from support.followed import Origin
from support.script import FakeTransport
from support.wire import get, post


class Client:
    """A connection in a phase, its transport writable or paused."""

    def __init__(self, phase: ClientPhase, *, paused: bool) -> None:
        self.now, self.begun, self.work = 0.0, 0, Origin()
        self.transport = FakeTransport()
        self.connection = ClientListener(self.handle, lambda: self.now, 10**6).accept()
        self.connection.connection_made(self.transport)
        if phase is not ClientPhase.OPEN:
            self.connection.data_received(get("/first"))
        if phase is ClientPhase.CLOSING:
            self.connection.finish(keep=False)
        if paused:
            self.connection.pause_writing()
        self.transport.taken()
        self.transport.did.clear()
        self.work.told.clear()
        self.begun = 0

    def handle(self, client, request):
        self.begun += 1
        return self.work

    def happens(self, event: str) -> None:  # noqa: PLR0912 - a case an event
        connection = self.connection
        match event:
            case "request":
                connection.data_received(get("/next"))
            case "flood":
                connection.data_received(post(b"a" * PIPELINED_BYTES) + get("/next"))
            case "paused":
                connection.pause_writing()
            case "writable":
                connection.resume_writing()
            case "end":
                connection.eof_received()
            case "lost":
                connection.connection_lost(None)
            case "kept" | "not kept":
                connection.finish(keep=event == "kept")
            case "cut" | "cut visibly":
                connection.cut(visibly=event != "cut")
            case "idle":
                self.now = max(IDLE_SECONDS, LINGER_SECONDS)
                connection.tick(self.now)
            case "stalled":
                self.transport.unsent = 5
                for _ in range(2):
                    connection.tick(self.now)
                    self.now += STALL_SECONDS
            case "slow":
                for self.transport.unsent in range(50, 0, -1):
                    self.now += 0.9 * STALL_SECONDS
                    connection.tick(self.now)

    def outcome(self) -> tuple:
        return self.connection._phase.name, self.begun, self.transport.did, [told.split()[0] for told in self.work.told]


O, A, C = "OPEN", "ANSWERING", "CLOSING"  # noqa: E741
CELLS = {
    # phase, paused, event: phase, requests begun, done to the transport, told to the request
    (O, False, "request"): (A, 1, [], []),
    (O, False, "flood"): (A, 1, [], []),
    (O, False, "paused"): (O, 0, [], []),
    (O, False, "end"): (C, 0, [], []),
    (O, False, "lost"): (C, 0, [], []),
    (O, False, "idle"): (O, 0, ["abort"], []),
    (O, False, "stalled"): (O, 0, ["abort"], []),
    (O, False, "slow"): (O, 0, [], []),
    (O, True, "request"): (O, 0, [], []),
    (O, True, "flood"): (O, 0, ["pause"], []),
    (O, True, "writable"): (O, 0, [], []),
    (O, True, "end"): (C, 0, [], []),
    (O, True, "lost"): (C, 0, [], []),
    (O, True, "stalled"): (O, 0, ["abort"], []),
    (O, True, "slow"): (O, 0, [], []),
    (A, False, "request"): (A, 0, [], []),
    (A, False, "flood"): (A, 0, ["pause"], []),
    (A, False, "paused"): (A, 0, [], ["pause"]),
    (A, False, "kept"): (O, 0, [], []),
    (A, False, "not kept"): (C, 0, ["write_eof"], []),
    (A, False, "cut"): (C, 0, ["write_eof"], []),
    (A, False, "cut visibly"): (C, 0, ["abort"], []),
    (A, False, "end"): (C, 0, ["abort"], ["left"]),
    (A, False, "lost"): (C, 0, [], ["left"]),
    (A, False, "idle"): (A, 0, [], ["tick"]),
    (A, True, "request"): (A, 0, [], []),
    (A, True, "flood"): (A, 0, ["pause"], []),
    (A, True, "writable"): (A, 0, [], ["resume"]),
    (A, True, "kept"): (O, 0, [], []),
    (A, True, "not kept"): (C, 0, ["write_eof"], []),
    (A, True, "cut"): (C, 0, ["write_eof"], []),
    (A, True, "cut visibly"): (C, 0, ["abort"], []),
    (A, True, "end"): (C, 0, ["abort"], ["left"]),
    (A, True, "lost"): (C, 0, [], ["left"]),
    (A, True, "idle"): (A, 0, [], ["tick"]),
    (C, False, "request"): (C, 0, [], []),
    (C, False, "flood"): (C, 0, [], []),
    (C, False, "paused"): (C, 0, [], []),
    (C, False, "end"): (C, 0, [], []),
    (C, False, "lost"): (C, 0, [], []),
    (C, False, "idle"): (C, 0, ["abort"], []),
    (C, False, "stalled"): (C, 0, ["abort"], []),
    (C, False, "slow"): (C, 0, [], []),
    (C, True, "request"): (C, 0, [], []),
    (C, True, "flood"): (C, 0, [], []),
    (C, True, "writable"): (C, 0, [], []),
    (C, True, "end"): (C, 0, [], []),
    (C, True, "lost"): (C, 0, [], []),
    (C, True, "stalled"): (C, 0, ["abort"], []),
    (C, True, "slow"): (C, 0, [], []),
}


@pytest.mark.parametrize(("phase", "paused", "event"), CELLS)
def test_a_cell_of_the_clients_side(phase, paused, event):
    client = Client(ClientPhase[phase], paused=paused)
    client.happens(event)
    assert client.outcome() == CELLS[phase, paused, event]


@pytest.mark.interpreted
@pytest.mark.parametrize("phase", ClientPhase)
def test_only_a_stall_is_reset(phase, monkeypatch):
    """An ordinary end could make an answer look whole."""
    resets = []
    monkeypatch.setattr(downstream, "_reset", resets.append)
    client = Client(phase, paused=True)
    client.happens("stalled")
    assert len(resets) == (0 if phase is ClientPhase.ANSWERING else 1)


def test_what_was_kept_while_paused_begins_when_the_client_reads():
    client = Client(ClientPhase.OPEN, paused=True)
    client.happens("flood")
    client.happens("writable")
    assert client.outcome() == (A, 1, ["pause", "resume"], [])


# --- The engine's side ------------------------------------------------------------------------------------------

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n"


class Listener:
    def __init__(self) -> None:
        self.heard = []

    def answer_began(self, head):
        self.heard.append("head")

    def answer_data(self, data):
        self.heard.append(data)

    def answer_ended(self):
        self.heard.append("end")

    def failed(self, failure):
        self.heard.append(failure)


ENGINE_CELLS = {
    # phase, paused, event: heard, done to the transport, pooled
    ("SENT", False, "pause"): ([], ["pause"], False),
    ("SENT", True, "resume"): ([], ["pause", "resume"], False),
    ("SENT", False, "whole"): (["head", b"done", "end"], [], True),
    ("SENT", True, "whole"): (["head", b"done", "end"], ["pause", "resume"], True),
    ("SENT", False, "lost"): ([Failure.RESET], ["abort"], False),
    ("SENT", True, "lost"): ([Failure.RESET], ["pause", "abort"], False),
    ("SENT", False, "end"): ([], ["abort"], False),
    ("SENT", False, "abort"): ([], ["abort"], False),
    ("SENT", True, "abort"): ([], ["pause", "abort"], False),
    ("ANSWERING", False, "pause"): ([], ["pause"], False),
    ("ANSWERING", True, "resume"): ([], ["pause", "resume"], False),
    ("ANSWERING", False, "rest"): ([b"ne", "end"], [], True),
    ("ANSWERING", True, "rest"): ([b"ne", "end"], ["pause", "resume"], True),
    ("ANSWERING", False, "rest and more"): ([b"ne", "end"], ["abort"], False),
    ("ANSWERING", False, "rest, request unsent"): ([b"ne", "end"], ["abort"], False),
    ("ANSWERING", True, "rest, request unsent"): ([b"ne", "end"], ["pause", "abort"], False),
    ("ANSWERING", False, "lost"): ([Failure.RESET], ["abort"], False),
    ("ANSWERING", False, "abort"): ([], ["abort"], False),
    ("IDLE", False, "rest"): ([], ["close"], True),
    ("IDLE", False, "lost"): ([], [], False),
    ("IDLE", False, "end"): ([], ["abort"], True),
}


@pytest.mark.parametrize(("phase", "paused", "event"), ENGINE_CELLS)
def test_a_cell_of_the_engines_side(phase, paused, event):
    async def check():
        connections = EngineConnections(lambda: 0.0, connect_timeout=1.0)
        connection, transport, listener = EngineConnection(connections, "e:1"), FakeTransport(), Listener()
        connection.send(b"request", b"", listener)
        if paused:
            connection.pause()
        connection.connection_made(transport)
        if phase != "SENT":
            connection.data_received(HEAD + (b"done" if phase == "IDLE" else b"do"))
        listener.heard.clear()
        match event:
            case "pause" | "resume" | "abort":
                getattr(connection, event)()
            case "whole":
                connection.data_received(HEAD + b"done")
            case "rest" | "rest and more" | "rest, request unsent":
                transport.unsent = 3 * event.endswith("unsent")
                connection.data_received(b"nemore" if event.endswith("more") else b"ne")
            case "lost":
                connection.connection_lost(None)
            case "end":
                connection.eof_received()
        pooled = connection in connections._idle.get("e:1", [])
        assert (listener.heard, transport.did, pooled) == ENGINE_CELLS[phase, paused, event]

    asyncio.run(check())
