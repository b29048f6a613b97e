"""One client that is served from a source."""

import pytest

from promptgroup_router.flights.source import Source, SourceState
from support.followed import TakenAnswer, follower

pytestmark = pytest.mark.interpreted


def coming(*pieces: bytes, streamed: bool = True) -> Source:
    return Source(
        SourceState.COMING, headers=[(b"content-type", b"x")], streamed=streamed, pieces=[*pieces], shared=[*pieces]
    )


def test_nothing_is_sent_before_there_is_an_answer():
    client = TakenAnswer()
    assert not follower(Source(), client).advance()
    assert client.sent == b""


def test_events_go_out_as_chunks_as_they_come_with_the_client_s_own_id():
    client, source = TakenAnswer(), coming(b'{"id":"a-1"}')
    source.id = b"a-1"
    served = follower(source, client)
    assert not served.advance()
    assert b"transfer-encoding: chunked" in client.sent
    assert b"cache-status: test" in client.sent
    assert b"x-request-id: req-1" in client.sent
    assert client.sent.endswith(b'e\r\n{"id":"a-new"}\r\n')
    source.state = SourceState.WHOLE
    assert served.advance()
    assert client.sent.endswith(b"\r\n0\r\n\r\n")
    assert client.ended == "kept"


def test_the_client_for_whom_an_answer_is_computed_gets_it_as_the_engine_said_it():
    client, source = TakenAnswer(), coming(b'{"id":"a-1"}')
    source.id, source.shared = b"a-1", [b"marked"]
    served = follower(source, client)
    served.computed = True
    served.advance()
    assert client.sent.endswith(b'c\r\n{"id":"a-1"}\r\n')


def test_an_error_that_several_get_has_the_id_of_each():
    client, source = TakenAnswer(), Source(SourceState.REFUSED, status=400)
    source.headers, source.pieces = [(b"x-request-id", b"req-0")], [b'{"type":"error","request_id":"req-0"}']
    assert follower(source, client).advance()
    assert client.sent == b'400 {"type":"error","request_id":"req-1"}'


def test_a_body_is_sent_once_it_is_whole_with_its_length():
    client, source = TakenAnswer(), coming(b"body", streamed=False)
    served = follower(source, client)
    assert not served.advance()
    assert client.sent == b""
    source.state = SourceState.WHOLE
    assert served.advance()
    assert b"content-length: 4\r\n" in client.sent
    assert client.sent.endswith(b"\r\n\r\nbody")


def test_an_answer_without_content_has_no_length():
    client, source = TakenAnswer(), coming(streamed=False)
    source.state, source.status = SourceState.WHOLE, 204
    assert follower(source, client).advance()
    assert client.sent.startswith(b"HTTP/1.1 204 ")
    assert b"content-length" not in client.sent


def test_a_paused_client_gets_the_rest_when_it_reads_again():
    client, source = TakenAnswer(), coming(b"one", b"two")
    source.state = SourceState.WHOLE
    served = follower(source, client)
    served.pause()
    assert not served.advance()
    assert client.sent == b""
    served.resume()
    assert client.sent.endswith(b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n")


@pytest.mark.parametrize(
    ("version", "begun", "ended"), [("1.1", True, "cut"), ("1.0", True, "reset"), ("1.1", False, "reset")]
)
def test_an_answer_that_is_cut_never_looks_whole(version, begun, ended):
    client, source = TakenAnswer(), coming(b"one") if begun else Source()
    served = follower(source, client, version=version)
    served.advance()
    source.state = SourceState.CUT
    assert served.advance()
    assert client.ended == ended
    assert not client.sent.endswith(b"0\r\n\r\n")


def test_an_error_of_the_router_is_answered_with_the_client_s_own_id():
    client = TakenAnswer()
    source = Source(SourceState.REFUSED, 503, [(b"retry-after", b"1"), (b"x-request-id", b"other")], pieces=[b"busy"])
    assert follower(source, client).advance()
    assert (client.sent, client.ended) == (b"503 busy", "answered")


def test_pieces_that_all_have_are_dropped_from_the_front():
    client, source = TakenAnswer(), coming(b"one")
    served = follower(source, client)
    served.advance()
    del source.pieces[:], source.shared[:]
    source.dropped = 1
    source.pieces.append(b"two")
    source.shared.append(b"two")
    served.advance()
    assert client.sent.endswith(b"3\r\none\r\n3\r\ntwo\r\n")


def test_a_router_that_has_begun_to_drain_says_that_the_connection_ends():
    client, source = TakenAnswer(), Source()
    served = follower(source, client)
    client.keeps_alive = False
    source.state, source.pieces, source.shared = SourceState.WHOLE, [b"body"], [b"body"]
    assert served.advance()
    assert b"connection: close\r\n" in client.sent
    assert client.ended == "closed"
