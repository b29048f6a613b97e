import pytest

from promptgroup_router.base.errors import HttpError
from promptgroup_router.http11.http1 import (
    HOP_BY_HOP,
    MAX_FIELDS,
    MAX_HEAD,
    Framing,
    HeadBuffer,
    encode,
    forwarded,
    forwarded_but,
    lines_of,
    parse_request,
    parse_response,
)


def head(*lines: str) -> bytes:
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def request(*fields: str, line: str = "POST /v1/chat/completions HTTP/1.1", host: str = "Host: router"):
    return parse_request(head(line, *([host] if host else []), *fields))


def refused(*fields: str, **how: str) -> tuple[int, str]:
    with pytest.raises(HttpError) as caught:
        request(*fields, **how)
    return caught.value.status, str(caught.value)


def test_a_request_head_is_taken_apart():
    found = request("Content-Length: 12", "X-Session-ID:  \t abc \t", "X-Empty:", line="POST /a/b?c=d?e HTTP/1.1")
    assert (found.method, found.path, found.query) == (b"POST", b"/a/b", b"c=d?e")
    assert [each.name for each in found.headers[2:]] == [b"x-session-id", b"x-empty"]
    assert [each.value for each in found.headers[2:]] == [b"abc", b""]
    assert found.fields[b"x-session-id"] == b"abc"
    assert (found.length, found.minor, found.keep_alive, found.expects_continue) == (12, 1, True, False)


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        ("http://router:8080/v1/models?x", b"/v1/models", b"x"),
        ("HTTPS://router", b"/", b""),
        ("http://router?x", b"/", b"x"),
        ("http://[::1]/v1//x??", b"/v1//x", b"?"),
    ],
)
def test_other_forms_of_the_target(target, path, query):
    found = request(line=f"GET {target} HTTP/1.1")
    assert (found.path, found.query) == (path, query)
    assert request(line="OPTIONS * HTTP/1.1").path == b"*"


@pytest.mark.parametrize(
    "target",
    [
        "*",
        "router:443",
        "v1/models",
        "http:///v1/models",
        "http://user@router/",
        "http://router:99999/",
        "http://a b/",
        "http:/v1/models",
        "ftp://router/",
        "/a#b",
        "http://router/#b",
        "/caf\xe9",
        "/?q=\xe9",
        "?x",
    ],
)
def test_a_target_that_is_neither_a_path_nor_an_http_url_is_refused(target):
    assert refused(line=f"GET {target} HTTP/1.1")[0] == 400


@pytest.mark.parametrize("host", ["router", "router:8080", "10.0.0.1:80", "[::1]:80", "a_b.svc", "a%20b", "", "r:"])
def test_a_host_may_have_a_port(host):
    assert request(host=f"Host: {host}").fields[b"host"] == host.encode()


@pytest.mark.parametrize(
    "host",
    [
        "a b", "a/b", "a?b", "a#b", "a@b", "user:pw@a", "a:b", "a:80:80", "a:99999", ":80", "[::1", "::1", "[::g]",
        "[:::1]",
        "a\\b", "a%zz", "<a>", "caf\xe9", "a\tb", "http://a",
    ],
)  # fmt: skip
def test_a_host_that_is_none_is_refused(host):
    assert refused(host=f"Host: {host}")[0] == 400


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        (["Connection: not-close-really"], True),
        (["Connection: close", "Connection: x"], False),
        (["Connection: x", "Connection: y , CLOSE"], False),
        (["Connection:", "Connection: ,"], True),
    ],
)
def test_the_options_of_all_connection_fields_count(fields, kept):
    assert request(*fields).keep_alive is kept
    answer = parse_response(head("HTTP/1.1 200 OK", "Content-Length: 1", *fields))
    assert answer.keep_alive is kept


def test_a_body_is_readable_whatever_connection_names():
    found = parse_response(head("HTTP/1.1 200 OK", "Content-Length: 7", "X: y", "Connection: Content-Length, X"))
    assert forwarded(found, frozenset((b"content-length", b"x"))) == [b"content-length: 7"]


def test_chunks_of_http_1_0_end_the_connection():
    found = parse_response(head("HTTP/1.0 200 OK", "Connection: keep-alive", "Transfer-Encoding: chunked"))
    assert (found.framing, found.keep_alive) == (Framing.CHUNKED, False)


def test_a_length_of_fifteen_digits_is_read():
    assert request("Content-Length: 999999999999999").length == 999_999_999_999_999


def test_what_a_connection_does_after_the_request():
    assert request().keep_alive
    assert not request("Connection: close").keep_alive
    assert not request("Connection: Foo, Close").keep_alive
    assert not request(line="POST / HTTP/1.0").keep_alive
    assert request("Connection: keep-alive", line="POST / HTTP/1.0", host="").keep_alive
    assert request("Expect: 100-Continue").expects_continue
    assert not request("Expect: 100-continue", line="POST / HTTP/1.0").expects_continue


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        (["Content-Length: 5", "Transfer-Encoding: chunked"], 400, "both given"),
        (["Content-Length: 5", "Content-Length: 5"], 400, "content-length is given twice"),
        (["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"], 400, "transfer-encoding is given twice"),
        (["Host: other"], 400, "host is given twice"),
        (["Authorization: Bearer a", "Authorization: Bearer b"], 400, "authorization is given twice"),
        (["X-Api-Key: a", "x-api-key: b"], 400, "x-api-key is given twice"),
        (["Content-Length: +5"], 400, "content-length"),
        (["Content-Length: 5, 5"], 400, "content-length"),
        (["Content-Length: 0x5"], 400, "content-length"),
        (["Content-Length: -1"], 400, "content-length"),
        (["Content-Length:"], 400, "content-length"),
        (["Content-Length: 9999999999999999"], 400, "content-length"),
        (["Transfer-Encoding: gzip, chunked"], 501, "no other coding is supported"),
        (["Transfer-Encoding: identity"], 501, "no other coding is supported"),
        (["Transfer-Encoding : chunked"], 400, "header line"),
        (["X-Folded: a", " b"], 400, "header line"),
        (["X Blank: a"], 400, "header line"),
        ([": a"], 400, "header line"),
        (["no colon"], 400, "header line"),
        (["X-Nul: a\0b"], 400, "header line"),
        (["X-Bell: a\x07b"], 400, "header line"),
        (["X-Cr: a\rb"], 400, "header line"),
    ],
)
def test_a_head_that_two_parsers_could_read_differently_is_refused(fields, status, words):
    found = refused(*fields)
    assert found[0] == status
    assert words in found[1]


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("POST / HTTP/2.0", 505),
        ("POST  / HTTP/1.1", 400),
        ("POST /", 400),
        ("POST / HTTP/1.1 ", 400),
        ("POST /a b HTTP/1.1", 400),
        ("PO(ST / HTTP/1.1", 400),
        ("POST / http/1.1", 400),
    ],
)
def test_a_broken_request_line_is_refused(line, status):
    assert refused(line=line)[0] == status


def test_http_1_1_needs_a_host():
    assert refused(host="") == (400, "the host header is missing: HTTP/1.1 requires one")


def test_chunks_need_http_1_1():
    assert refused("Transfer-Encoding: chunked", line="POST / HTTP/1.0")[0] == 400


@pytest.mark.parametrize(
    ("fields", "status", "framing", "length", "keep_alive"),
    [
        (["Content-Length: 7"], 200, Framing.LENGTH, 7, True),
        (["Transfer-Encoding: Chunked"], 200, Framing.CHUNKED, 0, True),
        ([], 200, Framing.UNTIL_CLOSE, 0, False),
        ([], 204, Framing.LENGTH, 0, True),
        (["Content-Length: 7"], 304, Framing.LENGTH, 0, True),
        (["Content-Length: 7", "Connection: close"], 200, Framing.LENGTH, 7, False),
    ],
)
def test_where_an_answer_ends(fields, status, framing, length, keep_alive):
    found = parse_response(head(f"HTTP/1.1 {status} OK", *fields))
    assert (found.status, found.framing, found.length, found.keep_alive) == (status, framing, length, keep_alive)


def test_an_answer_without_a_reason_phrase_and_one_of_http_1_0():
    assert parse_response(head("HTTP/1.1 200", "Content-Length: 1")).keep_alive
    assert not parse_response(head("HTTP/1.0 200 OK", "Content-Length: 1")).keep_alive
    assert parse_response(head("HTTP/1.0 200 OK", "Content-Length: 1", "Connection: keep-alive")).keep_alive


@pytest.mark.parametrize(
    "lines",
    [
        ["HTTP/2 200 OK"],
        ["HTTP/1.1 999 What"],
        ["HTTP/1.1 200 OK", "Content-Length: 5", "Transfer-Encoding: chunked"],
        ["HTTP/1.1 200 OK", "Transfer-Encoding: gzip"],
        ["HTTP/1.1 200 OK", "Content-Length: five"],
    ],
)
def test_a_broken_answer_is_refused(lines):
    with pytest.raises(HttpError):
        parse_response(head(*lines))


def test_fields_of_one_hop_are_not_forwarded():
    found = request(
        "Connection: close, X-Mine", "x-mine: 1", "X-Yours:2 ", "te: trailers", "transfer-encoding: chunked"
    )
    assert forwarded_but(found, HOP_BY_HOP | {b"host"}) == [b"x-yours: 2"]
    assert forwarded(found, frozenset((b"x-mine", b"x-yours"))) == [b"x-yours: 2"]


def test_a_head_is_encoded_as_it_is_parsed():
    encoded = encode(b"GET / HTTP/1.1", lines_of([(b"host", b"router"), (b"x-a", b"b c")]))
    assert encoded == b"GET / HTTP/1.1\r\nhost: router\r\nx-a: b c\r\n\r\n"
    assert [each.line for each in parse_request(encoded).headers] == [b"host: router", b"x-a: b c"]


def test_heads_are_limited_and_the_limit_is_exact():
    filler = b"GET / HTTP/1.1\r\nhost: r\r\nx: "
    exact = filler + b"a" * (MAX_HEAD - len(filler) - 4) + b"\r\n\r\n"
    assert HeadBuffer(skip_blank_lines=True).take(exact + b"rest") == (exact, len(exact))
    with pytest.raises(HttpError) as caught:
        HeadBuffer(skip_blank_lines=True).take(filler + b"a" * (MAX_HEAD - len(filler) - 3) + b"\r\n\r\n")
    assert caught.value.status == 431


def test_fields_of_a_head_are_limited_and_the_limit_is_exact():
    """The shortest fields that fill a head take as long to read as a hundred honest requests."""
    for parse, first in ((parse_request, "POST / HTTP/1.1"), (parse_response, "HTTP/1.1 200 OK")):
        lines = [first, "Host: x", *["a:"] * (MAX_FIELDS - 1)]
        parse(head(*lines))
        with pytest.raises(HttpError, match="send fewer") as caught:
            parse(head(*lines, "a:"))
        assert caught.value.status == 431


def test_a_target_that_fills_the_limit_is_too_long_by_itself():
    for start in (b"", b"\r\n"):
        with pytest.raises(HttpError, match="the target is longer") as caught:
            HeadBuffer(skip_blank_lines=True).take(start + b"GET /?" + b"a" * MAX_HEAD)
        assert caught.value.status == 414


def test_blank_lines_before_a_head_are_skipped_however_many():
    data = b"\r\n" * 100_000 + b"GET / HTTP/1.0\r\n\r\n"
    assert HeadBuffer(skip_blank_lines=True).take(data) == (b"GET / HTTP/1.0\r\n\r\n", len(data))


def test_a_tls_client_is_refused_at_once():
    with pytest.raises(HttpError) as caught:
        HeadBuffer(skip_blank_lines=True).take(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
    assert caught.value.status == 400


def test_a_line_end_without_cr_is_refused_at_once():
    buffer = HeadBuffer(skip_blank_lines=True)
    assert buffer.take(b"GET / HTTP/1.1") is None
    with pytest.raises(HttpError) as caught:
        buffer.take(b"\n")
    assert caught.value.status == 400
