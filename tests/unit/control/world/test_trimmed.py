import json
import tracemalloc

import pytest

from promptgroup_contract import names
from promptgroup_contract.table import PromptRef
from promptgroup_operator.observe.decode import pod_of
from promptgroup_operator.plan import desired, diff
from promptgroup_operator.world.trimmed import (
    DIGEST,
    ITEMS,
    LAST_APPLIED,
    LONGEST,
    LONGEST_RESOURCE,
    SHORTENED,
    TAIL,
    TEMPLATE,
    WHOLE_CHARACTERS,
    WHOLE_VALUES,
    WRITTEN,
    digest,
    trimmed,
    whole,
    with_template,
)
from support.builders import CREATED, FINGERPRINT, group

KINDS = ("PromptGroup", "Deployment", "DaemonSet", "PodDisruptionBudget", "Pod")


def test_an_items_kind_is_filled_in_and_what_nobody_reads_is_left_out():
    annotations = {"a": "b", "promptgroup.dev/replaces": "c", LAST_APPLIED: '{"spec": {"prompt": {"system": "text"}}}'}
    found = {"metadata": {"name": "a", "managedFields": [{}], "annotations": annotations}, "spec": {"model": "m"}}
    in_store = trimmed(found, "PromptGroup")
    assert in_store.pop(WRITTEN)
    metadata = {"name": "a", "annotations": {"promptgroup.dev/replaces": "c"}}
    assert in_store == {"apiVersion": "", "kind": "PromptGroup", "metadata": metadata, "spec": {"model": "m"}}


def test_what_users_write_of_a_group_has_a_digest_without_kubectls_copy():
    def written(status="", **metadata):
        return trimmed({"metadata": {"uid": "u", **metadata}, "spec": {}, "status": {"a": status}}, "PromptGroup")[
            WRITTEN
        ]

    assert written(generation=1) == written(generation=1, status="b", resourceVersion="2")
    changed = [{"generation": 1}, {"generation": 2}, {"labels": {"poke": "1"}}, {"annotations": {"poke": "1"}}]
    assert len({written(**each) for each in changed}) == len(changed)


def test_of_a_long_text_of_a_pod_the_beginning_is_kept():
    state = {"waiting": {"reason": "ImagePullBackOff", "message": "m" * (LONGEST + 1)}}
    in_store = trimmed(
        {"metadata": {"name": "p"}, "status": {"containerStatuses": [{"name": "c", "state": state}]}}, "Pod"
    )
    (only,) = in_store["status"]["containerStatuses"]
    assert only["state"]["waiting"]["message"] == "m" * LONGEST


def test_a_bookmark_is_no_error():
    for kind in KINDS:
        for rest in ({}, {"spec": None, "status": None} if kind != "PromptGroup" else {"spec": {}}):
            assert trimmed({"metadata": {"resourceVersion": "7"}} | rest, kind)["metadata"] == {"resourceVersion": "7"}


def test_of_a_pod_its_state_is_kept():
    ports = [{"name": "http", "containerPort": 8000}, {"name": "other", "containerPort": 1}]
    engine = {"name": "engine", "image": "vllm", "env": [{"name": "A"}], "ports": ports}
    running = {"name": "engine", "containerID": "c", "image": "vllm", "state": {"running": {"startedAt": CREATED}}}
    waiting = {
        "name": "side",
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "m"}},
        "lastState": {},
    }
    ended = {"exitCode": 1, "reason": "Error", "startedAt": CREATED, "finishedAt": CREATED}
    crashed = {
        "name": "proxy",
        "ready": False,
        "restartCount": 3,
        "state": {"running": {}},
        "lastState": {"terminated": {**ended, "containerID": "c", "message": "x" * 999 + "why"}},
    }
    true = {"status": "True", "lastTransitionTime": CREATED}
    conditions = [{"type": kind, **true} for kind in ("ContainersReady", "PodReadyToStartContainers", "Ready")]
    raw = {
        "metadata": {"name": "p", "uid": "u", "creationTimestamp": CREATED, "finalizers": ["x"]},
        "spec": {"containers": [{"name": "side"}, engine], "volumes": [{}] * 9},
        "status": {
            "podIP": "10.0.0.1",
            "phase": "Running",
            "hostIP": "10.0.0.9",
            "conditions": [*conditions, {"type": "Initialized", "status": "True"}],
            "containerStatuses": [running, waiting, crashed, {"name": "fine", "state": {"running": {}}}],
        },
    }
    in_store = trimmed(raw, "Pod")
    assert in_store == {
        "apiVersion": "",
        "kind": "Pod",
        "metadata": {"name": "p", "uid": "u", "creationTimestamp": CREATED},
        "spec": {"containers": [{"name": "engine", "ports": ports[:1]}]},
        "status": {
            "podIP": "10.0.0.1",
            "phase": "Running",
            "conditions": conditions,
            "initContainerStatuses": [],
            "containerStatuses": [
                {"name": "engine", "containerID": "c", "state": {"running": {"startedAt": CREATED}}},
                {"name": "side", "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "m"}}},
                crashed | {"lastState": {"terminated": {**ended, "message": "x" * (TAIL - 3) + "why"}}},
            ],
        },
    }
    assert pod_of(in_store, 1) == pod_of(raw, 1)


def test_a_long_spec_is_kept_without_its_prompt_and_its_template():
    engine = {"type": "VLLM", "template": {"metadata": {}}}
    sizing = {"maxReplicas": 3, "targets": {"ttft": "1s"}}
    named = {"model": "m", "modelAliases": ["gpt"]}
    spec = {**named, "prompt": {"system": "a" * WHOLE_CHARACTERS}, "engine": engine, "sizing": sizing}
    found = {"metadata": {"namespace": "chat", "name": "support"}, "spec": spec, "status": {"replicas": 1}}
    in_store = trimmed(found, "PromptGroup")
    assert in_store["spec"] == {**named, "engine": {"type": "VLLM"}, "sizing": {"maxReplicas": 3}}
    assert (in_store[SHORTENED], in_store["status"]) == (True, {"replicas": 1})
    many = {**engine, "template": {"x": [[]] * WHOLE_VALUES}}
    assert trimmed({**found, "spec": spec | {"prompt": {}, "engine": many}}, "PromptGroup")[SHORTENED]
    short = trimmed({**found, "spec": spec | {"prompt": {"system": "a"}}}, "PromptGroup")
    assert (short["spec"]["prompt"], SHORTENED in short) == ({"system": "a"}, False)


def test_of_labels_and_annotations_only_the_operators_own_are_kept():
    own = {"promptgroup.dev/engine": "{}"}
    notes = {"team.example/notes": "a" * 200_000, "promptgroup.dev/notes": "a" * 200_000}
    for kind in KINDS:
        found = trimmed(
            {"metadata": {"name": "a", "labels": notes | own, "annotations": notes | own}, "spec": {}}, kind
        )
        assert found["metadata"] == {"name": "a", "labels": own, "annotations": own}
        many = {f"promptgroup.dev/{number}": "a" for number in range(1000)}
        assert trimmed({"metadata": {"annotations": many}, "spec": {}}, kind)["metadata"] == {"annotations": {}}


def deployment(notes=""):
    """A Deployment as the operator applies it and the API server stores it, with notes of the user in its template."""
    template = {"spec": {"containers": [{"name": "engine", "env": [{"name": "NOTES", "value": notes}]}]}}
    of = group(engine={"image": "vllm", "template": template})
    wanted = desired.deployment(of, FINGERPRINT, 2, PromptRef("ConfigMap", "p"), records={})
    live = json.loads(json.dumps(wanted))
    live["metadata"] |= {"uid": "d", "resourceVersion": "1", "generation": 1, "managedFields": [{}] * 9}
    live["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = "1"
    live["spec"]["template"]["spec"]["restartPolicy"] = "Always"
    live["status"] = {"observedGeneration": 1, "availableReplicas": 2, "replicas": 2, "conditions": []}
    return live, wanted


@pytest.mark.parametrize("notes", ["", "x" * WHOLE_CHARACTERS])
def test_a_kept_deployment_and_its_template_are_what_decisions_read(notes):
    live, wanted = deployment(notes)
    in_store = trimmed(live, "Deployment")
    template = live["spec"]["template"]
    assert (SHORTENED in in_store, TEMPLATE in in_store) == (bool(notes), not notes)
    assert in_store[DIGEST] == digest(template)
    again = with_template(in_store, template if notes else None)
    assert not diff.must_write(again, wanted)
    assert desired.standing_template(again) == desired.standing_template(live)
    live["spec"]["template"]["spec"]["containers"][0]["image"] = "another"
    other = trimmed(live, "Deployment")
    assert other[DIGEST] != in_store[DIGEST]
    assert diff.must_write(with_template(other, template if notes else None), wanted)


def test_an_item_of_a_list_is_no_change_though_it_lacks_kind_and_version():
    live, wanted = deployment()
    del live["apiVersion"], live["kind"]
    assert not diff.must_write(with_template(trimmed(live, "Deployment")), wanted)
    wanted = desired.budget(group(), FINGERPRINT)
    item = {key: value for key, value in wanted.items() if key not in ("apiVersion", "kind")}
    assert not diff.must_write(trimmed(item, "PodDisruptionBudget"), wanted)


def test_what_is_long_and_not_the_operators_own_is_not_taken_for_it():
    live, wanted = deployment()
    live["spec"]["selector"]["matchLabels"] |= {f"{number}": "a" * 60 for number in range(100)}
    again = with_template(trimmed(live, "Deployment"))
    assert again["spec"]["selector"] is None
    assert diff.must_write(again, wanted)
    budget = {"metadata": {}, "spec": {"maxUnavailable": 1, "selector": live["spec"]["selector"]}}
    assert trimmed(budget, "PodDisruptionBudget")["spec"] == {"maxUnavailable": 1, "selector": None}


def test_of_an_object_that_is_read_by_name_all_is_kept_but_what_nobody_reads():
    found = {
        "metadata": {"name": "a", "managedFields": [{}], "annotations": {"a": "b", LAST_APPLIED: "{}"}},
        "data": {},
    }
    assert whole(found, "Secret") == {
        "kind": "Secret",
        "metadata": {"name": "a", "annotations": {"a": "b"}},
        "data": {},
    }


# --- memory ------------------------------------------------------------------------------------------------


def memory(found, kind, number):
    """Bytes that each of such objects takes in memory, read from an answer of the API server."""
    texts = [json.dumps(found)] * number
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    objects = [trimmed(json.loads(each), kind) for each in texts]
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return grown / len(objects)


def test_an_ordinary_deployment_takes_10_kib():
    assert memory(deployment()[0], "Deployment", 50) < 10 * 1024


def grown_metadata():
    owners = [{"kind": "ReplicaSet", "uid": "u" * 36, "name": "n" * 60}]
    notes = {f"team.example/{number}": "a" * 60 for number in range(2_000)}
    labels = {names.LABEL_GROUP: "support"}
    return {
        "name": "a" * 63,
        "labels": notes | labels,
        "annotations": notes | labels,
        "ownerReferences": owners * 1_000,
    }


LONG = [{"name": f"V{number}", "value": "a" * 90, "ports": [{"containerPort": number}]} for number in range(2_000)]
STATES = [{**each, "state": {"waiting": {"reason": "r", "message": "m" * 90}}, "lastState": LONG[0]} for each in LONG]
CONDITIONS = [{"type": "ContainersReady", "status": "True", "message": "m" * 90}] * 2_000
HOSTILE = {
    "PromptGroup": {
        "spec": {"model": "m", "prompt": {"messages": LONG}, "engine": {"template": {"x": [[]] * 100_000}}}
    },
    "Deployment": {
        "spec": {"selector": {"matchExpressions": LONG}, "template": {"spec": {"containers": LONG}}},
        "status": {"conditions": CONDITIONS},
    },
    "PodDisruptionBudget": {"spec": {"selector": {"matchExpressions": LONG}}, "status": {"disruptedPods": {"x": LONG}}},
    "Pod": {
        "spec": {"containers": LONG, "volumes": LONG},
        "status": {"conditions": CONDITIONS, "containerStatuses": STATES, "initContainerStatuses": STATES},
    },
}


@pytest.mark.heavy
@pytest.mark.parametrize("kind", HOSTILE)
def test_an_object_of_any_size_takes_at_most_a_bounded_amount(kind):
    found = {"metadata": grown_metadata(), **HOSTILE[kind]}
    assert len(json.dumps(found)) > 500_000
    assert memory(found, kind, 3) < 128 * 1024


def test_of_a_long_group_the_numbers_of_its_gpus_are_kept_and_these_are_bounded():
    limits = {f"{number}.example.com/gpu": "1" for number in range(ITEMS + 1)}
    limits |= {"a" * LONGEST_RESOURCE + "/gpu": 1, "memory": "1Gi"}

    def gpus(limits):
        spec = {"model": "m", "prompt": {"system": "a" * WHOLE_CHARACTERS}, "engine": {"resources": {"limits": limits}}}
        in_store = trimmed({"metadata": {"name": "a"}, "spec": spec}, "PromptGroup")
        return in_store["spec"]["engine"].get("resources", {"limits": {}})["limits"]

    assert gpus({"nvidia.com/gpu": 2, "memory": "1Gi"}) == {"nvidia.com/gpu": 2}
    assert gpus({"nvidia.com/gpu": "9" * 5000}) == {}
    assert gpus(None) == {}
    assert len(gpus(limits)) == ITEMS
