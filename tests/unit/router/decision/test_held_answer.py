from types import SimpleNamespace

import pytest

from promptgroup_router.apis.errors import NO_PATH_BYTES
from promptgroup_router.base.errors import ApiError
from promptgroup_router.decision.held_answer import breaks_off, content_of, hold, own_error, reads_usage
from promptgroup_router.http11.http1 import Framing
from promptgroup_router.routing.points import MOST_HELD, RequestFeature
from support.heads import answer_head

WHOLE = b'{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}]}'
DOUBTFUL = b'{"choices":[{"message":{"content":"x"},"finish_reason":"abort"}]}'
BROKEN = b'data: {"choices":[{"delta":{},"finish_reason":"abort"}]}\n\n'
pytestmark = pytest.mark.interpreted

CHUNKED, PLAIN = answer_head([]), answer_head([], framing=Framing.LENGTH)


class Metered(RequestFeature):
    """A feature that reports the usage in the head."""

    reads_usage = True


class Secret(RequestFeature):
    """A feature that replaces errors of engines."""

    def error_for(self, status):
        return ApiError(status, "replaced")


def chunk(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


@pytest.mark.parametrize(
    ("data", "features", "ended"),
    [(WHOLE, [Metered], True), (WHOLE, [], False), (DOUBTFUL, [], True)],
    ids=["its usage is read", "more may come", "it may be broken off"],
)
def test_an_answer_in_doubt_is_held_until_it_is_too_long(data, features, ended):
    held, made = bytearray(), [feature() for feature in features]
    assert hold(held, data, 200, made, ended=ended) == b""
    assert held == data
    assert hold(held, bytes(MOST_HELD), 200, made, ended=ended) == data + bytes(MOST_HELD)


def test_a_whole_answer_in_one_piece_is_not_held():
    held = bytearray()
    assert hold(held, WHOLE, 200, [RequestFeature()], ended=True) == WHOLE
    assert held == b""


def test_an_error_is_held_as_long_as_it_may_say_that_there_is_no_such_path():
    held = bytearray()
    assert hold(held, b"x" * NO_PATH_BYTES, 404, [], ended=True) == b""
    assert hold(held, b"x", 404, [], ended=True) == b"x" * (NO_PATH_BYTES + 1)


def test_usage_is_read_where_one_feature_reads_it():
    assert reads_usage([RequestFeature(), Metered()])
    assert not reads_usage([RequestFeature()])


def test_the_content_of_chunks_is_their_data():
    assert content_of(CHUNKED, chunk(b"ab") + chunk(b"c")) == b"abc"
    assert content_of(PLAIN, b"abc") == b"abc"


def test_a_stream_breaks_off_in_its_beginning():
    assert breaks_off(CHUNKED, chunk(BROKEN))
    assert breaks_off(PLAIN, BROKEN)
    assert not breaks_off(PLAIN, BROKEN.replace(b"abort", b"stop"))
    assert not breaks_off(answer_head([], 500), BROKEN)


def test_an_error_of_the_router_takes_the_place_of_one_that_repeats_a_prompt_or_names_no_path():
    head = SimpleNamespace(method=b"POST", path=b"/v1/score")
    plain, secret = SimpleNamespace(features=[], model="m"), SimpleNamespace(features=[Secret()], model="m")
    assert own_error(plain, head, 404, b'{"detail":"Not Found"}').code == "not_served_by_engine"
    assert own_error(plain, head, 400, b"no") is None
    assert str(own_error(secret, head, 400, b"no")) == "replaced"
