import pytest

from promptgroup_router.base.errors import HttpError
from promptgroup_router.http11.framing import MAX_LINE, MAX_TRAILERS, Chunked, Sized, UntilClose, body_of
from promptgroup_router.http11.http1 import Framing
from promptgroup_router.http11.reader import ResponseReader

BODY = b"5\r\nhello\r\n6;name=value\r\n world\r\n0\r\nX-Trailer: yes\r\n\r\n"


def decoded(*pieces: bytes) -> tuple[bytes, int, bool]:
    chunked, sink, used = Chunked(), bytearray(), 0
    for piece in pieces:
        used += chunked.feed(piece, sink)
    return bytes(sink), used, chunked.done


@pytest.mark.parametrize(
    "pieces",
    [(BODY,), tuple(bytes((byte,)) for byte in BODY), (BODY + b"GET / HTTP/1.1\r\n",)],
    ids=["whole", "byte by byte", "with the next request"],
)
def test_chunks_are_decoded_and_their_end_is_found(pieces):
    assert decoded(*pieces) == (b"hello world", len(BODY), True)


def test_counting_needs_no_sink():
    assert Chunked().feed(BODY + b"x") == len(BODY)


@pytest.mark.parametrize(
    "data",
    [
        b"g\r\n",
        b"-5\r\nhello\r\n",
        b"0x5\r\nhello\r\n",
        b" 5\r\nhello\r\n",
        b"5\nhello\r\n",
        b"5\r\nhello!\r\n",
        b"5\r\nhello\n",
        b"\r\n",
        b"1234567890123456\r\n",
        b"5;\0\r\nhello\r\n",
        b"0\r\nbad trailer\r\n\r\n",
        b"5;" + b"x" * MAX_LINE + b"\r\n",
        b"0\r\n" + b"a: b\r\n" * (MAX_TRAILERS // 6 + 1) + b"\r\n",
        b"5" + b";" * (MAX_LINE + 1),
    ],
)
def test_a_broken_chunk_is_refused(data):
    with pytest.raises(HttpError):
        decoded(data)


def test_a_chunk_that_goes_on_is_refused_at_once():
    """Its bytes would be relayed while the end of a line is awaited, and another reader may see the end elsewhere."""
    for data in (b"3\r\nabcd", b"3\r\nabc\rd"):
        with pytest.raises(HttpError, match="longer than its size"):
            Chunked().feed(data)
    waits = Chunked()
    assert waits.feed(b"3\r\nabc\r") == len(b"3\r\nabc\r")
    assert waits.feed(b"\n0\r\n\r\n") == len(b"\n0\r\n\r\n")
    assert waits.done


def test_a_sized_body_ends_at_its_length():
    body = Sized(5)
    assert (body.feed(b"hel"), body.done) == (3, False)
    assert (body.feed(b"lo, and more"), body.done) == (2, True)
    assert Sized(0).done


def test_a_body_without_a_length_never_ends_by_itself():
    body = UntilClose()
    assert (body.feed(b"abc"), body.done) == (3, False)


def test_a_counter_for_each_framing():
    assert [type(body_of(each, 3)) for each in Framing] == [Sized, Chunked, UntilClose]


@pytest.mark.parametrize(
    "field",
    [
        b"Transfer-Encoding: gzip, chunked",
        b"content-length: 3",
        b"Host: r",
        b"Set-Cookie: a=1",
        b"X-PromptGroup-Served-By: chat/other/0",
        b"X-Request-Id: 1",
        b"content-encoding: gzip",
    ],
)
def test_a_trailer_cannot_frame_or_route_a_message(field):
    with pytest.raises(HttpError, match="a trailer has a field"):
        Chunked().feed(b"3\r\nabc\r\n0\r\nx: y\r\n" + field + b"\r\n\r\n")


@pytest.mark.parametrize("cut", range(len(BODY) + 1))
def test_an_answer_comes_without_its_trailers_and_extensions_wherever_it_is_cut(cut):
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    reader = ResponseReader()
    reader.feed(head)
    body = reader.feed(BODY[:cut]) + reader.feed(BODY[cut:])
    assert body == BODY.replace(b"X-Trailer: yes\r\n", b"").replace(b";name=value", b"")
    assert reader.reusable
