import json

import pytest

from promptgroup_contract.caller_rules import CallerLimits, CallerRules, EngineField
from promptgroup_router.access.keyring import SecretRef
from promptgroup_router.apis.request import ApiKind, parse
from promptgroup_router.base.errors import ApiError
from promptgroup_router.decision.arrival import ModelsAnswer, arrive
from promptgroup_router.decision.composition import router_state
from promptgroup_router.features.caller_account import CallerAccount
from promptgroup_router.reading.digest import digest, from_digest
from promptgroup_router.routing.points import feature_of
from promptgroup_router.routing.route import Route
from support.keys import BY_KEY, KEY_A
from support.tables import group, revision, slot, table
from support.wire import chat, table_of

CHAT = b"/v1/chat/completions"


def arrived(method, path, body=b"", **headers):
    state = router_state()
    state.install(table_of("10.0.0.1:8000"), "file", 0.0)
    fields = {name.encode(): value.encode() for name, value in headers.items()}
    return state, arrive(state, method=method, path=path, headers=fields, body=body, now=0.0)


def test_a_request_gets_the_route_of_its_group():
    _, found = arrived(b"POST", CHAT, json.dumps(chat()).encode())
    assert isinstance(found, Route)
    assert [member.address for member in found.candidates.members] == ["10.0.0.1:8000"]


def test_models_are_answered_without_an_engine():
    _, found = arrived(b"GET", b"/v1/models")
    assert isinstance(found, ModelsAnswer)
    assert json.loads(found.body)["object"] == "list"


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        (b"GET", CHAT, 405, "POST"),
        (b"POST", b"/v1/models", 405, "GET, HEAD"),
        (b"HEAD", b"/v1/responses/resp_1", 405, "GET, DELETE"),
        (b"PUT", b"/v1/responses/resp_1", 405, "GET, DELETE"),
        (b"GET", b"/v1/responses/resp_1", 404, ""),
        (b"GET", b"/reset_prefix_cache", 404, ""),
    ],
)
def test_what_is_not_served(method, path, status, allow):
    with pytest.raises(ApiError) as refused:
        arrived(method, path)
    assert (refused.value.status, refused.value.allow) == (status, allow)


def test_the_methods_of_the_whole_server_are_told():
    _, found = arrived(b"OPTIONS", b"*")
    assert (found.body, found.fields) == (b"", [(b"allow", b"GET, HEAD, POST, DELETE, OPTIONS")])


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(("allowed", "prompts"), [((), 2), ((EngineField.PROMPT_EMBEDS,), 5)])
def test_answers_to_embeddings_are_reserved_where_the_engine_gets_them(allowed, prompts, large):
    rules = CallerRules(allowed=frozenset(allowed), default=CallerLimits(tokens_per_minute=10**6))
    known = group("support", revision(slots=(slot(0, address="10.0.0.1:8000"),)), access=BY_KEY, callers=rules)
    asked = {"model": "support", "prompt": ["a", "b"], "prompt_embeds": ["AA", "BB", "CC"], "max_tokens": 100, "n": 2}
    body = json.dumps(asked).encode()
    state = router_state()
    state.install(table(known), "file", 0.0)
    state.features.authenticator.keyring.learn_keys(SecretRef("chat", "keys"), {"team-a": KEY_A.encode()})
    ask = parse(ApiKind.TEXT, body)
    found = arrive(
        state,
        method=b"POST",
        path=b"/v1/completions",
        headers={b"authorization": f"Bearer {KEY_A}".encode()},
        body=body,
        now=0.0,
        request=from_digest(digest(ask, 0)) if large else None,
    )
    assert feature_of(found.features, CallerAccount).charge.open == 100 * 2 * prompts
    assert large or (b"prompt_embeds" in found.rewrite.body) is (allowed != ())


@pytest.mark.parametrize("coding", ["gzip", "br", "identity, gzip", "x" * 1000])
def test_a_coded_body_is_refused_before_it_is_read(coding):
    with pytest.raises(ApiError, match="send the body uncompressed") as refused:
        arrived(b"POST", CHAT, b"\x1f\x8b", **{"content-encoding": coding})
    assert (refused.value.status, refused.value.code) == (415, "coded_body")
    assert (b"accept-encoding", b"identity") in refused.value.headers()
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("coding", ["identity", "Identity", ""])
def test_a_body_that_is_said_to_be_as_it_is_is_read(coding):
    _, found = arrived(b"POST", CHAT, json.dumps(chat()).encode(), **{"content-encoding": coding})
    assert isinstance(found, Route)
