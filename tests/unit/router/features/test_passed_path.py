"""Paths that only the settings allow: who gets their requests."""

import json

import pytest

from promptgroup_contract.access import Caller
from promptgroup_contract.caller_rules import CallerRules
from promptgroup_contract.table import PromptRef
from promptgroup_router.base.errors import ApiError
from promptgroup_router.decision.arrival import arrive
from promptgroup_router.decision.composition import router_state
from promptgroup_router.features.passed_path import keep_unprotected
from promptgroup_router.routing.state import RouterState
from support.tables import group, revision, slot, table

PATH = b"/v1/further"
SECRET = PromptRef("Secret", "support-1")


def state(*groups, paths=(PATH,)) -> RouterState:
    known = router_state(pass_paths=frozenset(paths))
    known.install(table(*groups), "file", 0.0)
    return known


def arrived(known: RouterState, body: object, method=b"POST", path=PATH, **headers):
    fields = {name.encode(): value.encode() for name, value in headers.items()}
    return arrive(known, method=method, path=path, headers=fields, body=json.dumps(body).encode(), now=0.0)


def refused(known: RouterState, body: object, **how) -> ApiError:
    with pytest.raises(ApiError) as caught:
        arrived(known, body, **how)
    return caught.value


def test_a_path_that_is_not_named_is_not_served():
    assert refused(state(paths=()), {"model": "llama"}).status == 404
    error = refused(state(), {"model": "llama"}, path=b"/v1/other")
    assert (error.status, "POST /v1/further" in str(error)) == (404, True)
    error = refused(state(), {"model": "llama"}, method=b"GET")
    assert (error.status, error.allow) == (405, "POST")


def test_a_request_goes_where_its_model_or_a_header_says():
    known, body = state(), {"model": "llama", "text": ["a"]}
    assert json.loads(arrived(known, body).rewrite.body) == body
    assert json.loads(arrived(known, body | {"model": "support"}).rewrite.body) == body
    found = arrived(known, {"text": ["a"]}, **{"x-promptgroup": "support"})
    assert (found.group, json.loads(found.rewrite.body)) == ("chat/support", {"text": ["a"]})
    assert len(found.candidates.members) == 3
    assert refused(known, {"text": ["a"]}).status == 404
    assert refused(known, [1]).code == "invalid_value"
    assert refused(known, {"model": 5}, **{"x-promptgroup": "support"}).param == "model"


def test_fields_of_the_engines_operator_are_taken_out_as_everywhere():
    assert json.loads(arrived(state(), {"model": "llama", "cache_salt": "x"}).rewrite.body) == {"model": "llama"}


def protected(name: str = "hidden", **fields):
    rules = {"callers": CallerRules(salted=frozenset(("chat",)))} if fields.get("isolated") else {}
    secret = {} if rules else {"prompt_from": SECRET}
    slots = (slot(0, address="10.0.1.1:8000"), slot(1, address="10.0.1.2:8000"))
    return group(name, revision("Hidden.", slots, **secret), created="2026-11-03T12:00:00Z", **rules)


def test_replicas_of_a_secret_prompt_get_no_such_request_by_model_or_by_name():
    known = state(group(), protected())
    addresses = {member.address for member in arrived(known, {"model": "llama"}).candidates.members}
    assert addresses == {"10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"}
    assert refused(known, {"model": "hidden"}).code == "path_not_allowed"
    assert refused(state(protected()), {"model": "llama"}).code == "path_not_allowed"


def test_groups_that_keep_callers_apart_refuse_it():
    known = state(protected(isolated=True))

    def identify(*_):
        return Caller("alice")

    error = refused(known, {"model": "hidden"})
    assert (error.status, error.code) == (401, "caller_unknown")
    # the check that knows nothing of salts refuses too
    found = arrived(state(), {"model": "support"})
    found.group = "chat/hidden"
    with pytest.raises(ApiError, match="keeps its callers apart"):
        keep_unprotected(known.index, found)
