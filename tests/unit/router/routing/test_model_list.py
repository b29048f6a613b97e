import json

import pytest

from promptgroup_router.base.errors import ApiError
from promptgroup_router.contract.table import RoutingTable
from promptgroup_router.rings.index import build_index
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
        ("x/b", "x", "llama"),
        ("y/b", "y", "llama"),
        ("chat/llama", "chat", "llama"),
    ]


def test_anthropics_clients_get_the_list_in_their_form():
    listed = json.loads(model_list(INDEX, anthropic=True))
    assert [each["id"] for each in listed["data"]] == ["llama", "a", "x/b", "y/b", "chat/llama"]
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
    ],
)
def test_one_model_by_any_of_its_names(path, name, parent):
    card = json.loads(model_card(INDEX, path))
    assert (card["id"], card["parent"]) == (name, parent)
    assert json.loads(model_card(INDEX, path, anthropic=True))["id"] == name


@pytest.mark.parametrize("path", [b"/v1/models/gpt", b"/v1/models/b", b"/v1/models/%ff%fe", b"/v1/models/"])
def test_a_model_that_is_not_served(path):
    with pytest.raises(ApiError) as caught:
        model_card(INDEX, path)
    assert (caught.value.status, caught.value.code) == (404, "model_not_found")


def test_other_paths_name_no_model():
    assert model_card(INDEX, b"/v1/modelsx") is None
