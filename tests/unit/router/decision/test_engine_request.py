import json
from dataclasses import replace

import pytest

from promptgroup_contract.access import Access
from promptgroup_contract.caller_rules import CallerRules
from promptgroup_contract.table import PromptRef
from promptgroup_router.apis.endpoints import BY_PATH_ALONE, ENDPOINTS, PASSED
from promptgroup_router.decision.arrival import arrive
from promptgroup_router.decision.composition import router_state
from promptgroup_router.decision.engine_request import engine_body, engine_fields, engine_query, engine_target
from promptgroup_router.features.stored_responses.response_id import decode
from promptgroup_router.rings.ids import member_hash
from support.tables import SYSTEM, group, revision, slot, table
from support.wire import chat, table_of


def route_of(path, document):
    state = router_state()
    state.install(table_of("10.0.0.1:8000"), "file", 0.0)
    body = json.dumps(document).encode()
    found = arrive(state, method=b"POST", path=path, headers={}, body=body, now=0.0)
    return found, found.candidates.members[0], body


def test_a_response_gets_an_id_that_names_its_replica_and_process():
    found, member, _ = route_of(b"/v1/responses", {"model": "llama", "input": "hi"})
    sent = json.loads(engine_body(found, member, bytes))
    assert decode(sent["request_id"]).replica == member_hash(member.id)
    other = json.loads(engine_body(found, replace(member, incarnation="another"), bytes))
    assert decode(other["request_id"]).process != decode(sent["request_id"]).process


def test_other_bodies_are_the_routes_own():
    document = {"model": "llama", "messages": [{"role": "user", "content": "hi"}]}
    found, member, body = route_of(b"/v1/chat/completions", document)
    assert engine_body(found, member, bytes) == body


@pytest.mark.interpreted
def test_an_engine_that_asks_for_a_credential_gets_its_own_and_none_of_the_clients():
    found, member, _ = route_of(b"/v1/completions", {"model": "llama", "prompt": "hi"})
    state = router_state()
    state.features.authenticator.keyring.credential = lambda namespace, name: f"{namespace} {name}".encode()
    found.candidates = replace(found.candidates, access=Access(passes_credentials=True))
    passed, further = engine_fields(state.features, found, member, traced=False)
    assert (b"authorization" in passed, further) == (True, ())
    passed, further = engine_fields(state.features, found, replace(member, credential="keys/a"), traced=True)
    assert not passed & {b"authorization", b"cookie", b"traceparent"}
    assert further == ((b"authorization", b"Bearer chat keys/a"),)


def test_a_request_that_a_secret_prompt_is_put_in_front_of_asks_for_no_tokens_by_header():
    state, field = router_state(), b"x-sglext-return-input-ids"
    rules = CallerRules(headers=frozenset((field.decode(),)))
    for kind, passes in (("Secret", False), ("ConfigMap", True)):
        made = revision(slots=(slot(0),), prompt_from=PromptRef(kind, "support-1"))
        state.install(table(group("support", made, callers=rules), version=kind), "file", 0.0)
        body = json.dumps({"model": "support", "messages": [{"role": "user", "content": "hi"}]}).encode()
        found = arrive(state, method=b"POST", path=b"/v1/chat/completions", headers={}, body=body, now=0.0)
        passed, _ = engine_fields(state.features, found, found.candidates.members[0], traced=False)
        assert (field in passed) is passes


def test_a_request_that_no_group_declares_has_no_field_that_a_group_names():
    state, rules = router_state(), CallerRules(headers=frozenset(("x-tenant",)))
    state.install(table(group("support", callers=rules)), "file", 0.0)
    for system, passes in ((SYSTEM, True), ("Nobody declares this.", False)):
        body = json.dumps(chat(system=system)).encode()
        found = arrive(state, method=b"POST", path=b"/v1/chat/completions", headers={}, body=body, now=0.0)
        passed, _ = engine_fields(state.features, found, found.candidates.members[0], traced=False)
        assert (b"x-tenant" in passed) is passes


def test_an_engine_with_ranks_is_told_one_and_the_clients_word_of_it_never_counts():
    state, field = router_state(), b"x-data-parallel-rank"
    rules = CallerRules(headers=frozenset((field.decode(),)))
    made = revision(slots=(slot(0, ranks=3), slot(1)))
    state.install(table(group("support", made, callers=rules)), "file", 0.0)
    body = json.dumps({"model": "support", "messages": [{"role": "user", "content": "hi"}]}).encode()
    found = arrive(state, method=b"POST", path=b"/v1/chat/completions", headers={}, body=body, now=0.0)
    told = {}
    for member in found.candidates.members:
        passed, further = engine_fields(state.features, found, member, traced=False)
        told[member.slot, member.rank] = field in passed, dict(further).get(field)
    # an engine that has one rank is the group's to open
    assert told == {(0, 0): (False, b"0"), (0, 1): (False, b"1"), (0, 2): (False, b"2"), (1, None): (True, None)}


QUERIES = [
    b"beta=true",
    b"api-version=2024-10-21",
    b"stream=true&priority=-9",
    b"level=2&tags=weights",
    b"data_parallel_rank=1",
]
STORED = b"/v1/responses/resp_1"


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("query", QUERIES)
def test_engines_get_no_query_at_the_paths_of_apis_that_have_none(path, query):
    assert engine_query(ENDPOINTS[path], path, query) == b""


@pytest.mark.parametrize("path", [STORED, STORED + b"/input_items", STORED + b"/cancel"])
def test_of_a_stored_response_they_get_what_the_api_has(path):
    asked = b"stream=true&starting_after=3&include=a&include=b&after=x&limit=2&order=asc"
    assert engine_query(BY_PATH_ALONE, path, asked) == asked
    assert engine_query(BY_PATH_ALONE, path, b"beta=1&stream=true&rank=2&&%73tream=1&streams=1") == b"stream=true"
    assert engine_query(BY_PATH_ALONE, path, b"") == engine_query(BY_PATH_ALONE, path, b"beta=1") == b""


def test_a_path_that_settings_allow_gets_its_query():
    assert engine_query(PASSED, b"/v1/plugin", b"x=1") == b"x=1"


def test_a_target_has_a_question_mark_only_before_a_query():
    chat = b"/v1/chat/completions"
    assert engine_target(ENDPOINTS[chat], chat, b"beta=true") == engine_target(ENDPOINTS[chat], chat, b"") == chat
    assert engine_target(BY_PATH_ALONE, STORED, b"beta=1&stream=true") == STORED + b"?stream=true"
    assert engine_target(PASSED, b"/v1/plugin", b"x=1") == b"/v1/plugin?x=1"
