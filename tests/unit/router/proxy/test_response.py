"""The heads of answers: which fields the router adds, keeps and leaves out, and when a connection stays open."""

import pytest

from promptgroup_contract.caller_rules import NO_RULES, CallerRules
from promptgroup_router.http11.http1 import Framing, parse_response
from promptgroup_router.proxy.response import REQUEST_ID, connection_lines, interim_head, own_answer, relayed_head
from support.heads import answer_head


def answer(status=200, framing=Framing.LENGTH, length=2, headers=((b"content-length", b"2"),)):
    return answer_head(headers, status, framing, length)


NOTES = [(b"cache-status", b"promptgroup; fwd=miss")]


def relayed(head, minor=1, keep=True, revision="0123abcd", rules=NO_RULES):
    return relayed_head(
        head,
        minor=minor,
        keep=keep,
        served_by="ns/g/0123abcd/1",
        revision=revision,
        request_id=b"mine",
        further=NOTES,
        rules=rules,
    )


def test_an_own_answer_has_its_length_and_a_head_request_gets_no_body():
    assert own_answer(404, [], b"{}", minor=1, keep=True) == b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}"
    assert own_answer(404, [], b"{}", minor=1, keep=True, head_only=True).endswith(b"content-length: 2\r\n\r\n")


@pytest.mark.parametrize(
    ("status", "phrase"), [(413, b"Content Too Large"), (414, b"URI Too Long"), (422, b"Unprocessable Content")]
)
def test_phrases_are_those_of_today(status, phrase):
    assert own_answer(status, [], b"", minor=1, keep=True).startswith(b"HTTP/1.1 %d %b\r\n" % (status, phrase))


@pytest.mark.parametrize(
    ("minor", "keep", "fields"),
    [(1, True, []), (1, False, [b"connection: close"]), (0, True, [b"connection: keep-alive"])],
)
def test_a_connection_is_announced_where_the_version_does_not_say_it(minor, keep, fields):
    assert connection_lines(minor, keep=keep) == fields


def test_an_engines_words_for_the_routers_own_fields_are_not_relayed():
    theirs = [
        (REQUEST_ID, b"theirs"),
        (b"request-id", b"theirs"),
        (b"x-promptgroup-served-by", b"x"),
        (b"x-promptgroup-revision", b"x"),
    ]
    head = relayed(answer(headers=[(b"content-length", b"2"), *theirs])).head
    assert b"cache-status: promptgroup; fwd=miss\r\n" in head
    assert b"theirs" not in head
    assert b"x-request-id: mine\r\n" in head
    assert b"x-promptgroup-served-by: ns/g/0123abcd/1\r\n" in head
    assert b"x-promptgroup-revision: 0123abcd\r\n" in head


def test_a_request_without_a_group_has_no_revision():
    assert b"x-promptgroup-revision" not in relayed(answer(), revision="").head


def test_chunks_are_decoded_for_a_client_that_knows_none_and_its_connection_ends_the_body():
    chunked = answer(framing=Framing.CHUNKED, length=0, headers=[(b"transfer-encoding", b"chunked")])
    old = relayed(chunked, minor=0)
    assert (old.decode, old.keep) == (True, False)
    assert b"transfer-encoding" not in old.head
    new = relayed(chunked)
    assert (new.decode, new.keep) == (False, True)
    assert b"transfer-encoding: chunked\r\n" in new.head


def test_an_answer_that_ends_with_its_connection_ends_the_clients_too():
    assert not relayed(answer(framing=Framing.UNTIL_CLOSE, length=0, headers=[])).keep


def test_an_answer_without_content_has_no_length():
    assert b"content-length" not in relayed(answer(status=204, framing=Framing.LENGTH, length=0)).head


def test_an_interim_answer_passes_with_its_fields():
    head = interim_head(
        answer(status=103, length=0, headers=[(b"vary", b"accept"), (b"server", b"x"), (b"content-length", b"5")]),
        NO_RULES,
    )
    assert head == b"HTTP/1.1 103 Early Hints\r\nvary: accept\r\n\r\n"


def test_an_engines_word_on_itself_passes_only_where_the_group_names_the_field():
    told = answer(headers=[(b"content-length", b"2"), (b"endpoint-load-metrics", b"JSON {}"), (b"x-sglext-ids", b"1")])
    assert b"endpoint-load-metrics" not in relayed(told).head
    head = relayed(told, rules=CallerRules(headers=frozenset(("endpoint-load-metrics",)))).head
    assert b"endpoint-load-metrics: JSON {}\r\n" in head
    assert b"x-sglext-ids" not in head


def test_a_head_that_is_remembered_has_each_groups_own_fields():
    told = parse_response(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nserver: uvicorn\r\n\r\n")
    assert told.comes_again
    names_it = CallerRules(headers=frozenset(("server",)))
    for rules, passes in ((names_it, True), (NO_RULES, False), (names_it, True), (NO_RULES, False)):
        assert (b"server: uvicorn\r\n" in relayed(told, rules=rules).head) is passes
