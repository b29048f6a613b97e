from pathlib import Path
from typing import Annotated

import pytest
from pydantic import BaseModel, Field

from promptgroup_contract import names
from promptgroup_operator.api.crd import render, structural
from promptgroup_operator.api.prompt_group import PromptGroup
from support.yamlfiles import document

TEXTS = render()
CRDS = {name: document(text) for name, text in TEXTS.items()}
FOLDER = Path(__file__).parents[4] / "crds"


def schema(kind):
    return CRDS[kind]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def nodes(node, path=""):
    """Every node of a schema with its path."""
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            yield from nodes(node[key], f"{path}[]")


NODES = [(kind, path, node) for kind in CRDS for path, node in nodes(schema(kind))]


@pytest.mark.parametrize("kind", CRDS)
def test_the_files_are_what_the_models_say(kind):
    assert (FOLDER / kind).read_text() == TEXTS[kind], "run `make generate`"


@pytest.mark.parametrize(("kind", "path", "node"), NODES, ids=[f"{kind[:-5]}{path}" for kind, path, _ in NODES])
def test_the_schema_is_structural(kind, path, node):
    """KEP-1531: a type at every node, nothing that refers or that is either one thing or another."""
    assert "type" in node or node.get("x-kubernetes-int-or-string") or node.get("x-kubernetes-preserve-unknown-fields")
    assert not {"$ref", "$defs", "anyOf", "oneOf", "title", "const"} & set(node)
    assert node.get("default", "") is not None


def test_a_default_is_what_the_field_takes():
    for kind, path, node in NODES:
        if "enum" in node and "default" in node:
            assert node["default"] in node["enum"], f"{kind}{path}"


def test_a_status_begins_by_saying_that_nobody_has_looked():
    assert schema("promptgroups.yaml")["properties"]["status"]["default"] == {"observedGeneration": -1}


def test_free_form_fields_take_anything():
    engine = schema("promptgroups.yaml")["properties"]["spec"]["properties"]["engine"]["properties"]
    assert engine["template"]["x-kubernetes-preserve-unknown-fields"] is True
    limit = engine["resources"]["properties"]["limits"]["additionalProperties"]
    assert limit["x-kubernetes-int-or-string"] is True
    assert limit["maxLength"] == 32


def test_a_route_has_no_field_that_could_nest_deeper_than_routers_read():
    free = [path for kind, path, node in NODES if node.get("x-kubernetes-preserve-unknown-fields")]
    assert free == [".spec.prompt.tools[]", ".spec.engine.template"]
    assert {kind for kind, path, _ in NODES if path in free} == {"promptgroups.yaml"}


def test_required_fields():
    assert schema("promptgroups.yaml")["required"] == ["spec"]
    # rules say which of model, prompt and engine a group needs
    assert "required" not in schema("promptgroups.yaml")["properties"]["spec"]


def test_rules_say_what_to_do():
    rules = [rule for _, _, node in NODES for rule in node.get("x-kubernetes-validations", [])]
    assert len(rules) >= 8
    assert all(rule["rule"] and rule["message"] for rule in rules)


def test_columns_answer_at_a_glance():
    version = CRDS["promptgroups.yaml"]["spec"]["versions"][0]
    shown = [column["name"] for column in version["additionalPrinterColumns"] if not column.get("priority")]
    assert shown == ["Ready", "Revision", "Warm", "Replicas", "Hit rate", "Age"]
    assert version["subresources"]["scale"]["specReplicasPath"] == ".spec.replicas"


@pytest.mark.parametrize("kind", CRDS)
def test_names(kind):
    crd = CRDS[kind]
    plural = kind.removesuffix(".yaml")
    assert crd["metadata"]["name"] == f"{plural}.{names.API_GROUP}"
    assert crd["spec"]["names"]["plural"] == plural
    assert crd["spec"]["versions"][0]["name"] == names.API_VERSION


def test_descriptions_carry_defaults_and_formats_since_explain_shows_nothing_else():
    rollout = structural(PromptGroup)["properties"]["spec"]["properties"]["rollout"]["properties"]
    assert rollout["drainTimeout"]["description"].endswith("A duration such as 90s, 5m or 1h30m. Default: 5m.")
    assert rollout["autoPromote"]["description"].endswith("Default: true.")
    assert rollout["steps"]["items"]["properties"]["pause"]["description"].endswith("Default: 10m.")
    assert "Default" not in rollout["steps"]["description"]


class Bounded(BaseModel):
    share: Annotated[float, Field(gt=0, lt=1)]


def test_a_bound_that_is_left_out_is_said_as_openapi_3_0_says_it():
    share = structural(Bounded)["properties"]["share"]
    assert (share["minimum"], share["exclusiveMinimum"]) == (0, True)
    assert (share["maximum"], share["exclusiveMaximum"]) == (1, True)
