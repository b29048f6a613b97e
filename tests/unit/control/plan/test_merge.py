from copy import deepcopy

import pytest

from promptgroup_operator.plan.merge import MERGE_KEYS, merge, nulls

CASES = {
    "an empty patch changes nothing": ({"a": {"b": 1}}, {}, {"a": {"b": 1}}),
    "a scalar replaces a scalar": ({"a": 1}, {"a": 2}, {"a": 2}),
    "a map merges key by key": ({"a": {"b": 1, "c": 2}}, {"a": {"c": 3, "d": 4}}, {"a": {"b": 1, "c": 3, "d": 4}}),
    "null removes a key": ({"a": 1, "b": 2}, {"a": None}, {"b": 2}),
    "null of a key that is not there is nothing": ({"b": 2}, {"a": None}, {"b": 2}),
    "null inside a map that is new is nothing": ({}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}),
    "null inside a list item that is new is nothing": (
        {"containers": []},
        {"containers": [{"name": "x", "command": None, "image": "i"}]},
        {"containers": [{"name": "x", "image": "i"}]},
    ),
    "null inside a list that is new is nothing": (
        {},
        {"volumes": [{"name": "x", "emptyDir": None}]},
        {"volumes": [{"name": "x"}]},
    ),
    "a map replaces a scalar": ({"a": 1}, {"a": {"b": 1}}, {"a": {"b": 1}}),
    "containers merge by name": (
        {"containers": [{"name": "engine", "image": "a", "args": ["1"]}]},
        {"containers": [{"name": "engine", "image": "b"}, {"name": "sidecar", "image": "c"}]},
        {"containers": [{"name": "engine", "image": "b", "args": ["1"]}, {"name": "sidecar", "image": "c"}]},
    ),
    "a container named alone keeps the others": (
        {"containers": [{"name": "engine"}]},
        {"containers": [{"name": "sidecar"}]},
        {"containers": [{"name": "engine"}, {"name": "sidecar"}]},
    ),
    "volume mounts merge by path": (
        {"volumeMounts": [{"name": "home", "mountPath": "/home"}]},
        {"volumeMounts": [{"name": "other", "mountPath": "/home"}]},
        {"volumeMounts": [{"name": "other", "mountPath": "/home"}]},
    ),
    "ports merge by number": (
        {"ports": [{"name": "http", "containerPort": 8000}]},
        {"ports": [{"containerPort": 8000, "hostPort": 80}, {"containerPort": 9}]},
        {"ports": [{"name": "http", "containerPort": 8000, "hostPort": 80}, {"containerPort": 9}]},
    ),
    "environment variables merge by name": (
        {"env": [{"name": "HOME", "value": "/a"}]},
        {"env": [{"name": "X", "value": "1"}, {"name": "HOME", "value": "/b"}]},
        {"env": [{"name": "HOME", "value": "/b"}, {"name": "X", "value": "1"}]},
    ),
    "a template's readiness gate stands beside the operator's": (
        {"readinessGates": [{"conditionType": "promptgroup.dev/prefix-warm"}]},
        {"readinessGates": [{"conditionType": "example.com/gate"}]},
        {"readinessGates": [{"conditionType": "promptgroup.dev/prefix-warm"}, {"conditionType": "example.com/gate"}]},
    ),
    "a list without a merge key is replaced whole": ({"args": ["a", "b"]}, {"args": ["c"]}, {"args": ["c"]}),
    "tolerations are replaced whole": (
        {"tolerations": [{"key": "a"}]},
        {"tolerations": [{"key": "b"}]},
        {"tolerations": [{"key": "b"}]},
    ),
    "$patch delete removes a list item": (
        {"volumes": [{"name": "home"}, {"name": "b"}]},
        {"volumes": [{"name": "home", "$patch": "delete"}]},
        {"volumes": [{"name": "b"}]},
    ),
    "$patch delete of an item that is not there is nothing": (
        {"volumes": [{"name": "b"}]},
        {"volumes": [{"name": "home", "$patch": "delete"}]},
        {"volumes": [{"name": "b"}]},
    ),
    "$patch replace of a map drops what stood there": (
        {"securityContext": {"runAsUser": 1, "fsGroup": 2}},
        {"securityContext": {"$patch": "replace", "runAsUser": 0}},
        {"securityContext": {"runAsUser": 0}},
    ),
    "$patch replace of a list item drops what stood there": (
        {"containers": [{"name": "engine", "image": "a", "args": ["1"]}]},
        {"containers": [{"name": "engine", "$patch": "replace", "image": "b"}]},
        {"containers": [{"name": "engine", "image": "b"}]},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_merge(case):
    base, patch, expected = CASES[case]
    kept = deepcopy((base, patch))
    assert merge(base, patch) == expected
    assert (base, patch) == kept, "neither argument is changed"


@pytest.mark.parametrize("item", [{"image": "x"}, "engine"])
def test_a_list_item_without_its_merge_key_is_refused_with_the_field_and_the_key(item):
    with pytest.raises(ValueError, match=r"containers.*name"):
        merge({"containers": [{"name": "engine"}]}, {"containers": [item]})


@pytest.mark.parametrize("field", MERGE_KEYS)
@pytest.mark.parametrize("value", [{}, [], {"a": 1}, ["engine"], None])
def test_a_merge_key_that_names_nothing_is_refused_with_the_field_and_the_key(field, value):
    key = MERGE_KEYS[field]
    with pytest.raises(ValueError, match=rf"{field}.*has no {key}, which names"):
        merge({field: [{key: "engine"}]}, {field: [{key: value}]})


def test_a_map_is_removed_by_a_directive_as_by_null():
    base = {"spec": {"containers": [{"name": "engine", "livenessProbe": {"httpGet": {}}, "image": "a"}]}}
    for how in ({"$patch": "delete"}, None):
        patch = {"spec": {"containers": [{"name": "engine", "livenessProbe": how}]}}
        assert merge(base, patch) == {"spec": {"containers": [{"name": "engine", "image": "a"}]}}


def test_nulls_are_found_wherever_they_are():
    patch = {"a": None, "spec": {"containers": [{"name": "engine", "env": [{"name": "A", "value": None}]}, [None]]}}
    assert list(nulls(patch)) == ["a", "spec.containers[engine].env[A].value", "spec.containers[1][0]"]
