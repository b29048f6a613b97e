"""Requests of two callers of one group, as engines get them."""

import orjson
import pytest

from promptgroup_contract.access import ANONYMOUS, Caller
from promptgroup_contract.caller_rules import CallerRules, EngineField
from promptgroup_router.apis.endpoints import ENDPOINTS
from promptgroup_router.apis.tokens import Tokens
from promptgroup_router.base.errors import ApiError
from promptgroup_router.features.isolation.salts import Salts
from promptgroup_router.features.stored_responses.response_id import (
    ChosenResponseId,
    ResponseId,
    decode,
    encode,
    encode_for,
    is_of,
)
from promptgroup_router.policy.session_locations import SessionLocations
from promptgroup_router.rings.building import build_index
from promptgroup_router.routing.points import feature_of
from support.routes import route
from support.tables import SYSTEM, group, revision, table

A, B = Caller("a"), Caller("b")
ALL = frozenset(("chat", "text", "messages", "responses", "by model"))
SALTS = Salts(b"k" * 32)
CHAT = b"/v1/chat/completions"
HELLO = [{"role": "user", "content": "Hi"}]
BODIES = {
    CHAT: {"messages": [{"role": "system", "content": SYSTEM}, *HELLO]},
    b"/v1/completions": {"prompt": SYSTEM + "Hi"},
    b"/v1/messages": {"messages": HELLO, "system": SYSTEM, "max_tokens": 5},
    b"/v1/responses": {"input": "Hi", "instructions": SYSTEM},
    b"/v1/embeddings": {"input": "Hi"},
}


def view_of(salted=ALL, **fields):
    return build_index(
        table(group(callers=CallerRules(salted=None if salted is None else frozenset(salted), **fields)))
    )


def routed(body, caller=A, *, path=CHAT, view=None, headers=None):
    endpoint = ENDPOINTS[path]
    return route(
        view or view_of(),
        endpoint.parse(orjson.dumps({"model": "llama"} | body)),
        headers or {},
        locations=SessionLocations(),
        tokens=Tokens(),
        now=0.0,
        cached=endpoint.cached,
        identify=lambda _access, _namespace: caller,
        salts=SALTS,
    )


def salt(*arguments, **options):
    return orjson.loads(routed(*arguments, **options).rewrite.body).get("cache_salt")


@pytest.mark.parametrize("path", BODIES)
def test_each_caller_has_a_salt_on_every_api_and_none_chooses_it(path):
    body = BODIES[path] | {"cache_salt": "mine", "extra_key": "mine"}
    mine, again, theirs = salt(body, path=path), salt(body, path=path), salt(body, B, path=path)
    assert mine == again == SALTS.of("chat", A).salt
    assert theirs == SALTS.of("chat", B).salt
    assert "extra_key" not in orjson.loads(routed(body, path=path).rewrite.body)


@pytest.mark.parametrize("model", ["llama", "support"])
def test_requests_by_name_and_undeclared_ones_are_salted_too(model):
    assert salt({"model": model, "messages": HELLO}) == SALTS.of("chat", A).salt


def test_a_list_cannot_allow_a_clients_own_salt():
    view = view_of(allowed=frozenset((EngineField.CACHE_SALT,)))
    assert salt(BODIES[CHAT] | {"cache_salt": "mine"}, view=view) == SALTS.of("chat", A).salt


def test_a_group_that_shares_sends_no_salt():
    assert salt(BODIES[CHAT], view=view_of(None)) is None


@pytest.mark.parametrize("headers", [{}, {b"x-session-id": b"1"}, {b"authorization": b"one"}])
def test_sessions_and_prefixes_of_two_callers_are_two(headers):
    mine, theirs = (routed(BODIES[CHAT], each, headers=headers).demand for each in (A, B))
    assert mine.session != theirs.session
    assert mine.prefix != theirs.prefix
    assert mine.counted_prefix == theirs.counted_prefix


def test_who_is_not_known_is_refused():
    with pytest.raises(ApiError) as refused:
        routed(BODIES[CHAT], ANONYMOUS)
    assert (refused.value.status, refused.value.code) == (401, "caller_unknown")


@pytest.mark.parametrize("path", [b"/v1/messages", b"/v1/embeddings"])
def test_an_api_without_a_salt_is_refused_and_says_which_are_not(path):
    with pytest.raises(ApiError, match="use one of chat, text") as refused:
        routed(BODIES[path], path=path, view=view_of(("chat", "text")))
    assert (refused.value.status, refused.value.code) == (400, "isolation_not_supported")


@pytest.mark.parametrize("path", BODIES)
def test_engines_that_take_a_salt_on_different_apis_serve_no_undeclared_prompt(path):
    groups = [
        group(name, revision(f"Prompt {name}."), callers=CallerRules(salted=frozenset(salted)))
        for name, salted in (("a", ALL - {"chat", "text"}), ("b", {"chat", "text"}))
    ]
    with pytest.raises(ApiError, match="ask one of its groups by name") as refused:
        routed(BODIES[path], path=path, view=build_index(table(*groups)))
    assert (refused.value.status, refused.value.code) == (400, "isolation_not_supported")


def test_what_computes_no_answer_needs_no_salt():
    body = BODIES[b"/v1/messages"]
    assert salt(body, path=b"/v1/messages/count_tokens", view=view_of(("chat",))) is None


# --- stored responses ----------------------------------------------------------------------------------------

RESPONSES = b"/v1/responses"


def response_of(caller):
    found = routed(BODIES[RESPONSES], caller, path=RESPONSES)
    return encode_for(ResponseId(1, 2, found.demand.session), b"0123456789", SALTS.of("chat", caller))


def test_an_id_says_whose_response_it_is():
    mine = response_of(A)
    assert decode(mine).session == routed(BODIES[RESPONSES], path=RESPONSES).demand.session
    assert is_of(mine, SALTS.of("chat", A))
    assert not is_of(mine, SALTS.of("chat", B))
    assert not is_of("resp_1", SALTS.of("chat", A))
    assert not is_of(encode(ResponseId(1, 2, 3), b"0123456789"), SALTS.of("chat", A))


@pytest.mark.parametrize("previous", [response_of(A), "resp_of_an_engine", encode(ResponseId(1, 2, 3), b"0123456789")])
def test_nobody_continues_what_is_not_surely_theirs(previous):
    with pytest.raises(ApiError) as refused:
        routed(BODIES[RESPONSES] | {"previous_response_id": previous}, B, path=RESPONSES)
    assert (refused.value.status, refused.value.code) == (404, "previous_response_not_found")


def test_a_client_chooses_no_id_of_a_response():
    found = routed(BODIES[RESPONSES] | {"request_id": "resp_1"}, path=RESPONSES)
    assert feature_of(found.features, ChosenResponseId) is not None
    assert "request_id" not in orjson.loads(found.rewrite.body)
