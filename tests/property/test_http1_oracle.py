"""h11 as a second opinion: the router's parser and h11 read the same bytes as the same messages.

Only one direction is a rule: h11 reads all that the router reads, and reads it the same. The router refuses more than
h11 does, since a message that two parsers could read differently is how requests are smuggled.
"""

from hypothesis import example, given
from hypothesis import strategies as st

from support.examples import examples
from support.h11oracle import answers_agree, requests_agree

LINES = st.sampled_from(
    [
        b"content-length: 3",
        b"Content-Length: 0",
        b"content-length: 3, 3",
        b"transfer-encoding: chunked",
        b"Transfer-Encoding: Chunked",
        b"transfer-encoding: gzip, chunked",
        b"connection: close",
        b"Connection: keep-alive",
        b"connection: Keep-Alive, Close",
        b"connection: not-close-really",
        b"connection: x-hop , y",
        b"connection:",
        b"host: router",
        b"Host: [::1]:8080",
        b"host: a b",
        b"expect: 100-continue",
        b"x: \ty\t ",
        b"x:",
        b"x-long: " + b"a" * 200,
        b"x: caf\xc3\xa9",
        b" folded: line",
    ]
)
REQUEST_LINES = st.sampled_from(
    [
        b"POST /v1/chat/completions HTTP/1.1",
        b"GET /v1/models?a=b HTTP/1.1",
        b"HEAD / HTTP/1.0",
        b"POST http://router:8080/v1/x?y HTTP/1.1",
        b"OPTIONS * HTTP/1.1",
        b"POST /v1/caf\xc3\xa9 HTTP/1.1",
        b"GET  / HTTP/1.1",
        b"GET / HTTP/2.0",
    ]
)
STATUS_LINES = st.sampled_from(
    [b"HTTP/1.1 200 OK", b"HTTP/1.0 200 OK", b"HTTP/1.1 204 No Content", b"HTTP/1.1 500 ", b"HTTP/1.1 404"]
)
BODIES = st.sampled_from(
    [
        b"",
        b"abc",
        b"abcGET / HTTP/1.1\r\nhost: r\r\n\r\n",
        b"3\r\nabc\r\n0\r\n\r\n",
        b"3;x=y\r\nabc\r\n00\r\nx: y\r\n\r\n",
        b"3\r\nabc\r\n0\r\n\r\nGET / HTTP/1.1\r\nhost: r\r\n\r\n",
        b"3\nabc\n0\n\n",
        b"0x3\r\nabc\r\n0\r\n\r\n",
        b" 3\r\nabc\r\n0\r\n\r\n",
        b"3 \r\nabc\r\n0\r\n\r\n",
    ]
)
MUTATIONS = st.lists(
    st.tuples(
        st.integers(0, 300),
        st.integers(0, 3),
        st.sampled_from(
            [b"", b"\r", b"\n", b"\r\n", b"\0", b" ", b"\t", b":", b";", b",", b"\x0b", b"\x80", b"0", b"/"]
        ),
    ),
    max_size=3,
)


def messages(first_lines):
    return st.builds(_message, first_lines, st.booleans(), st.lists(LINES, max_size=4), BODIES, MUTATIONS)


def _message(first, host, lines, body, mutations):
    data = b"\r\n".join([first, *([b"host: router"] if host else []), *lines, b"", b""]) + body
    for at, cut, inserted in mutations:
        data = data[:at] + inserted + data[at + cut :]
    return data


@given(messages(REQUEST_LINES))
@examples(300)
@example(b"POST / HTTP/1.1\r\nhost: r\r\nconnection: not-close-really\r\ncontent-length: 0\r\n\r\n")
@example(b"POST / HTTP/1.1\r\nhost: r\r\nconnection: close\r\nconnection: x\r\ncontent-length: 0\r\n\r\n")
@example(b"POST /\xc3\xa9 HTTP/1.1\r\nhost: r\r\ncontent-length: 0\r\n\r\n")
def test_h11_reads_every_request_that_the_router_reads_and_reads_it_the_same(data):
    requests_agree(data)


@given(messages(STATUS_LINES))
@examples(300)
@example(b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n")
@example(b"HTTP/1.1 200 OK\r\nconnection: close\r\nconnection: x\r\ncontent-length: 0\r\n\r\n")
def test_h11_reads_every_answer_that_the_router_reads_and_reads_it_the_same(data):
    answers_agree(data)
