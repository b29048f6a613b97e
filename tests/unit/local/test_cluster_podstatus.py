from datetime import UTC, datetime, timedelta

import pytest

from promptgroup_local.cluster.nodeagent.pods import status
from promptgroup_local.cluster.nodeagent.pods.status import Container

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
LATER = NOW + timedelta(seconds=5)


def container(name: str = "c", **fields: object) -> Container:
    made = Container(name, "web:1")
    for key, value in fields.items():
        setattr(made, key, value)
    return made


def running(*, ready: bool = True) -> Container:
    return container(id="local://1", pid=7, started_at=NOW, started=True, ready=ready)


def ended(code: int, *, finished: bool = True) -> Container:
    return container(id="local://1", started_at=NOW, finished_at=NOW, exit_code=code, finished=finished)


def build(
    main: list[Container], init: list[Container] | None = None, pod: dict | None = None, now: datetime = NOW
) -> dict:
    pod = pod or {"metadata": {"generation": 3}, "spec": {}}
    return status.build(pod, init or [], main, pod_ip="127.64.0.2", started=NOW, now=now)


def conditions(written: dict) -> dict[str, tuple]:
    return {each["type"]: (each["status"], each["reason"]) for each in written["conditions"]}


@pytest.mark.parametrize(
    ("init", "main", "phase"),
    [
        ([], [container()], "Pending"),
        ([], [running()], "Running"),
        ([], [running(), container()], "Pending"),
        ([], [running(ready=False)], "Running"),
        ([], [ended(1, finished=False)], "Running"),
        ([], [ended(0)], "Succeeded"),
        ([], [ended(0), ended(2)], "Failed"),
        ([], [ended(2), running()], "Running"),
        ([running()], [container()], "Pending"),
        ([ended(0)], [container()], "Pending"),
        ([ended(1)], [container()], "Failed"),
        ([ended(1, finished=False)], [container()], "Pending"),
    ],
)
def test_a_pods_phase_follows_its_containers(init: list[Container], main: list[Container], phase: str) -> None:
    assert status.phase(init, main) == phase


def test_a_running_pod_is_ready() -> None:
    written = build([running()])
    assert conditions(written) == {
        "PodReadyToStartContainers": ("True", None),
        "Initialized": ("True", None),
        "ContainersReady": ("True", None),
        "Ready": ("True", None),
    }
    assert (written["podIP"], written["hostIP"], written["observedGeneration"]) == ("127.64.0.2", "127.0.0.1", 3)


def test_one_container_that_is_not_ready_keeps_the_pod_from_it() -> None:
    found = conditions(build([running(), running(ready=False)]))
    assert found["ContainersReady"] == found["Ready"] == ("False", "ContainersNotReady")


def test_init_containers_that_have_not_succeeded_are_told() -> None:
    written = build([container()], [ended(0), running()])
    assert conditions(written)["Initialized"] == ("False", "ContainersNotInitialized")
    assert len(written["initContainerStatuses"]) == 2
    assert conditions(build([container()], [ended(0)]))["Initialized"][0] == "True"


GATED = {"readinessGates": [{"conditionType": "a/warm"}, {"conditionType": "a/known"}]}


@pytest.mark.parametrize(
    ("gates", "ready"),
    [
        ({}, ("False", "ReadinessGatesNotReady")),
        ({"a/warm": "True"}, ("False", "ReadinessGatesNotReady")),
        ({"a/warm": "True", "a/known": "False"}, ("False", "ReadinessGatesNotReady")),
        ({"a/warm": "True", "a/known": "True"}, ("True", None)),
    ],
)
def test_ready_waits_for_every_gate(gates: dict[str, str], ready: tuple) -> None:
    given = [{"type": kind, "status": status} for kind, status in gates.items()]
    pod = {"metadata": {}, "spec": GATED, "status": {"conditions": given}}
    written = build([running()], pod=pod)
    assert conditions(written)["Ready"] == ready
    assert conditions(written)["ContainersReady"][0] == "True"
    # the gates' own conditions are others' to write
    assert not gates.keys() & conditions(written).keys()


def test_a_conditions_time_is_that_of_its_turn() -> None:
    first = build([running()])
    pod = {"metadata": {"generation": 3}, "spec": {}, "status": first}
    assert build([running()], pod=pod, now=LATER) == first
    turned = build([running(ready=False)], pod=pod, now=LATER)
    times = {each["type"]: each["lastTransitionTime"] for each in turned["conditions"]}
    assert (times["Ready"], times["Initialized"]) == ("2026-11-21T12:00:05Z", "2026-11-21T12:00:00Z")


def test_container_states() -> None:
    waiting = container(waiting="ErrImagePull", message="no such image")
    first, second, third = build([waiting, running(), ended(3)])["containerStatuses"]
    assert first["state"] == {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}
    assert (first["lastState"], first["ready"], first["started"]) == ({}, False, False)
    assert second["state"] == {"running": {"startedAt": "2026-11-21T12:00:00Z"}}
    assert (second["containerID"], second["ready"], second["started"]) == ("local://1", True, True)
    assert (third["state"]["terminated"]["exitCode"], third["state"]["terminated"]["reason"]) == (3, "Error")


def test_a_life_from_start_to_restart() -> None:
    life = container()
    life.begin("local://1", NOW)
    life.pid = 7
    assert life.running
    life.end(137, LATER, detail="killed: a probe failed")
    life.waiting, life.message = "CrashLoopBackOff", "back-off 1s"
    (waits,) = build([life])["containerStatuses"]
    assert waits["state"]["waiting"] == {"reason": "CrashLoopBackOff", "message": "back-off 1s"}
    assert waits["lastState"]["terminated"] == {
        "exitCode": 137,
        "reason": "Error",
        "message": "killed: a probe failed",
        "containerID": "local://1",
        "startedAt": "2026-11-21T12:00:00Z",
        "finishedAt": "2026-11-21T12:00:05Z",
    }
    life.begin("local://2", LATER)
    life.pid = 8
    (again,) = build([life])["containerStatuses"]
    assert again["containerID"] == "local://2"
    assert again["lastState"] == waits["lastState"]


@pytest.mark.parametrize(
    ("life", "policy", "finished", "restarts"),
    [
        (running(), "Always", False, 1),
        (running(), "OnFailure", False, 1),
        (running(), "Never", True, 0),
        (ended(0), "OnFailure", True, 0),
        (ended(0), "Never", True, 0),
        (ended(1), "Never", True, 0),
        (container(), "Never", False, 0),
        (container(), "Always", False, 0),
    ],
)
def test_an_agent_takes_over_what_another_reported(life: Container, policy: str, finished: bool, restarts: int) -> None:
    (restarted,) = build([life])["containerStatuses"]
    resumed = container()
    resumed.resume(restarted, policy)
    assert (resumed.finished, resumed.restarts, resumed.id) == (finished, restarts, life.id)
    assert not resumed.running
    if life.running:
        assert (resumed.exit_code, resumed.reason) == (137, "ContainerStatusUnknown")
