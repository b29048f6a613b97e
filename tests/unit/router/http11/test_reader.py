import pytest

from promptgroup_router.base.errors import HttpError
from promptgroup_router.http11.http1 import MAX_HEAD
from promptgroup_router.http11.reader import RequestReader, ResponseReader

SIZED = b"POST /a HTTP/1.1\r\nhost: r\r\ncontent-length: 5\r\n\r\nhello"
CHUNKED = b"POST /b HTTP/1.1\r\nhost: r\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n"
EMPTY = b"GET /c HTTP/1.1\r\nhost: r\r\n\r\n"


def requests(*pieces: bytes) -> list[tuple[bytes, bytes]]:
    reader, found = RequestReader(max_body=100), []
    for piece in pieces:
        reader.feed(piece)
        while (request := reader.next()) is not None:
            found.append((request.head.path, request.body))
    assert not reader.begun
    return found


@pytest.mark.parametrize("split", ["whole", "bytes"])
def test_requests_come_in_order_however_they_are_cut(split):
    data = SIZED + CHUNKED + EMPTY + SIZED
    pieces = [data] if split == "whole" else [bytes((byte,)) for byte in data]
    assert requests(*pieces) == [(b"/a", b"hello"), (b"/b", b"hello!"), (b"/c", b""), (b"/a", b"hello")]


def test_a_body_that_is_too_large_is_refused_by_its_head():
    reader = RequestReader(max_body=100)
    reader.feed(b"POST /a HTTP/1.1\r\nhost: r\r\ncontent-length: 101\r\n\r\n")
    with pytest.raises(HttpError) as caught:
        reader.next()
    assert caught.value.status == 413
    assert "101" in str(caught.value)


def test_chunks_that_are_too_large_together_are_refused_as_they_come():
    reader = RequestReader(max_body=100)
    reader.feed(b"POST /a HTTP/1.1\r\nhost: r\r\ntransfer-encoding: chunked\r\n\r\n64\r\n" + b"x" * 100 + b"\r\n1\r\ny")
    with pytest.raises(HttpError) as caught:
        reader.next()
    assert caught.value.status == 413


def test_a_client_that_waits_to_be_told_to_go_on():
    reader = RequestReader(max_body=100)
    reader.feed(b"POST /a HTTP/1.1\r\nhost: r\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n")
    assert reader.next() is None
    assert reader.awaits_continue
    reader.feed(b"he")
    assert reader.next() is None
    assert not reader.awaits_continue
    reader.feed(b"llo")
    assert reader.next().body == b"hello"


def test_what_has_begun():
    reader = RequestReader(max_body=100)
    assert not reader.begun
    reader.feed(b"PO")
    assert reader.next() is None
    assert reader.begun


# --- Answers -------------------------------------------------------------------------------------------------


def answer(*pieces: bytes) -> tuple[bytes, ResponseReader]:
    reader = ResponseReader()
    return b"".join(reader.feed(piece) for piece in pieces), reader


@pytest.mark.parametrize("split", ["whole", "bytes"])
def test_an_answer_passes_through_as_received(split):
    body = b"3\r\nabc\r\n0\r\n\r\n"
    data = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + body
    passed, reader = answer(*([data] if split == "whole" else [bytes((byte,)) for byte in data]))
    assert passed == body
    assert reader.done
    assert reader.reusable


def test_a_connection_s_answers_are_read_one_after_another():
    head = b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n"
    _, reader = answer(head + b"abc")
    assert reader.reusable
    reader.take_interim()
    reader.restart()
    assert (reader.begun, reader.done, reader.head, reader.take_interim()) == (False, False, None, [])
    assert reader.feed(b"HTTP/1.1 404 Not Found\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n") == b"0\r\n\r\n"
    assert reader.head is not None
    assert (reader.head.status, reader.reusable) == (404, True)


def test_interim_answers_are_skipped():
    passed, reader = answer(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nlink: x\r\n\r\n", b"HTTP/1.1 200 OK\r\n"
    )
    assert reader.head is None
    assert reader.begun
    assert reader.feed(b"content-length: 2\r\n\r\nok") == b"ok"
    assert passed == b""


def test_bytes_behind_an_answer_make_the_connection_useless():
    passed, reader = answer(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n")
    assert passed == b"ok"
    assert reader.done
    assert not reader.reusable


def test_an_answer_that_ends_with_its_connection():
    passed, reader = answer(b"HTTP/1.0 200 OK\r\n\r\nabc", b"def")
    assert passed == b"abcdef"
    assert reader.ends_by_close
    assert not reader.done


@pytest.mark.parametrize(
    "data",
    [b"SSH-2.0-OpenSSH\r\n\r\n", b"HTTP/1.1 101 Switching\r\n\r\n", b"HTTP/1.1 200 OK\nx: y\n\n", b"x" * MAX_HEAD],
)
def test_what_is_no_answer_is_refused(data):
    with pytest.raises(HttpError):
        answer(data)


@pytest.mark.parametrize(
    "chunks", [b"1001\r\n", b"fff\r\n" + b"a" * 0xFFF + b"\r\n2\r\n", b"800\r\n" + b"a" * 2048 + b"\r\n801\r\n"]
)
def test_a_chunk_that_exceeds_the_limit_is_refused_by_its_size_line(chunks):
    reader = RequestReader(max_body=4096)
    reader.feed(b"POST / HTTP/1.1\r\nhost: r\r\ntransfer-encoding: chunked\r\n\r\n" + chunks)
    with pytest.raises(HttpError) as caught:
        reader.next()
    assert caught.value.status == 413


def test_a_line_feed_behind_a_body_that_ends_with_a_carriage_return_is_refused_at_once():
    reader = RequestReader(max_body=100)
    reader.feed(b"POST / HTTP/1.1\r\nhost: r\r\ncontent-length: 2\r\n\r\na\r\nGET ")
    assert reader.next().body == b"a\r"
    with pytest.raises(HttpError, match="LF alone"):
        reader.next()
