import time
from copy import deepcopy
from functools import reduce
from operator import getitem

import pytest

from promptgroup_contract.names import ANNOTATION_APPLIED
from promptgroup_operator.plan.diff import is_complete, must_write, quantity, stamped
from promptgroup_operator.plan.plan import decide
from support.builders import NOW, pod, revision, world

LARGEST = 2**63 - 1


def manifest(spec, **metadata):
    return {"kind": "Deployment", "metadata": {"name": "x", **metadata}, "spec": spec}


WANTED = stamped(manifest({"replicas": 2, "args": ["a", "b"], "containers": [{"name": "engine", "image": "i"}]}))


def live(change=None):
    standing = deepcopy(WANTED)
    if change is not None:
        change(standing)
    return standing


def test_an_object_that_stands_as_wanted_is_left_alone():
    assert not must_write(live(), WANTED)


def test_an_absent_object_is_written():
    assert must_write(None, WANTED)


UNTOUCHED = {
    "the server adds fields": lambda each: each["spec"].update(progressDeadlineSeconds=600),
    "the server adds metadata": lambda each: each["metadata"].update(uid="u", generation=3),
    "the server adds a status": lambda each: each.update(status={"replicas": 2}),
    "another manager adds a label": lambda each: each["metadata"].update(labels={"team": "a"}),
    "another manager adds an annotation": lambda each: each["metadata"]["annotations"].update({"a": "b"}),
    "defaults fill a list item": lambda each: each["spec"]["containers"][0].update(imagePullPolicy="Always"),
    "another manager adds a container": lambda each: each["spec"]["containers"].insert(0, {"name": "mesh"}),
}


@pytest.mark.parametrize("case", UNTOUCHED)
def test_what_others_own_is_no_drift(case):
    assert not must_write(live(UNTOUCHED[case]), WANTED)


CHANGED = {
    "somebody scales it": lambda each: each["spec"].update(replicas=3),
    "somebody removes a field": lambda each: each["spec"].pop("replicas"),
    "somebody changes an item of a list": lambda each: each["spec"]["containers"][0].update(image="j"),
    "somebody removes an item of a list": lambda each: each["spec"]["containers"].clear(),
    "somebody reorders a list that has an order": lambda each: each["spec"]["args"].reverse(),
    "somebody adds to a list that is replaced whole": lambda each: each["spec"]["args"].append("c"),
    "a list becomes something else": lambda each: each["spec"].update(args="a b"),
    "a map becomes something else": lambda each: each.update(spec="?"),
    "its hash is gone": lambda each: each["metadata"]["annotations"].clear(),
    "its hash is that of an earlier manifest": lambda each: each["metadata"]["annotations"].update(
        {ANNOTATION_APPLIED: "0" * 16}
    ),
}


@pytest.mark.parametrize("case", CHANGED)
def test_what_is_ours_and_differs_is_written(case):
    assert must_write(live(CHANGED[case]), WANTED)


def test_a_field_that_is_wanted_no_more_is_found_by_the_hash():
    before = stamped(manifest({"replicas": 2, "paused": True}))
    assert must_write(before, stamped(manifest({"replicas": 2})))
    assert is_complete(before, stamped(manifest({"replicas": 2})))


@pytest.mark.parametrize("case", CHANGED)
def test_an_object_is_complete_unless_something_of_ours_differs(case):
    assert is_complete(live(CHANGED[case]), WANTED) == case.startswith("its hash is")


def test_an_object_is_complete_when_an_annotation_is_desired_no_more_and_not_when_one_is_added():
    plain, record = (stamped(manifest({"replicas": 2}, annotations=step)) for step in ({}, {"step": "0"}))
    assert is_complete(record, plain)
    assert not is_complete(plain, record)
    assert not is_complete(None, record)


def test_stamping_keeps_the_annotations_and_the_argument():
    plain = manifest({}, annotations={"a": "b"})
    kept = deepcopy(plain)
    assert stamped(plain)["metadata"]["annotations"]["a"] == "b"
    assert plain == kept


def test_the_hash_does_not_depend_on_the_order_of_keys():
    assert stamped({"metadata": {}, "a": 1, "b": 2}) == stamped({"b": 2, "a": 1, "metadata": {}})


@pytest.mark.parametrize(
    ("wanted", "stands"),
    [
        ({"env": [{"name": "A", "value": ""}]}, {"env": [{"name": "A"}]}),
        ({"emptyDir": {}}, {}),
        ({"hostNetwork": False}, {}),
        (
            {"containers": [{"name": "a", "tty": False, "volumeMounts": [{"mountPath": "/", "readOnly": False}]}]},
            {"containers": [{"name": "a", "volumeMounts": [{"mountPath": "/"}]}]},
        ),
        ({"readinessProbe": {"initialDelaySeconds": 0}}, {"readinessProbe": {}}),
        ({"args": []}, {}),
        ({"nothing": None}, {}),
    ],
)
def test_what_the_server_drops_because_it_is_empty_is_no_drift(wanted, stands):
    assert not must_write({"spec": stands}, {"spec": wanted})


@pytest.mark.parametrize(
    "wanted",
    [
        {"automountServiceAccountToken": False},
        {"enableServiceLinks": False},
        {"replicas": 0},
        {"securityContext": {"allowPrivilegeEscalation": False}},
        {"securityContext": {"runAsUser": 0}},
        {"strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}},
    ],
)
def test_what_is_wanted_false_or_zero_and_was_removed_is_drift(wanted):
    def without(value):
        if isinstance(value, dict):
            return {key: without(each) for key, each in value.items() if each is not False and each != 0}
        return value

    assert must_write({"spec": without(wanted)}, {"spec": wanted})
    assert not must_write({"spec": wanted}, {"spec": wanted})


def test_every_field_that_somebody_removes_from_what_the_operator_makes_comes_back():
    todo = decide(world([revision(pods=[pod()])]), NOW)
    left = []
    for wanted in (*todo.objects, todo.route):
        for path in scalars(wanted):
            found = deepcopy(wanted)
            *above, last = path
            del reduce(getitem, above, found)[last]
            if not must_write(found, wanted):
                left.append((wanted["kind"], *path))
    assert left == []


def scalars(value, path=()):
    """The path of each field of an object whose value is a text, a number or a boolean."""
    for key, each in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(each, dict | list):
            yield from scalars(each, (*path, key))
        else:
            yield *path, key


def test_an_item_of_a_keyed_list_may_stand_anywhere():
    wanted = {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}
    stands = {"env": [{"name": "B", "value": "2"}, {"name": "C"}, {"name": "A", "value": "1"}]}
    assert not must_write(stands, wanted)


def test_two_ports_of_one_number_are_told_apart():
    wanted = {"ports": [{"containerPort": 53, "protocol": "UDP"}]}
    assert not must_write({"ports": [{"containerPort": 53, "protocol": "TCP"}, *wanted["ports"]]}, wanted)
    assert must_write({"ports": [{"containerPort": 53, "protocol": "TCP"}]}, wanted)


def test_owners_are_compared_one_by_one():
    wanted = {"metadata": {"ownerReferences": [{"uid": "1", "controller": True}]}}
    assert not must_write({"metadata": {"ownerReferences": [{"uid": "2"}, {"uid": "1", "controller": True}]}}, wanted)
    assert must_write({"metadata": {"ownerReferences": [{"uid": "2"}]}}, wanted)


def test_a_gate_that_somebody_adds_is_drift_since_gates_are_one_field():
    wanted = {"readinessGates": [{"conditionType": "a"}]}
    assert must_write({"readinessGates": [{"conditionType": "a"}, {"conditionType": "b"}]}, wanted)


@pytest.mark.parametrize(
    ("wanted", "stands"),
    [
        (1, "1"),
        ("1000m", "1"),
        ("0.5", "500m"),
        ("1024Mi", "1Gi"),
        ("1e3", "1k"),
        ("1.5Gi", "1536Mi"),
        ("100n", "100n"),
        ("+1", "1"),
    ],
)
def test_a_quantity_in_the_servers_spelling_is_no_drift(wanted, stands):
    assert not must_write({"resources": {"limits": {"cpu": stands}}}, {"resources": {"limits": {"cpu": wanted}}})


@pytest.mark.parametrize(
    ("wanted", "stands"), [("1", "2"), ("1Gi", "1G"), ("1", "1m"), ("x", "y"), ("1.2.3", "1"), (1, None)]
)
def test_another_quantity_is_drift(wanted, stands):
    assert must_write({"resources": {"requests": {"cpu": stands}}}, {"resources": {"requests": {"cpu": wanted}}})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1Ki", 1024),
        ("1.9", 1),
        (7, 7),
        ("9e18", 9 * 10**18),
        ("9e999999", LARGEST),
        ("9e999999999999999999999", None),
        ("9e-999999", 0),
        ("1Ei", 2**60),
        ("9" * 64, LARGEST),
        ("9" * 65, None),
        ("9" * 1_000_000, None),
        ("0." + "0" * 1_000_000 + "1", None),
        ("-9e999999", -LARGEST),
        ([1], None),
        ({"a": 1}, None),
        (None, None),
        (True, None),
    ],
)
def test_a_quantity_is_bounded_before_it_becomes_a_whole_number(text, expected):
    began = time.process_time()
    assert quantity(text) == expected
    must_write({"resources": {"limits": {"memory": "1"}}}, {"resources": {"limits": {"memory": text}}})
    assert time.process_time() - began < 0.5


def test_what_the_api_server_takes_for_the_largest_quantity_is_no_drift():
    stands, wanted = {"limits": {"memory": str(LARGEST)}}, {"limits": {"memory": "9e999"}}
    assert not must_write(stands, wanted)


def test_a_volumes_size_is_a_quantity_too():
    assert not must_write({"emptyDir": {"sizeLimit": "1Gi"}}, {"emptyDir": {"sizeLimit": "1024Mi"}})


def test_text_that_looks_like_a_quantity_is_text():
    assert must_write({"env": [{"name": "A", "value": "1"}]}, {"env": [{"name": "A", "value": "1000m"}]})
