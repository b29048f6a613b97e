"""A template cannot make its pods look like something else of the product's."""

import pytest

from promptgroup_contract import names
from promptgroup_operator.plan import desired
from promptgroup_operator.plan.reserved import reserved
from support.builders import group


def test_a_users_own_labels_are_the_users():
    metadata = {"labels": {"team": "chat", "app.kubernetes.io/name": "vllm"}, "annotations": {"example.com/a": "b"}}
    assert reserved({"metadata": metadata}) == ""
    elsewhere = {"labels": {"behind": names.ROUTER}, "annotations": {"app.kubernetes.io/name": names.ROUTER}}
    assert reserved({"metadata": elsewhere}) == "", "no Service selects by these"


@pytest.mark.parametrize("template", [{}, {"metadata": None}, {"metadata": []}, {"metadata": {"labels": "x"}}])
def test_a_template_without_metadata_sets_nothing(template):
    assert reserved(template) == ""


@pytest.mark.parametrize("name", ["promptgroup-router", "promptgroup-operator"])
def test_the_names_by_which_own_pods_are_found_are_refused_with_field_value_and_way_out(name):
    said = reserved({"metadata": {"labels": {"app.kubernetes.io/name": name}}})
    assert said.startswith("metadata.labels[app.kubernetes.io/name] is ")
    assert name in said
    assert "use another value" in said


@pytest.mark.parametrize("field", ["labels", "annotations"])
@pytest.mark.parametrize(
    "key", [names.LABEL_SLOT, names.LABEL_GROUP, names.ANNOTATION_WARMED, "promptgroup.dev/x", "a.promptgroup.dev/x"]
)
def test_keys_of_the_products_domain_are_refused(field, key):
    said = reserved({"metadata": {field: {key: "0"}}})
    assert said.startswith(f"metadata.{field}[{key}] is reserved for the operator")


def test_names_that_only_look_like_the_products_are_the_users():
    assert reserved({"metadata": {"labels": {"notpromptgroup.dev/x": "", "promptgroup.dev": ""}}}) == ""


def test_the_one_annotation_by_which_an_engine_gets_settings_is_allowed():
    engine = {"template": {"metadata": {"annotations": {desired.ANNOTATION_CONFIG: "x: 1"}}}}
    assert desired.template_problem(group(engine=engine)) is None


def test_a_group_whose_engines_would_join_the_routers_service_is_not_accepted():
    engine = {"template": {"metadata": {"labels": {"app.kubernetes.io/name": names.ROUTER}}}}
    problem = desired.template_problem(group(engine=engine))
    assert problem.reason == "InvalidTemplate"
    assert problem.message.startswith("spec.engine.template: metadata.labels[app.kubernetes.io/name]")


@pytest.mark.parametrize("value", [{}, [], [names.ROUTER], {"a": 1}, None, 7])
def test_a_label_that_is_no_text_is_nobodys_name(value):
    assert reserved({"metadata": {"labels": {"app.kubernetes.io/name": value}}}) == ""
