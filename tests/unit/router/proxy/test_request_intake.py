import pytest

from promptgroup_router.base.errors import ApiError
from promptgroup_router.proxy.body_budget import BodyBudget
from promptgroup_router.proxy.request_intake import FREE_BYTES, PIPELINED_BYTES, RequestIntake
from support.script import FakeTransport


class Case:
    """An intake whose transport and budgets a test sees."""

    def __init__(self, bodies: int = 1000, buffers: int = 10 * PIPELINED_BYTES) -> None:
        self.transport, self.later, self.did = FakeTransport(), [], []
        self.bodies, self.buffers = BodyBudget(bodies), BodyBudget(buffers)
        self.intake = RequestIntake(
            self.transport, 10_000, budget=self.bodies, buffers=self.buffers, call_soon=self.later.append
        )

    def abort(self):
        self.did.append("abort")


def post(length, *, waits=False):
    expects = "expect: 100-continue\r\n" if waits else ""
    return f"POST /now HTTP/1.1\r\nhost: a\r\n{expects}content-length: {length}\r\n\r\n".encode()


def test_requests_are_given_in_order_and_a_body_counts_until_it_is_released():
    case = Case()
    case.intake.feed(post(3) + b"abc" + post(0))
    assert case.intake.next().body == b"abc"
    assert case.bodies.used == 3
    case.intake.release_body()
    assert case.bodies.used == 0
    assert case.intake.next().body == b""
    assert case.intake.next() is None


def test_a_body_without_memory_is_refused_by_its_head():
    case = Case(bodies=10)
    case.intake.feed(post(11))
    with pytest.raises(ApiError) as caught:
        case.intake.next()
    assert caught.value.status == 503
    assert case.bodies.used == 0


def test_a_request_that_cannot_be_read_is_a_bad_request():
    case = Case()
    case.intake.feed(b"no request\r\n\r\n")
    with pytest.raises(ApiError) as caught:
        case.intake.next()
    assert caught.value.code == "bad_request"


def test_a_client_that_waits_for_it_is_asked_for_its_body_once():
    case = Case()
    case.intake.feed(post(3, waits=True))
    assert case.intake.next() is None
    assert (case.intake.wait(), case.intake.wait()) == (True, False)
    assert case.transport.taken() == b"HTTP/1.1 100 Continue\r\n\r\n"


def test_a_large_read_ends_the_turn_of_a_connection():
    case = Case()
    case.intake.end_turn()
    case.intake.regulate()
    assert case.transport.did == ["pause"]
    (read_on,) = case.later
    read_on()
    assert case.transport.did == ["pause", "resume"]


def test_a_connection_is_reset_where_there_is_no_memory_for_its_buffers():
    case = Case(buffers=FREE_BYTES)
    case.intake.feed(b"x" * FREE_BYTES)
    case.intake.charge_buffers(False, case.abort)
    assert (case.later, case.buffers.used) == ([], 0)
    case.intake.feed(b"x")
    case.intake.charge_buffers(False, case.abort)
    for callback in case.later:
        callback()
    assert (case.did, case.buffers.used) == (["abort"], 0)
