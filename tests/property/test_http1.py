"""The parsers under bytes cut anywhere, and under bytes that are no HTTP at all."""

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from promptgroup_router.base.errors import HttpError
from promptgroup_router.http11.framing import Chunked
from promptgroup_router.http11.http1 import (
    HOP_BY_HOP,
    MAX_HEAD,
    Framing,
    encode,
    forwarded_but,
    lines_of,
    parse_request,
)
from promptgroup_router.http11.reader import RequestReader, ResponseReader
from support.examples import examples

MAX_BODY = 5000

names = st.from_regex(rb"[a-z][a-z0-9-]{0,12}", fullmatch=True).filter(
    lambda name: name not in (b"host", b"content-length", b"transfer-encoding", b"connection", b"expect")
)
values = st.from_regex(rb"([\x21-\x7e\x80-\xff]([\t\x20-\x7e\x80-\xff]{0,20}[\x21-\x7e\x80-\xff])?)?", fullmatch=True)
headers = st.lists(st.tuples(names, values), max_size=6)
bodies = st.binary(max_size=300)


@st.composite
def chunked(draw, body):
    """A body in chunks, with extensions and trailers as they may be, and the same without."""
    data, plain, at = b"", b"", 0
    while at < len(body):
        size = draw(st.integers(1, len(body) - at))
        spelled = draw(st.sampled_from([b"%x", b"%X", b"000%x"])) % size
        chunk = b"\r\n" + body[at : at + size] + b"\r\n"
        data += spelled + draw(st.sampled_from([b"", b";a=b", b" ; a", b'\t;secret="1;2"'])) + chunk
        plain += spelled + chunk
        at += size
    last, passed = draw(
        st.sampled_from([(b"0\r\n\r\n", b"0\r\n\r\n"), (b"00;last\r\nx-trailer: 1\r\n\r\n", b"00\r\n\r\n")])
    )
    return data + last, plain + passed


@st.composite
def messages(draw, first_line):
    fields, body = draw(headers), draw(bodies)
    if draw(st.booleans()):
        (framed, plain), framing = draw(chunked(body)), (b"transfer-encoding", b"chunked")
    else:
        framed, plain, framing = body, body, (b"content-length", b"%d" % len(body))
    return encode(first_line, lines_of([(b"host", b"router"), framing, *fields])) + framed, fields, body, plain


requests = messages(b"POST /v1/chat/completions HTTP/1.1")
answers = messages(b"HTTP/1.1 200 OK")
cuts = st.lists(st.integers(0, 4000), max_size=8)


def pieces(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place for place in places if place < len(data))})
    return [data[start:end] for start, end in itertools.pairwise(edges)]


def read_requests(parts: list[bytes]) -> list[object]:
    """What a reader makes of the parts: requests, and the status of the refusal that ends them."""
    reader, found = RequestReader(MAX_BODY), []
    try:
        for part in parts:
            reader.feed(part)
            while (request := reader.next()) is not None:
                found.append((request.head, request.body))
    except HttpError as error:
        found.append(error.status)
    return found


@pytest.mark.heavy
@given(st.lists(requests, min_size=1, max_size=3), cuts)
def test_requests_are_the_same_however_they_are_cut(sent, places):
    data = b"".join(each[0] for each in sent)
    found = read_requests(pieces(data, places))
    assert [body for _, body in found] == [body for _, _, body, _ in sent]
    dropped = HOP_BY_HOP | {b"host", b"content-length"}
    assert [forwarded_but(head, dropped) for head, _ in found] == [
        lines_of(field for field in fields if field[0] not in HOP_BY_HOP) for _, fields, _, _ in sent
    ]


@pytest.mark.heavy
@given(answers, cuts, st.binary(max_size=20))
def test_answers_pass_through_however_they_are_cut_and_end_where_they_end(sent, places, behind):
    data, _, body, expected = sent
    reader, passed = ResponseReader(), b""
    for part in pieces(data, places):
        assert not reader.done
        passed += reader.feed(part)
    assert reader.done
    assert passed == expected
    if reader.head.framing is Framing.CHUNKED:
        sink = bytearray()
        Chunked().feed(passed + behind, sink)
        assert sink == body
    whole = ResponseReader()
    assert whole.feed(data + behind) == expected
    assert whole.reusable == (not behind)


MUTATIONS = st.sampled_from(
    [b"", b"\r", b"\n", b"\r\n", b"\0", b" ", b":", b";", b"\x80", b"HTTP/1.1", b"0\r\n\r\n", b"content-length: 3\r\n"]
)


@pytest.mark.heavy
@given(
    st.lists(requests, min_size=1, max_size=2),
    st.lists(st.tuples(st.integers(0, 600), st.integers(0, 3), MUTATIONS), max_size=3),
    cuts,
)
@examples(150)
@example([(b"\n\r\n\r\n", [], b"")], [], [1])
@example([(b"GET / HTTP/1.1\r\nhost: r\r\n\r\n\n", [], b"")], [], [27])
def test_broken_requests_give_the_same_refusal_however_they_are_cut(sent, mutations, places):
    data = b"".join(each[0] for each in sent)
    for at, cut, inserted in mutations:
        data = data[:at] + inserted + data[at + cut :]
    whole = read_requests([data])
    assert read_requests(pieces(data, places)) == whole
    assert read_requests([bytes((byte,)) for byte in data]) == whole


@given(st.binary(max_size=200), cuts)
@examples(200)
def test_garbage_is_refused_and_nothing_else_is_raised(data, places):
    for ended in (data, data + b"\r\n\r\n"):
        assert read_requests(pieces(ended, places)) == read_requests([ended])
        reader = ResponseReader()
        try:
            for part in pieces(ended, places):
                reader.feed(part)
        except HttpError:
            pass


@given(st.binary(max_size=120))
def test_a_head_that_is_taken_is_encoded_to_one_that_reads_the_same(data):
    try:
        head = parse_request(b"GET / HTTP/1.1\r\nhost: r\r\n" + data + b"\r\n\r\n")
    except HttpError:
        return
    again = parse_request(encode(b"GET / HTTP/1.1", [field.line for field in head.headers]))
    assert (again.headers, again.framing) == (head.headers, head.framing)


@given(st.integers(MAX_HEAD - 40, MAX_HEAD + 40), st.integers(0, MAX_HEAD))
@examples(30)
def test_the_limit_of_a_head_does_not_depend_on_where_it_is_cut(size, place):
    filler = b"GET / HTTP/1.1\r\nhost: r\r\nx: "
    data = filler + b"a" * (size - len(filler) - 4) + b"\r\n\r\n"
    assert read_requests(pieces(data, [place])) == read_requests([data])
    assert (read_requests([data]) == [431]) == (size > MAX_HEAD)
