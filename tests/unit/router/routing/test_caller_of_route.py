from dataclasses import replace

import orjson
import pytest

from promptgroup_contract.access import ANONYMOUS, Access, AccessType, Caller
from promptgroup_router.apis.request import ApiKind, parse
from promptgroup_router.apis.tokens import Tokens
from promptgroup_router.base.errors import ApiError
from promptgroup_router.policy.session_locations import SessionLocations
from promptgroup_router.rings.building import build_index
from support.routes import route
from support.tables import SYSTEM, group, table

KEYS = Access(AccessType.API_KEY, secrets=("keys",))


def routed(view, identify=None, *, model="llama", system=SYSTEM):
    messages = [{"role": "system", "content": system}, {"role": "user", "content": "Hi"}]
    ask = parse(
        ApiKind.CHAT, orjson.dumps({"model": model, "messages": messages if model == "llama" else messages[1:]})
    )
    how = {"identify": identify} if identify is not None else {}
    return route(view, ask, {}, locations=SessionLocations(), tokens=Tokens(), now=0.0, **how)


def known(access, namespace):
    return Caller(f"{namespace}-{access.type.value}" if access is not None else "default")


def nobody(access, _namespace):
    if access is not None:
        raise ApiError(401, "no key", code="invalid_api_key")
    return ANONYMOUS


@pytest.mark.parametrize("model", ["llama", "support"])
def test_a_route_carries_the_caller_whom_its_groups_access_told(model):
    view = build_index(table(replace(group("support"), access=KEYS)))
    assert routed(view, known, model=model).caller == Caller("chat-APIKey")
    assert routed(view, model=model).caller == ANONYMOUS


@pytest.mark.parametrize("model", ["llama", "support"])
def test_a_group_is_not_reached_by_those_whom_it_does_not_know(model):
    view = build_index(table(replace(group("support"), access=KEYS)))
    with pytest.raises(ApiError) as caught:
        routed(view, nobody, model=model)
    assert caught.value.status == 401


def test_a_prompt_that_no_group_declares_reaches_replicas_of_groups_that_let_the_caller_in():
    closed, opened = replace(group("support"), access=KEYS), replace(group("open"), created="2030-01-01T00:00:00Z")
    view = build_index(table(closed, opened))
    other = "Another prompt altogether, of nobody."
    assert {each.group for each in routed(view, nobody, system=other).candidates.members} == {"chat/open"}
    assert {each.group for each in routed(view, known, system=other).candidates.members} == {"chat/support"}
    with pytest.raises(ApiError) as caught:
        routed(build_index(table(closed)), nobody, system=other)
    assert caught.value.status == 401
