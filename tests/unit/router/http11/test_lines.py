"""The lines of heads: what is remembered of them, and that no secret is."""

import pytest

from promptgroup_router.base.errors import HttpError
from promptgroup_router.http11 import http1, lines
from promptgroup_router.http11.http1 import REMEMBERED_HEAD, parse_response
from promptgroup_router.http11.lines import REMEMBERED_BYTES, REMEMBERED_LINES, read_field, read_request_line


@pytest.mark.parametrize("line", [b"Accept: a/b", b"content-type:\tapplication/json "])
def test_a_line_that_is_no_secret_is_read_once(line):
    assert read_field(line) is read_field(line)


@pytest.mark.parametrize("name", [b"authorization", b"x-api-key", b"cookie", b"x-session-id", b"x-anything"])
def test_values_that_may_be_secret_are_not_remembered(name):
    line = name + b": hush-4711"
    assert read_field(line) is not read_field(line)
    for memory in (lines._fields, lines._names, lines._request_lines, lines._status_lines):
        assert not any(b"hush" in key for key in memory)


def test_a_target_with_a_query_is_not_remembered():
    line = b"GET /v1/models?key=hush HTTP/1.1"
    assert read_request_line(line) is not read_request_line(line)
    assert read_request_line(b"GET /v1/models HTTP/1.1") is read_request_line(b"GET /v1/models HTTP/1.1")


def test_what_is_remembered_is_bounded():
    for number in range(REMEMBERED_LINES + 2):
        read_field(b"accept: a/%d" % number)
        read_field(b"x-name-%d: a" % number)
        read_request_line(b"GET /%d HTTP/1.1" % number)
    for memory in (lines._fields, lines._names, lines._request_lines):
        assert 0 < len(memory) <= REMEMBERED_LINES
    long = b"accept: " + b"a" * REMEMBERED_BYTES
    assert read_field(long) is not read_field(long)


@pytest.mark.parametrize(
    "line", [b"", b"no colon", b": value", b"a b: c", b"a : c", b"a: \x00", b"a: b\rc", b"a: b\nc"]
)
def test_a_broken_line_is_refused_again_and_again(line):
    for _ in range(2):
        with pytest.raises(HttpError):
            read_field(line)


def answer(*fields):
    return "\r\n".join(["HTTP/1.1 200 OK", "date: Sun, 22 Nov 2026 12:00:00 GMT", *fields, "", ""]).encode()


def test_the_head_of_an_answer_is_parsed_once():
    head = answer("server: uvicorn", "content-length: 17")
    assert parse_response(head) is parse_response(head)
    assert parse_response(head).length == 17
    assert parse_response(answer("server: uvicorn", "content-length: 18")).length == 18


@pytest.mark.parametrize("field", ["set-cookie: hush", "x-request-id: hush", "accept: " + "hush" * REMEMBERED_HEAD])
def test_a_head_that_may_hold_a_secret_or_is_long_is_parsed_anew(field):
    head = answer("content-length: 1", field)
    assert parse_response(head) is not parse_response(head)
    assert not any(b"hush" in key for key in http1._answers)


def test_the_heads_that_are_remembered_are_bounded():
    for number in range(REMEMBERED_LINES + 2):
        parse_response(answer(f"content-length: {number}"))
    assert 0 < len(http1._answers) <= REMEMBERED_LINES


def test_long_hosts_are_not_remembered():
    for number in range(3):
        assert lines.is_authority(b"h%d." % number + b"a" * REMEMBERED_BYTES)
    assert all(len(each) <= REMEMBERED_BYTES for each in lines._authorities)
