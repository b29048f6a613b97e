import json

import pytest

from promptgroup_contract.access import ANONYMOUS, Access, AccessType
from promptgroup_contract.table import ModelAlias, RoutingTable
from promptgroup_router.base.errors import ApiError
from promptgroup_router.rings.building import build_index
from promptgroup_router.routing.model_list import model_card, model_list
from support.tables import group, revision, table

GROUPS = [group("a"), group("b", namespace="x"), group("b", namespace="y"), group("llama", revision("z"))]
INDEX = build_index(table(*GROUPS))


def test_models_and_groups_are_listed_by_the_names_that_work():
    listed = json.loads(model_list(INDEX))
    assert listed["object"] == "list"
    names = [(each["id"], each["owned_by"], each["parent"]) for each in listed["data"]]
    assert names == [
        ("llama", "engine", None),
        ("a", "chat", "llama"),
        ("b", "x", "llama"),
        ("y/b", "y", "llama"),
        ("chat/llama", "chat", "llama"),
    ]


def test_an_adapter_is_listed_with_the_model_that_it_is_made_for():
    index = build_index(table(group("support", model="tone", base_model="llama")))
    names = [(each["id"], each["root"], each["parent"]) for each in json.loads(model_list(index))["data"]]
    assert names == [("tone", "tone", "llama"), ("support", "tone", "tone")]
    assert json.loads(model_card(index, b"/v1/models/tone"))["parent"] == "llama"


def test_a_model_whose_name_an_older_group_keeps_is_not_listed():
    late = group("x", revision("z"), namespace="x", model="a", created="2027-01-01T00:00:00Z")
    index = build_index(table(group("a"), late))
    assert [each["id"] for each in json.loads(model_list(index))["data"]] == ["llama", "a", "x"]
    assert json.loads(model_card(index, b"/v1/models/a"))["owned_by"] == "chat"


def test_anthropics_clients_get_the_list_in_their_form():
    listed = json.loads(model_list(INDEX, anthropic=True))
    assert [each["id"] for each in listed["data"]] == ["llama", "a", "b", "y/b", "chat/llama"]
    assert {each["type"] for each in listed["data"]} == {"model"}
    assert (listed["first_id"], listed["last_id"], listed["has_more"]) == ("llama", "chat/llama", False)


def test_a_list_without_models_has_no_ends():
    listed = json.loads(model_list(build_index(RoutingTable()), anthropic=True))
    assert listed == {"data": [], "has_more": False, "first_id": None, "last_id": None}


@pytest.mark.parametrize(
    ("path", "name", "parent"),
    [
        (b"/v1/models/llama", "llama", None),
        (b"/v1/models/a", "a", "llama"),
        (b"/v1/models/chat/a", "chat/a", "llama"),
        (b"/v1/models/x%2Fb", "x/b", "llama"),
        (b"/v1/models/b", "b", "llama"),
    ],
)
def test_one_model_by_any_of_its_names(path, name, parent):
    card = json.loads(model_card(INDEX, path))
    assert (card["id"], card["parent"]) == (name, parent)
    assert json.loads(model_card(INDEX, path, anthropic=True))["id"] == name


@pytest.mark.parametrize("path", [b"/v1/models/gpt", b"/v1/models/c", b"/v1/models/%ff%fe", b"/v1/models/"])
def test_a_model_that_is_not_served(path):
    with pytest.raises(ApiError) as caught:
        model_card(INDEX, path)
    assert (caught.value.status, caught.value.code) == (404, "model_not_found")


def test_other_paths_name_no_model():
    assert model_card(INDEX, b"/v1/modelsx") is None


# --- Aliases --------------------------------------------------------------------------------------------------------


def aliased(name, *aliases, since="2026-11-09T00:00:00Z", **fields):
    return group(name, aliases=tuple(ModelAlias(each, since) for each in aliases), **fields)


def test_an_alias_is_listed_and_found_with_the_model_that_it_stands_for():
    index = build_index(table(aliased("a", "gpt-4o", "l8")))
    listed = [(each["id"], each["root"], each["parent"]) for each in json.loads(model_list(index))["data"]]
    assert listed == [
        ("llama", "llama", None),
        ("gpt-4o", "llama", None),
        ("l8", "llama", None),
        ("a", "llama", "llama"),
    ]
    card = json.loads(model_card(index, b"/v1/models/gpt-4o"))
    assert (card["id"], card["root"], card["owned_by"], card["object"]) == ("gpt-4o", "llama", "engine", "model")
    assert json.loads(model_card(index, b"/v1/models/gpt-4o", anthropic=True))["id"] == "gpt-4o"


def test_an_alias_that_requests_without_a_namespace_do_not_reach_is_not_listed():
    theirs = group("gpt", revision("z"), namespace="x", model="other", created="2026-01-01T00:00:00Z")
    index = build_index(table(aliased("a", "gpt"), theirs))
    assert [each["id"] for each in json.loads(model_list(index))["data"]] == ["llama", "other", "a", "gpt"]
    assert json.loads(model_card(index, b"/v1/models/gpt"))["parent"] == "other"


def test_a_name_that_is_a_model_and_an_alias_is_listed_once():
    late = group("b", revision("z"), namespace="x", model="gpt", created="2026-12-01T00:00:00Z")
    index = build_index(table(aliased("a", "gpt"), late))
    assert [each["id"] for each in json.loads(model_list(index))["data"]] == ["llama", "gpt", "a", "b"]


def test_an_alias_is_told_to_those_alone_who_may_use_its_model():
    keys = Access(type=AccessType.API_KEY, secrets=("keys",))
    index = build_index(table(aliased("a", "gpt", access=keys), group("b", revision("z"), model="open")))

    def identify(access, _namespace):
        if access is not None:
            raise ApiError(401, "who are you")
        return ANONYMOUS

    assert [each["id"] for each in json.loads(model_list(index, identify))["data"]] == ["open", "b"]
    with pytest.raises(ApiError) as caught:
        model_card(index, b"/v1/models/gpt", identify)
    assert (caught.value.status, caught.value.code) == (404, "model_not_found")
