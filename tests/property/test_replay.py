"""Router and picker send the same recorded requests to the same replicas, whatever has happened before.

Both get one recording: conversations that match by content or name the group, under several policies, some streamed,
that overlap, fail, and are left by their clients. Each has books of its own and one clock; neither has a socket.
"""

import json
import random
from dataclasses import dataclass, field

import pytest

from promptgroup_contract.table import Policy
from promptgroup_picker.extproc.gateway_call import PickerState
from promptgroup_picker.extproc.processing import Processing
from promptgroup_picker.stubs.ext_proc_pb2 import ProcessingRequest, ProcessingResponse
from promptgroup_router.decision.composition import router_state
from promptgroup_router.http11.http1 import Framing
from promptgroup_router.http11.reader import RequestReader
from promptgroup_router.proxy.api_handler import ApiHandler
from promptgroup_router.proxy.body_budget import BodyBudget
from promptgroup_router.proxy.downstream import ClientSender
from support.grpcclient import endpoints_of, header_map
from support.heads import answer_head
from support.tables import group, revision, slot, table
from support.wire import chat, post

TABLE = table(
    group("a", revision("You are a. " * 90, slots=tuple(slot(n, address=f"10.0.1.{n}:80") for n in range(5)))),
    group(
        "b",
        revision("You are b. " * 200, slots=tuple(slot(n, address=f"10.0.2.{n}:80") for n in range(3))),
        policy=Policy.BOUNDED_LOAD,
    ),
    group(
        "c",
        revision("You are c. ", slots=tuple(slot(n, address=f"10.0.3.{n}:80") for n in range(2)), weight=70),
        revision("You are new c. ", slots=tuple(slot(n, address=f"10.0.4.{n}:80") for n in range(2)), weight=30),
        policy=Policy.LEAST_REQUEST,
    ),
)
SYSTEMS = {"a": "You are a. " * 90, "b": "You are b. " * 200}


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


class RouterSide:
    """The router, whose sockets are this object."""

    keeps_alive = has_ended = between_chunks = True

    def __init__(self, clock: Clock) -> None:
        self.state = router_state()
        self.state.install(TABLE, "file", clock.now)
        self.sender = ClientSender(None)
        self._handler = ApiHandler(self.state, self, None, clock, 600.0)  # no body is large enough for a reader
        self._address = ""
        self._refused = 0
        self._open: dict[int, tuple[object, object]] = {}

    def acquire(self, address: str, *, fresh: bool, verification=None):
        self._address = address
        return self

    def send(self, head: bytes, body: bytes, listener) -> None:
        self._listener = listener

    def abort(self) -> None: ...

    def write(self, data: bytes) -> None: ...

    def finish(self, *, keep: bool) -> None: ...

    def answer(self, status: int, headers, body: bytes) -> None:
        self._refused = status

    def begin(self, number: int, body: dict, fields: dict[str, str]) -> str:
        reader = RequestReader(2**24)
        reader.feed(post(body, *(f"{name}: {value}" for name, value in fields.items())))
        self._address, self._refused = "", 0
        request = reader.next()
        self.sender.begin(request)
        relay = self._handler(self, request)
        if self._address:
            self._open[number] = relay, self._listener
        return self._address or f"refused {self._refused}"

    def first(self, number: int, data: bytes, status: int) -> None:
        head = answer_head([(b"content-type", b"application/json")], status, Framing.UNTIL_CLOSE)
        self._open[number][1].answer_began(head)
        self._open[number][1].answer_data(data)

    def end(self, number: int, data: bytes) -> None:
        listener = self._open.pop(number)[1]
        listener.answer_data(data)
        listener.answer_ended()

    def leave(self, number: int) -> None:
        self._open.pop(number)[0].client_left()


@dataclass
class Told:
    """A stream that keeps what is sent on it."""

    said: list[bytes] = field(default_factory=list)
    peer: str = ""

    def send(self, data: bytes) -> None:
        self.said.append(data)

    def finish(self, *_: object) -> None: ...


class PickerSide:
    """The picker, whose gateway is this object."""

    def __init__(self, clock: Clock) -> None:
        self.state = router_state()
        self.state.install(TABLE, "file", clock.now)
        self._picker = PickerState(self.state, BodyBudget(2**26), clock, endpoints=1)
        self._open: dict[int, Processing] = {}

    def begin(self, number: int, body: dict, fields: dict[str, str]) -> str:
        stream = Told()
        call = Processing(self._picker, stream)
        head = {":method": "POST", ":path": "/v1/chat/completions", **{k.lower(): v for k, v in fields.items()}}
        call.message(header_map(ProcessingRequest(), "request_headers", head, end=False).SerializeToString())
        call.message(self._body("request_body", json.dumps(body).encode(), end=True))
        (first, *_) = map(ProcessingResponse.FromString, stream.said)
        if first.HasField("immediate_response"):
            return f"refused {first.immediate_response.status.code}"
        self._open[number] = call
        return endpoints_of(first)

    def _body(self, part: str, data: bytes, *, end: bool) -> bytes:
        message = ProcessingRequest()
        getattr(message, part).body, getattr(message, part).end_of_stream = data, end
        return message.SerializeToString()

    def first(self, number: int, data: bytes, status: int) -> None:
        head = {":status": str(status), "content-type": "application/json"}
        message = header_map(ProcessingRequest(), "response_headers", head, end=False)
        self._open[number].message(message.SerializeToString())
        self._open[number].message(self._body("response_body", data, end=False))

    def end(self, number: int, data: bytes) -> None:
        self._open.pop(number).message(self._body("response_body", data, end=True))

    def leave(self, number: int) -> None:
        self._open.pop(number).lost()


def recorded(rng: random.Random, session: int) -> tuple[dict, dict[str, str]]:
    """One turn of a session, as its client sends it."""
    name = "abc"[session % 3]
    stream = {"stream": True} if rng.random() < 0.4 else {}
    words = "word " * rng.randrange(1, 400)
    fields = {"X-Session-Id": f"user-{session}"} if session % 2 else {}
    if session % 5 == 0:
        return chat(words, system="Nobody declares this. " * 20, **stream), fields
    if name == "c" or session % 4 == 0:
        return chat(words, system="", model=name, **stream), fields
    body = chat("Hello", system=SYSTEMS[name], **stream)
    for turn in range(rng.randrange(3)):
        body["messages"] += [{"role": "assistant", "content": f"Yes {turn}"}, {"role": "user", "content": words}]
    return body, fields


@pytest.mark.interpreted
@pytest.mark.parametrize("seed", range(6))
def test_router_and_picker_send_the_same_requests_to_the_same_replicas(seed):
    rng, clock = random.Random(seed), Clock()
    router, picker = RouterSide(clock), PickerSide(clock)
    running: dict[int, bool] = {}
    places = set()
    for number in range(400):
        clock.now += rng.expovariate(20)
        choice = rng.random()
        if choice < 0.5 or not running:
            body, fields = recorded(rng, rng.randrange(40))
            where = router.begin(number, body, fields)
            assert picker.begin(number, body, fields) == where, number
            places.add(where)
            if not where.startswith("refused"):
                running[number] = False
            continue
        one = rng.choice(sorted(running))
        if not running[one]:
            status = 400 if rng.random() < 0.05 else 200
            for side in (router, picker):
                side.first(one, b'{"choices":[', status)
            running[one] = True
        elif choice < 0.93:
            counts = {"prompt_tokens": rng.randrange(900, 2000), "completion_tokens": rng.randrange(200)}
            counts["prompt_tokens_details"] = {"cached_tokens": rng.randrange(900)}
            for side in (router, picker):
                side.end(one, json.dumps({"usage": counts}).encode()[1:])
            del running[one]
        else:
            for side in (router, picker):
                side.leave(one)
            del running[one]
    assert len(places) > 8
    assert router.state.balancer.placed.loads == picker.state.balancer.placed.loads
    for state in (router.state, picker.state):
        assert sum(state.balancer.placed.loads.values()) == len(running)
    pages = [
        state.exposition(clock.now, 0).replace('requests_total{group="-"', "") for state in (router.state, picker.state)
    ]
    assert pages[0] == pages[1]
