import json
from collections import Counter
from dataclasses import replace

import orjson
import pytest

from promptgroup_router.contract.table import SlotState
from promptgroup_router.errors import ApiError
from promptgroup_router.match import How
from promptgroup_router.payload import Kind, read
from promptgroup_router.route import UNMATCHED, route
from promptgroup_router.sessions import Sessions
from promptgroup_router.view import view_of
from support.tables import SYSTEM, group, revision, slot, table


def ask(*messages, model="llama", **fields):
    listed = [{"role": role, "content": content} for role, content in messages or [("user", "Hi")]]
    return read(Kind.CHAT, orjson.dumps({"model": model, "messages": listed} | fields))


def text(prompt, model="llama"):
    return read(Kind.TEXT, orjson.dumps({"model": model, "prompt": prompt}))


def routed(view, request, headers=None, sessions=None, now=0.0):
    return route(view, sessions or Sessions(), request, headers or {}, now)


VIEW = view_of(table(group("support", session_header="x-mine")))


def test_by_content_the_body_stays_and_the_session_is_the_first_user_message():
    request = ask(("system", SYSTEM), ("user", "Hi"))
    first = routed(VIEW, request)
    later = routed(VIEW, ask(("system", SYSTEM), ("user", "Hi"), ("assistant", "Yes?"), ("user", "More")))
    other = routed(VIEW, ask(("system", SYSTEM), ("user", "Ho")))
    assert (first.how, first.group, first.model, first.body) == (How.CONTENT, "chat/support", "llama", request.raw)
    assert first.keys == later.keys
    assert first.keys.session != other.keys.session
    assert first.keys.prefix == other.keys.prefix


def test_by_name_the_prompt_is_put_in_front():
    found = routed(VIEW, ask(model="support"))
    assert (found.how, found.group, found.model) == (How.NAME, "chat/support", "llama")
    assert json.loads(found.body)["messages"][0] == {"role": "system", "content": SYSTEM}


def test_what_names_a_session_by_precedence():
    def session(headers=None, **fields):
        return routed(VIEW, ask(("system", SYSTEM), ("user", "Hi"), **fields), headers).keys.session

    header = session({b"x-mine": b"s"}, prompt_cache_key="k")
    assert header == session({b"x-mine": b"s"})
    assert header != session({b"x-session-id": b"s"})
    assert session({b"x-mine": b""}, prompt_cache_key="k") == session(prompt_cache_key="k")
    assert session(prompt_cache_key="k") != session()


def test_the_session_of_a_text_prompt_is_what_follows_the_declared_text():
    one, other = routed(VIEW, text(SYSTEM + " a" + "x" * 2000)), routed(VIEW, text(SYSTEM + " b" + "x" * 2000))
    longer = routed(VIEW, text(SYSTEM + " a" + "x" * 3000))
    assert one.keys.session == longer.keys.session != other.keys.session


def test_without_a_match_the_start_of_the_prompt_says_where():
    view = view_of(table(group("a", revision("A")), group("b", revision("B"))))
    found = routed(view, ask(("system", "x" * 5000), ("user", "Hi")))
    same = routed(view, ask(("system", "x" * 4000), ("user", "Ho")))
    other = routed(view, ask(("system", "y" * 4000), ("user", "Ho")))
    assert (found.how, found.group, found.model) == (How.NONE, UNMATCHED, "llama")
    assert found.leading.length == 5000
    assert found.keys == same.keys != other.keys
    assert len(found.pool.ready) == 6


def refused(view, request, headers=None):
    with pytest.raises(ApiError) as caught:
        routed(view, request, headers)
    return caught.value.status, caught.value.code


def test_without_a_ready_replica_the_answer_is_503():
    absent = revision(slots=(slot(0, SlotState.ABSENT), slot(1, SlotState.DRAINING)))
    view = view_of(table(group("support", absent)))
    for request in (ask(("system", SYSTEM), ("user", "Hi")), ask(model="support"), ask()):
        assert refused(view, request) == (503, "no_replica")
    assert refused(view_of(table(replace(group("support"), revisions=()))), ask(model="support")) == (503, "no_replica")


def test_by_name_with_a_text_that_is_not_known_yet_is_503_by_content_it_is_served():
    view = view_of(table(group("support", revision(known=False))))
    assert refused(view, ask(model="support")) == (503, "prompt_not_available")
    assert routed(view, ask(("system", SYSTEM), ("user", "Hi"))).how is How.CONTENT


# --- Revisions by name ---------------------------------------------------------------------------------------

OLD, NEW = revision("old", weight=75), revision("new", weight=25)
CANARY = view_of(table(group("support", OLD, NEW)))


def arm(view, session, sessions=None, now=0.0):
    return routed(view, ask(model="support"), {b"x-session-id": session.encode()}, sessions, now).pool.id.split("/")[2]


def test_new_sessions_are_split_by_weight_and_routers_agree():
    arms = [arm(CANARY, f"session-{number}") for number in range(1000)]
    share = Counter(arms)[NEW.fingerprint] / 1000
    assert 0.2 < share < 0.3
    turned = view_of(table(group("support", NEW, OLD)))
    assert arms == [arm(turned, f"session-{number}") for number in range(1000)]


def test_a_running_session_stays_on_its_revision():
    sessions, view = Sessions(), view_of(table(group("support", replace(OLD, weight=0), NEW)))
    key = routed(view, ask(model="support"), {b"x-session-id": b"s"}).keys.session
    sessions.record("chat/support", key, OLD.fingerprint, 0, 0.0)
    assert arm(view, "s", sessions, 10.0) == OLD.fingerprint
    assert arm(view, "other", sessions, 10.0) == NEW.fingerprint
    assert arm(view, "s", sessions, 4000.0) == NEW.fingerprint


def test_a_session_leaves_a_revision_that_has_no_replica_left():
    gone = replace(OLD, slots=(slot(0, SlotState.ABSENT),))
    view, sessions = view_of(table(group("support", gone, NEW))), Sessions()
    key = routed(view, ask(model="support"), {b"x-session-id": b"s"}).keys.session
    sessions.record("chat/support", key, OLD.fingerprint, 0, 0.0)
    assert arm(view, "s", sessions, 10.0) == NEW.fingerprint


def test_a_revision_without_weight_gets_no_new_session():
    assert refused(view_of(table(group("support", replace(OLD, weight=0)))), ask(model="support")) == (
        503,
        "no_replica",
    )
