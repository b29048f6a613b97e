"""Whole answers of servers that may be hostile, in any parts."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_router.base.errors import HttpError
from promptgroup_router.http11.whole_answer import AnswerError, NothingSentError, WholeAnswer

LIMIT = 20
READ = 8
"""Most bytes of a part, as a socket has a most."""


def answered(data: bytes, cuts=(), limit=LIMIT, *, any_status=False):
    """The status and the content, or what is wrong, of an answer that comes in parts, then ends."""
    answer = WholeAnswer(limit, any_status=any_status)
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    parts = [data[start:end] for start, end in itertools.pairwise(places)]
    try:
        for part in [*parts, b""]:
            if answer.feed(part):
                return answer.status, answer.content
    except (AnswerError, HttpError) as error:
        return type(error)
    raise AssertionError("an answer that ended is neither whole nor wrong")


def test_the_framings():
    ok = b"HTTP/1.1 200 OK\r\n"
    assert answered(ok + b"content-length: 3\r\n\r\nabc") == (200, b"abc")
    assert answered(ok + b"transfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n") == (200, b"abc")
    assert answered(ok + b"\r\nabc") == (200, b"abc")
    assert answered(b"HTTP/1.1 103 Early Hints\r\n\r\n" + ok + b"content-length: 0\r\n\r\n") == (200, b"")


@pytest.mark.parametrize(
    ("data", "wrong"),
    [
        (b"", NothingSentError),
        (b"HTTP/1.1 200 OK\r\ncontent-le", AnswerError),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nabc", AnswerError),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n", AnswerError),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", HttpError),
        (b"SSH-2.0\r\n\r\n", HttpError),
    ],
)
def test_what_is_no_whole_answer(data, wrong):
    assert answered(data) is wrong


def test_another_status_is_told_by_the_head_alone():
    answer = WholeAnswer(LIMIT)
    with pytest.raises(AnswerError, match="answered with status 302"):
        answer.feed(b"HTTP/1.1 302 Found\r\ncontent-length: 999999\r\n\r\n")
    assert answered(b"HTTP/1.1 503 No\r\ncontent-length: 1\r\n\r\nx", any_status=True) == (503, b"x")


@pytest.mark.parametrize("framing", [b"content-length: 21", b"transfer-encoding: chunked", b"connection: close"])
def test_a_longer_answer_is_refused_before_it_is_here(framing):
    head = b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n\r\n"
    assert answered(head + b"ff\r\n" + bytes(LIMIT + 1), range(0, 1000, READ)) is AnswerError


def test_a_connection_is_reused_only_after_all_that_was_sent():
    answer = WholeAnswer(LIMIT)
    assert answer.feed(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx")
    assert answer.reusable
    answer = WholeAnswer(LIMIT)
    assert answer.feed(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nxHTTP/1.1 200 OK")
    assert not answer.reusable


PIECES = st.sampled_from(
    [
        b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 204 No Content\r\n", b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n",
        b"content-length: 3\r\n", b"content-length: 99999999999999\r\n", b"transfer-encoding: chunked\r\n",
        b"connection: close\r\n", b"\r\n", b"3\r\nabc\r\n", b"ffffffffffffff\r\n", b"0\r\n\r\n", b"abc", b"\n", b"\x00",
    ]
)  # fmt: skip


@given(st.one_of(st.binary(max_size=200), st.lists(PIECES, max_size=12).map(b"".join)), st.lists(st.integers(0, 400)))
def test_whatever_is_sent_is_an_answer_within_the_limit_or_an_error_and_the_same_in_any_parts(data, cuts):
    whole = answered(data)
    for parts in (range(len(data)), cuts):
        again = answered(data, parts)
        # of several things that are wrong, another may be seen first
        assert again == whole or not (isinstance(again, tuple) or isinstance(whole, tuple))
    if isinstance(whole, tuple):
        assert whole[0] == 200
        assert len(whole[1]) <= LIMIT
