"""Requests to the home of a key, without sockets."""

import pytest

from promptgroup_router.base.errors import Failure
from promptgroup_router.flights.home_fetch import HomeFetch
from promptgroup_router.http11.http1 import ResponseHead
from promptgroup_router.http11.reader import RequestReader
from promptgroup_router.response_cache.canonical import CacheKey
from support.heads import answer_head
from support.wire import post

pytestmark = pytest.mark.interpreted

KEY = CacheKey(bytes(range(32)))
NAMED = (b"x-promptgroup-cache-key", KEY.hex().encode())


class Wire:
    """Connections and a receiver that note what happens to them."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.alive = True
        self.fetch = HomeFetch(self, KEY, address="10.0.0.1:9094", lives=lambda _: self.alive, here=self.here)
        reader = RequestReader(1000)
        reader.feed(post(b"{}", "Authorization: Bearer a", "X-Promptgroup: support", path="/v1/completions?a=1"))
        self.fetch.send(reader.next(), self)

    def here(self, unreached: bool) -> None:
        self.told.append(("here", unreached))

    def acquire(self, address: str, *, fresh: bool, verification: object) -> "Wire":
        self.told.append(address)
        return self

    def send(self, head: bytes, body: bytes, listener: object) -> None:
        self.head, self.body = head, body

    def abort(self) -> None:
        self.told.append("abort")

    def answer_began(self, head: ResponseHead) -> None:
        self.told.append(head.status)

    def answer_data(self, data: bytes) -> None:
        self.told.append(data)

    def answer_ended(self) -> None:
        self.told.append("end")

    def cut(self, *, visibly: bool) -> None:
        self.told.append("cut")


def head(*headers, status=200):
    return answer_head(headers, status)


def test_the_home_gets_what_the_client_sent_credentials_included():
    wire = Wire()
    assert wire.head.startswith(b"POST /v1/completions?a=1 HTTP/1.1\r\n")
    assert b"Bearer a" in wire.head
    assert b"x-promptgroup: support" in wire.head
    assert b"host: 10.0.0.1:9094" in wire.head
    assert wire.body == b"{}"


def test_an_answer_for_the_same_key_is_taken():
    wire = Wire()
    wire.fetch.answer_began(head(NAMED))
    wire.fetch.answer_data(b"x")
    wire.fetch.answer_ended()
    assert wire.told == ["10.0.0.1:9094", 200, b"x", "end"]


@pytest.mark.parametrize("answered", [head(), head(status=503), head((NAMED[0], b"00" * 32))])
def test_any_other_answer_is_computed_here(answered):
    wire = Wire()
    wire.fetch.answer_began(answered)
    assert wire.told == ["10.0.0.1:9094", "abort", ("here", False)]


def test_a_home_that_cannot_be_reached_is_named_and_one_that_dies_within_an_answer_cuts_it():
    wire = Wire()
    wire.fetch.failed(Failure.REFUSED)
    assert wire.told[1:] == [("here", True)]
    wire = Wire()
    wire.fetch.answer_began(head(NAMED))
    wire.fetch.failed(Failure.RESET)
    assert wire.told[1:] == [200, "cut"]


def test_a_home_that_falls_silent_is_given_up_unless_it_answers():
    wire = Wire()
    wire.fetch.tick(1.0)
    wire.alive = False
    wire.fetch.tick(2.0)
    wire.fetch.tick(3.0)
    assert wire.told[1:] == ["abort", ("here", True)]
    wire = Wire()
    wire.fetch.answer_began(head(NAMED))
    wire.alive = False
    wire.fetch.tick(2.0)
    assert wire.told[1:] == [200]


def test_a_client_that_leaves_ends_the_fetch():
    wire = Wire()
    wire.fetch.client_left()
    wire.fetch.client_left()
    assert wire.told[1:] == ["abort"]
