import asyncio
import contextlib
import json

import pytest

from promptgroup_picker.extproc.large_bodies import TURN_SECONDS, LargeBodies
from promptgroup_router.apis.structure import is_large
from promptgroup_router.base.errors import ApiError
from promptgroup_router.decision.arrival import endpoint_of
from promptgroup_router.decision.composition import router_state
from support.grpcclient import OneRequest, endpoints_of
from support.wire import chat, table_of

ADDRESSES = ("10.0.0.1:8000", "10.0.0.2:8000")
LARGE = json.dumps(chat() | {"metadata": {"a": [{}] * 8000}}).encode()
"""Large by its structure: a long one would not fit the window of a client that gives none back."""
SMALL = json.dumps(chat()).encode()


class Reader:
    """Reads as the process does, when a test lets it."""

    def __init__(self):
        self.go = asyncio.Event()
        self.error = self.unwritten = None
        self.read_bodies = 0
        self._turn = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def turn(self):
        async with self._turn:
            yield

    async def read(self, endpoint, body, declared, *, asks_by_header):
        self.asked = asks_by_header
        await self.go.wait()
        self.read_bodies += 1
        if self.error is not None:
            raise self.error
        return endpoint_of(endpoint.path).parse(bytes(body))

    async def written(self, rewrite, ask, body):
        if self.unwritten is not None:
            raise self.unwritten
        return body

    async def stop(self):
        self.go.set()


def during(check):
    async def whole():
        reader = Reader()
        large_bodies = LargeBodies(reader)
        state = router_state()
        state.install(table_of(*ADDRESSES), "file", 0.0)
        await check(OneRequest(state, large_bodies=large_bodies), reader)
        reader.go.set()
        await settled()
        assert not large_bodies._tasks
        assert not state.balancer.placed.loads

    asyncio.run(whole())


async def settled():
    for _ in range(20):
        await asyncio.sleep(0)


def kinds(responses):
    return [each.WhichOneof("response") for each in responses]


def refused(responses):
    (response,) = responses
    answer = response.immediate_response
    return answer.status.code, json.loads(answer.body)["error"]["code"]


def test_a_large_body_is_decided_once_it_was_read_and_small_ones_pass_it():
    async def check(request, reader):
        assert is_large(LARGE)
        request.head()
        assert request.body(LARGE) == []
        await settled()
        other = OneRequest(request.picker.state, large_bodies=request.picker.large_bodies)
        other.head()
        assert kinds(other.body(SMALL)) == ["request_headers", "request_body"]
        other.reset()
        reader.go.set()
        await settled()
        responses = request.heard()
        assert endpoints_of(responses[0]) in ADDRESSES
        parts = [each.request_body.response.body_mutation.streamed_response for each in responses[1:]]
        assert b"".join(each.body for each in parts) == LARGE
        assert [each.end_of_stream for each in parts] == [False] * (len(parts) - 1) + [True]
        assert request.body(b"") == []  # the last part again
        request.reset()

    during(check)


def test_trailers_that_come_while_it_is_read_are_passed_on_behind_it():
    async def check(request, reader):
        request.head()
        request.body(LARGE)
        assert request.trailers() == []
        reader.go.set()
        await settled()
        assert kinds(request.heard())[-1] == "request_trailers"
        request.reset()

    during(check)


def test_a_client_that_leaves_before_its_turn_costs_no_reading():
    async def check(request, reader):
        request.head()
        request.body(LARGE)
        await settled()
        second = OneRequest(request.picker.state, large_bodies=request.picker.large_bodies)
        second.head()
        second.body(LARGE)
        await settled()
        second.reset()
        request.reset()
        reader.go.set()
        await settled()
        assert reader.read_bodies == 1
        assert request.heard() == second.heard() == []
        assert request.picker.bodies.used == second.picker.bodies.used == 0

    during(check)


@pytest.mark.parametrize("field", ["error", "unwritten"])
def test_a_body_that_cannot_be_read_or_written_is_refused(field):
    async def check(request, reader):
        setattr(reader, field, ApiError(400, "the body is no JSON object", code="invalid_body"))
        request.head()
        request.body(LARGE)
        reader.go.set()
        await settled()
        assert refused(request.heard()) == (400, "invalid_body")
        assert not request.picker.open

    during(check)


def test_a_body_that_is_not_read_in_time_is_refused():
    async def check(request, reader):
        request.head()
        request.body(LARGE)
        request.now += TURN_SECONDS
        request.picker.tick(request.now)
        assert request.heard() == []
        request.now += 1
        request.picker.tick(request.now)
        assert refused(request.heard()) == (429, "overloaded")
        reader.go.set()
        await settled()
        assert request.heard() == []

    during(check)


def test_a_fault_ends_the_call():
    async def check(request, reader):
        reader.error = ValueError("a fault")
        request.head()
        request.body(LARGE)
        reader.go.set()
        await settled()
        assert request.heard() == []
        assert not request.picker.open

    during(check)
