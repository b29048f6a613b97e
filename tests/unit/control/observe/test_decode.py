"""Objects as the API server returns them, read into what decisions look at."""

import pytest

from promptgroup_contract import names
from promptgroup_contract.table import PromptRef
from promptgroup_operator.observe.decode import (
    MAX_REPLICAS,
    MAX_SLOT,
    failure_of,
    fingerprint_of,
    group_of,
    pod_of,
    prompt_ref,
    revision_of,
    router_of,
)
from promptgroup_operator.world.engine_facts import UNKNOWN, Measured
from promptgroup_operator.world.pod_start import PodStart
from promptgroup_operator.world.snapshot import GroupObject, Key

SPEC = {"model": "m", "prompt": {"system": "x"}, "engine": {"image": "i", "port": 8001}}
METADATA = {"uid": "u", "generation": 3, "creationTimestamp": "2026-01-01T00:00:00Z"}
FULL = "promptgroup.dev/fingerprint"


def a_group() -> GroupObject:
    return group_of(Key("chat", "support"), {"metadata": METADATA, "spec": SPEC})


def a_pod(metadata=None, **status):
    base = {"name": "p", "uid": "p1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return pod_of({"metadata": base | (metadata or {}), "status": status}, a_group().spec.engine.port)


@pytest.mark.parametrize(("told", "kind"), [("Secret", "Secret"), ("Lease", "ConfigMap"), (None, "ConfigMap")])
def test_a_prompt_is_in_a_secret_or_a_configmap_whatever_an_annotation_says(told, kind):
    annotations = {names.ANNOTATION_PROMPT: told} if told is not None else {}
    found = prompt_ref({"metadata": {"name": "support-1", "annotations": annotations}})
    assert found == PromptRef(kind, "support-1")


def test_a_group_without_status_has_an_empty_one():
    group = a_group()
    assert (group.uid, group.generation, group.spec.model, group.status) == ("u", 3, "m", {})


def test_a_group_says_by_an_annotation_which_one_it_replaces():
    assert a_group().replaces == ""
    renamed = {**METADATA, "annotations": {"promptgroup.dev/replaces": "before"}}
    assert group_of(Key("chat", "after"), {"metadata": renamed, "spec": SPEC}).replaces == "before"


def router(**status):
    ports = [{"name": "http", "containerPort": 8080}, {"name": "admin", "containerPort": 9191}]
    running = [{"name": "router", "containerID": "containerd://r", "state": {"running": {}}}]
    return {
        "spec": {"containers": [{"ports": ports}]},
        "status": {"podIP": "10.0.0.9", "containerStatuses": running} | status,
    }


def test_a_router_is_read_at_its_admin_port():
    assert router_of(router()) == ("containerd://r", "10.0.0.9:9191")
    assert router_of(router(podIP="fd00::9")) == ("containerd://r", "[fd00::9]:9191")
    assert router_of(router() | {"spec": {"containers": [{}]}}) == ("containerd://r", "10.0.0.9:9090")


@pytest.mark.parametrize("status", [{"podIP": ""}, {"containerStatuses": []}, {"containerStatuses": [{"state": {}}]}])
def test_a_router_that_does_not_run_is_not_read(status):
    assert router_of(router(**status)) is None


def test_a_pod_of_an_earlier_template_is_reached_at_its_own_port():
    raw = {
        "metadata": {"name": "p", "uid": "p1", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"containers": [{"name": "engine", "ports": [{"name": "http", "containerPort": 7000}]}]},
        "status": {"podIP": "10.0.0.1"},
    }
    assert pod_of(raw, a_group().spec.engine.port).address == "10.0.0.1:7000"


def test_a_pod_that_runs_is_read_whole():
    pod = a_pod(
        {
            "labels": {"promptgroup.dev/slot": "2"},
            "annotations": {
                FULL: "f",
                "promptgroup.dev/warmed-container": "c://1",
                "promptgroup.dev/engine": '{"kvTokens":400000,"prefixTokens":96}',
                "promptgroup.dev/engine-settings": "0123456789abcdef",
            },
        },
        podIP="10.1.2.3",
        conditions=[
            {"type": "ContainersReady", "status": "True", "lastTransitionTime": "2026-01-01T00:00:09Z"},
            {"type": "promptgroup.dev/prefix-warm", "status": "True", "reason": "PrefixCached"},
        ],
        containerStatuses=[{"name": "engine", "containerID": "c://1", "state": {"running": {}}}],
    )
    assert (pod.address, pod.slot, pod.fingerprint, pod.container_id) == ("10.1.2.3:8001", 2, "f", "c://1")
    assert (pod.measured, pod.settings) == (Measured(400_000, 0, 96), "0123456789abcdef")
    assert pod.is_warm


def test_a_pod_of_which_nothing_was_measured():
    assert (a_pod().measured, a_pod().settings) == (UNKNOWN, "")


def test_an_ipv6_address_is_bracketed():
    assert a_pod(podIP="fd00::1").address == "[fd00::1]:8001"


def test_a_container_that_does_not_run_has_no_id():
    waiting = {"name": "engine", "containerID": "c://1", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    pod = a_pod(containerStatuses=[waiting])
    assert pod.container_id == ""
    assert pod.trouble.startswith("container engine: CrashLoopBackOff")


@pytest.mark.parametrize("slot", ["", "x", "-1", "²"])
def test_a_slot_that_is_no_number_is_none(slot):
    assert a_pod({"labels": {"promptgroup.dev/slot": slot}}).slot is None


@pytest.mark.parametrize("change", [{"metadata": {"deletionTimestamp": "now"}}, {"phase": "Failed"}])
def test_a_pod_that_goes_or_has_ended_is_deleting(change):
    assert a_pod(change.get("metadata"), **({"phase": change["phase"]} if "phase" in change else {})).deleting


@pytest.mark.parametrize(("status", "leaves"), [("True", True), ("False", False)])
def test_a_pod_that_is_about_to_be_disrupted_leaves_before_it_is_deleted(status, leaves):
    """Kubernetes sets the condition back where a pod was to go and did not."""
    target = {"type": "DisruptionTarget", "status": status, "reason": "TerminationByKubelet"}
    assert a_pod(phase="Running", conditions=[target]).deleting is leaves


def test_a_pod_has_the_times_of_its_start():
    def true(kind, second):
        return {"type": kind, "status": "True", "lastTransitionTime": f"2026-01-01T00:00:{second:02}Z"}

    engine = {"name": "engine", "containerID": "c://1", "restartCount": 2}
    running = engine | {"state": {"running": {"startedAt": "2026-01-01T00:00:40Z"}}}
    conditions = [true("PodScheduled", 1), true("PodReadyToStartContainers", 4)]
    start = a_pod(conditions=conditions, containerStatuses=[running]).start
    assert [start.scheduled.second, start.sandboxed.second, start.running.second, start.restarts] == [1, 4, 40, 2]
    waits = a_pod(conditions=[conditions[0] | {"status": "False"}], containerStatuses=[engine]).start
    assert waits == PodStart(restarts=2)


def test_a_pod_that_cannot_be_scheduled_says_why():
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no GPU"}
    assert a_pod(conditions=[unschedulable]).trouble == "Unschedulable: no GPU"


def crashed(
    state, *, restarts=3, ran="00:02:00", exit_code=1, reason="Error", message="boot\nValueError: no KV blocks\n"
):
    ended = {"exitCode": exit_code, "reason": reason, "message": message}
    times = {"startedAt": "2026-01-01T00:00:00Z", "finishedAt": f"2026-01-01T{ran}Z"}
    last = {"lastState": {"terminated": {**ended, **times}}}
    return {"name": "engine", "containerID": "c://1", "restartCount": restarts, "state": state, **last}


WAITS = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting failed container"}}
RUNS = {"running": {"startedAt": "2026-01-01T00:05:00Z"}}


def test_a_crash_says_its_exit_code_its_last_line_and_where_there_is_more():
    trouble = a_pod({"namespace": "chat"}, containerStatuses=[crashed(WAITS)]).trouble
    assert trouble == (
        "pod p: container engine: CrashLoopBackOff: exit code 1; its last line: ValueError: no KV blocks; see "
        "`kubectl logs p -n chat -c engine --previous`"
    )
    killed = crashed(WAITS, exit_code=137, reason="OOMKilled", message="")
    assert "exit code 137 (OOMKilled); see" in a_pod({"namespace": "chat"}, containerStatuses=[killed]).trouble


@pytest.mark.parametrize("state", [RUNS, {}, {"waiting": {"reason": "ContainerCreating"}}])
def test_a_loop_of_crashes_is_told_in_the_same_words_also_between_two_of_them(state):
    told = [a_pod({"namespace": "chat"}, containerStatuses=[crashed(each)]).trouble for each in (WAITS, state)]
    assert told[0] == told[1] != ""


NO_LOOP = {
    "it is ready": {**crashed(RUNS), "ready": True},
    "the first time": crashed(RUNS, restarts=1),
    "it served for hours": crashed(RUNS, ran="09:00:00"),
}


@pytest.mark.parametrize("case", NO_LOOP)
def test_an_engine_that_is_started_again_now_and_then_crashes_in_no_loop(case):
    assert a_pod(containerStatuses=[NO_LOOP[case]]).trouble == ""


def test_a_last_line_is_bounded_and_printable():
    trouble = a_pod(containerStatuses=[crashed(WAITS, message="\x1b[31m" + "x" * 5000)]).trouble
    assert trouble.isprintable()
    assert len(trouble) < 400


def deployment(own=None, template=None, conditions=(), name="support-a"):
    return {
        "metadata": {"name": name, "annotations": own or {}},
        "spec": {"template": {"metadata": {"annotations": template or {}}}},
        "status": {"conditions": list(conditions)},
    }


def test_a_fingerprint_removed_from_a_deployment_is_found_in_its_template():
    assert fingerprint_of(deployment({FULL: "a"})) == "a"
    assert fingerprint_of(deployment({}, {FULL: "a"})) == "a"
    assert fingerprint_of(deployment()) == ""


def test_a_fingerprint_that_does_not_fit_the_deployments_name_was_edited():
    assert fingerprint_of(deployment({FULL: "b"}, {FULL: "a"})) == "a"
    assert fingerprint_of(deployment({FULL: ""}, {FULL: "a"})) == "a"
    assert fingerprint_of(deployment({FULL: "b"}, {FULL: "b"})) == ""


def test_a_deployment_that_cannot_create_pods_says_why():
    quota = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota"}
    assert failure_of(deployment(conditions=[quota])) == "FailedCreate: exceeded quota"
    assert failure_of(deployment(conditions=[{**quota, "status": "False"}])) == ""


@pytest.mark.parametrize(
    ("label", "slot"), [("7", 7), (str(MAX_SLOT), MAX_SLOT), ("9" * 63, None), ("x", None), ("", None)]
)
def test_a_slot_is_a_number_that_a_ring_may_have(label, slot):
    assert a_pod({"labels": {"promptgroup.dev/slot": label}}).slot == slot


@pytest.mark.parametrize(("written", "replicas"), [(3, 3), (2**31 - 1, MAX_REPLICAS)])
def test_a_deployment_that_somebody_scaled_to_two_billion_makes_no_ring_of_them(written, replicas):
    metadata = {"name": "support-1", "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": {FULL: "f"}}
    deployment = {"metadata": metadata, "spec": {"replicas": written, "template": {}}}
    assert revision_of(deployment, None, [], {}).replicas == replicas
