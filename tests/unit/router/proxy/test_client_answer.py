from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_contract.caller_rules import CachedTokens
from promptgroup_router.apis.endpoints import ENDPOINTS
from promptgroup_router.base.errors import Failure
from promptgroup_router.callers.unasked_usage import NO_CHOICES
from promptgroup_router.decision.event_guard import EventGuard
from promptgroup_router.features.answer_usage import UsageEvents
from promptgroup_router.features.told_usage import ToldUsage
from promptgroup_router.http11.framing import Chunked
from promptgroup_router.proxy.client_answer import ClientAnswer
from promptgroup_router.proxy.response import RelayedHead

TOKEN = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1}}\n\n'
DONE = b"data: [DONE]\n\n"
HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


def chunk(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


class Client:
    """Takes what a client gets."""

    keeps_alive = True

    def __init__(self):
        self.got = b""

    def write(self, data):
        self.got += data


pytestmark = pytest.mark.interpreted


def begun(*, minor=1, chunked=True, decode=False, rewriter=None, closing=None, events=True, marks=()):
    client = Client()
    body = ClientAnswer(client, minor, ENDPOINTS[b"/v1/chat/completions"].tail())
    guard = EventGuard(chunked=chunked, marks=marks) if events else None
    head = RelayedHead(HEAD, True, decode or (rewriter is not None and not marks) or closing is not None)
    body.begin(head, chunked=chunked, rewriter=rewriter, guard=guard, closing=closing, in_place=bool(marks))
    return client, body


def test_a_body_passes_as_received_behind_its_head():
    client, body = begun()
    parts = [chunk(TOKEN), chunk(USAGE), chunk(DONE), b"0\r\n\r\n"]
    for part in parts:
        assert body.pass_on(part, between_chunks=True) is None
    assert body.finish() is None
    assert client.got == HEAD + b"".join(parts)
    assert body.usage().prompt_tokens == 9


def test_the_head_waits_for_the_first_byte():
    client, body = begun()
    assert client.got == b""
    body.pass_on(chunk(TOKEN), between_chunks=True)
    assert client.got.startswith(HEAD)


def test_a_body_that_is_rewritten_gets_chunks_of_the_routers_own():
    client, body = begun(rewriter=UsageEvents())
    body.pass_on(chunk(TOKEN), between_chunks=True)
    body.pass_on(chunk(USAGE), between_chunks=True)
    body.pass_on(chunk(DONE) + b"0\r\n\r\n", between_chunks=True)
    body.finish()
    assert client.got.endswith(b"0\r\n\r\n")
    assert b"usage" not in client.got
    assert TOKEN.strip() in client.got


def test_events_that_a_rewriter_changes_nothing_of_go_on_in_the_chunks_of_their_engine():
    client, body = begun(rewriter=UsageEvents(), marks=NO_CHOICES)
    token = b"%x;of=engine\r\n%b\r\n" % (len(TOKEN), TOKEN)
    body.pass_on(token, between_chunks=True)
    assert client.got == HEAD + token
    body.pass_on(chunk(USAGE), between_chunks=True)
    body.pass_on(token, between_chunks=True)
    body.pass_on(chunk(DONE) + b"0\r\n\r\n", between_chunks=True)
    body.finish()
    assert _content(client.got) == TOKEN * 2 + DONE
    assert body.usage().prompt_tokens == 9


@given(
    events=st.lists(st.sampled_from([TOKEN, USAGE, DONE, b": alive\n\n", TOKEN.replace(b"\n", b"\r\n")]), max_size=7),
    sizes=st.lists(st.integers(1, 90), max_size=9),
    cuts=st.lists(st.integers(0, 700), max_size=9),
)
def test_a_stream_loses_its_usage_alone_however_it_is_cut(events, sizes, cuts):
    content, chunks, start = b"".join(events), b"", 0
    for size in [*sizes, len(content)]:
        if part := content[start : start + size]:
            chunks += chunk(part)
        start += size
    chunks += b"0\r\n\r\n"
    client, body = begun(rewriter=UsageEvents(), marks=NO_CHOICES)
    reader, parts = Chunked(), bytearray()
    for begin, end in pairwise([0, *sorted(min(cut, len(chunks)) for cut in cuts), len(chunks)]):
        if part := chunks[begin:end]:
            reader.feed(part, parts)
            assert body.pass_on(part, between_chunks=reader.between) is None
    assert body.finish() is None
    assert _content(client.got) == b"".join(event for event in events if event != USAGE)
    assert (body.usage() is not None) is (USAGE in events)


def _content(got):
    content = bytearray()
    reader = Chunked()
    reader.feed(got.removeprefix(HEAD), content)
    assert reader.done
    return bytes(content)


def test_a_client_that_asks_gets_the_usage_in_a_comment_at_the_end():
    client, body = begun(closing=ToldUsage(CachedTokens.EXACT).comment)
    body.pass_on(chunk(TOKEN + USAGE + DONE) + b"0\r\n\r\n", between_chunks=True)
    body.finish()
    assert b": x-promptgroup-usage: prompt=9" in client.got


def test_a_stream_that_the_engine_breaks_off_is_a_failure_of_the_engine():
    _, body = begun()
    broken = b'data: {"choices":[{"delta":{},"finish_reason":"abort"}]}\n\n'
    assert body.pass_on(chunk(broken), between_chunks=True) is Failure.ABORTED


@pytest.mark.parametrize("cut", [0, 20, 5])
def test_events_of_the_router_stand_between_those_of_the_engine(cut):
    client, body = begun()
    body.pass_on(chunk(TOKEN), between_chunks=True)
    body.pass_on(chunk(TOKEN)[:cut], between_chunks=not cut)
    assert body.takes_events
    body.add_event(b": alive\n\n")
    assert client.got == HEAD + chunk(TOKEN) + chunk(b": alive\n\n")
    body.pass_on(chunk(TOKEN)[cut:] + b"0\r\n\r\n", between_chunks=True)
    body.finish()
    assert client.got.count(TOKEN) == 2


def test_an_answer_that_began_before_its_engine_has_its_head_once():
    client = Client()
    body = ClientAnswer(client, 1, ENDPOINTS[b"/v1/chat/completions"].tail(), request_id=b"early")
    assert body.keep_alive()
    assert body.keep_alive()
    guard = EventGuard(chunked=True)
    body.begin(RelayedHead(HEAD, True, False), chunked=True, rewriter=None, guard=guard, closing=None)
    body.pass_on(chunk(TOKEN + DONE) + b"0\r\n\r\n", between_chunks=True)
    body.finish()
    assert HEAD not in client.got
    assert client.got.endswith(b"0\r\n\r\n")
    assert client.got.count(b"x-request-id: early") == 1
    assert client.got.count(b": keep-alive") == 2


def test_where_only_the_end_of_the_connection_ends_an_answer_a_cut_does_not_show():
    assert begun()[1].cut_shows
    assert not begun(decode=True, minor=0)[1].cut_shows
