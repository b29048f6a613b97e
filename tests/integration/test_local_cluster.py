"""What a pod may expect of a local node, on a real control plane: as of a kubelet, where nothing else is said."""

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from promptgroup_local.ports import free_ports
from support.controlplane import (
    PORT,
    container,
    deployment,
    main_status,
    pod,
    processes_of,
    shell,
    wait_gone,
    wait_phase,
    wait_pod,
    web,
)
from support.evictions import evict
from support.redisserver import answers

pytestmark = pytest.mark.integration


def fetch(found: dict) -> int:
    with urllib.request.urlopen(f"http://{found['status']['podIP']}:{PORT}/", timeout=5) as answer:
        return answer.status


def logged(cluster: LocalCluster, kube: Kubectl, name: str, text: str) -> str:
    """Wait until a pod has written a text; returns all it wrote."""

    def written() -> str | None:
        found = cluster.logs(kube.namespace, name)
        return found if text in found else None

    return wait_for(written, f"{name} to write {text!r}", lambda: cluster.logs(kube.namespace, name))


def test_a_deployment_becomes_available_and_its_pods_share_a_port(kube: Kubectl) -> None:
    kube.apply(deployment("web", 3, web()))
    kube.rolled_out("web")
    pods = kube.list("pods", "app=web")
    assert len({found["status"]["podIP"] for found in pods}) == 3
    assert [fetch(found) for found in pods] == [200] * 3


def test_a_pod_starts_soon_after_its_creation(kube: Kubectl) -> None:
    alone = _seconds_of_a_server()
    began = time.monotonic()
    kube.apply(pod("quick", web()))
    wait_pod(kube, "quick", Ready="True")
    # 0.3 s on a free machine, of which the server takes a third
    assert time.monotonic() - began < 10 + 10 * alone


def _seconds_of_a_server() -> float:
    """Return the seconds until the server of `web` answers where no cluster starts it."""
    (port,) = free_ports(1)
    began = time.monotonic()
    command = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            wait_for(lambda: answers(port) or None, "the server")
        finally:
            server.kill()
    return time.monotonic() - began


def test_a_readiness_gate_holds_ready_back_until_its_condition_is_true(kube: Kubectl) -> None:
    kube.apply(pod("gated", web(), readinessGates=[{"conditionType": "example.com/warm"}]))
    found = wait_pod(kube, "gated", ContainersReady="True")
    ready = next(each for each in found["status"]["conditions"] if each["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "ReadinessGatesNotReady")
    gate = {"status": {"conditions": [{"type": "example.com/warm", "status": "True", "reason": "Proven"}]}}
    kube.run("patch", "pod", "gated", "--subresource=status", "-p", json.dumps(gate))
    found = wait_pod(kube, "gated", Ready="True")
    gate["status"]["conditions"][0]["status"] = "False"
    kube.run("patch", "pod", "gated", "--subresource=status", "-p", json.dumps(gate))
    found = wait_pod(kube, "gated", Ready="False", ContainersReady="True")
    kept = next(each for each in found["status"]["conditions"] if each["type"] == "example.com/warm")
    assert kept["reason"] == "Proven"


def test_nothing_is_written_about_a_pod_at_rest(cluster: LocalCluster, kube: Kubectl) -> None:
    kube.apply(pod("rest", web()))
    found = wait_pod(kube, "rest", Ready="True")
    kube.apply(pod("other", web()))
    wait_pod(kube, "other", Ready="True")
    assert kube.get("pod", "rest")["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]


def test_a_crashed_container_starts_again_under_another_id(cluster: LocalCluster, kube: Kubectl) -> None:
    kube.apply(pod("crash", web()))
    before = main_status(wait_pod(kube, "crash", Ready="True"))
    cluster.kill_pod(kube.namespace, "crash", "main")

    def again() -> dict | None:
        found = kube.get("pod", "crash")
        return found if main_status(found)["restartCount"] == 1 and main_status(found)["ready"] else None

    after = main_status(wait_for(again, "the restart", lambda: kube.get("pod", "crash")))
    assert after["containerID"] != before["containerID"]
    ended = after["lastState"]["terminated"]
    assert (ended["containerID"], ended["exitCode"], ended["reason"]) == (before["containerID"], 137, "Error")


def test_a_container_that_keeps_failing_waits_in_back_off(kube: Kubectl) -> None:
    kube.apply(pod("fails", shell("exit 3")))

    def waiting() -> dict | None:
        found = kube.get("pod", "fails")
        statuses = found["status"].get("containerStatuses", [])
        return statuses[0] if statuses and "waiting" in statuses[0]["state"] and statuses[0]["lastState"] else None

    status = wait_for(waiting, "the back-off", lambda: kube.get("pod", "fails"))
    assert status["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert status["lastState"]["terminated"]["exitCode"] == 3


def test_restart_policies_end_a_pod(kube: Kubectl) -> None:
    kube.apply(
        pod("good", shell("exit 0"), restartPolicy="OnFailure"), pod("bad", shell("exit 1"), restartPolicy="Never")
    )
    wait_phase(kube, "good", "Succeeded")
    failed = wait_phase(kube, "bad", "Failed")
    assert main_status(failed)["state"]["terminated"]["exitCode"] == 1
    kube.delete("pod", "good")
    kube.delete("pod", "bad")


def test_init_containers_run_one_by_one_before_the_others(cluster: LocalCluster, kube: Kubectl) -> None:
    mount = [{"name": "shared", "mountPath": "/shared"}]
    first, second = (
        {**shell(script, volumeMounts=mount), "name": name}
        for name, script in (("first", "sleep 0.2; echo one > /shared/a"), ("second", "cat /shared/a > /shared/b"))
    )
    main = shell("cat /shared/b; exec sleep 60", volumeMounts=mount)
    kube.apply(pod("init", main, initContainers=[first, second], volumes=[{"name": "shared", "emptyDir": {}}]))
    found = wait_pod(kube, "init", Ready="True", Initialized="True")
    assert [each["state"]["terminated"]["reason"] for each in found["status"]["initContainerStatuses"]] == [
        "Completed",
        "Completed",
    ]
    logged(cluster, kube, "init", "one")


def test_deletion_runs_the_hook_then_terminates_and_honours_the_grace_period(
    cluster: LocalCluster, kube: Kubectl
) -> None:
    hook = {"preStop": {"exec": {"command": ["/bin/sh", "-c", "echo hook; sleep 0.3"]}}}
    polite = "trap 'echo term; sleep 0.3; echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    kube.apply(pod("polite", shell(polite, lifecycle=hook), terminationGracePeriodSeconds=60))
    logged(cluster, kube, "polite", "up")
    kube.delete("pod", "polite")
    said = [word for word in cluster.logs(kube.namespace, "polite").split() if word != "Terminated"]  # of the sleep
    assert said == ["up", "hook", "term", "bye"]

    stubborn = shell("trap 'echo term' TERM; echo up; while :; do sleep 0.05; done")
    kube.apply(pod("stubborn", stubborn, terminationGracePeriodSeconds=2))
    logged(cluster, kube, "stubborn", "up")
    began = time.monotonic()
    kube.delete("pod", "stubborn")
    assert 1.9 < time.monotonic() - began < 25  # without a period of its own, a pod has 30 s
    assert "term" in cluster.logs(kube.namespace, "stubborn")


def test_a_second_deletion_shortens_the_grace_period(cluster: LocalCluster, kube: Kubectl) -> None:
    kube.apply(
        pod("slow", shell("trap '' TERM; echo up; while :; do sleep 0.05; done"), terminationGracePeriodSeconds=60)
    )
    logged(cluster, kube, "slow", "up")
    kube.delete("pod", "slow", wait=False)
    began = time.monotonic()
    kube.delete("pod", "slow", "--grace-period=1")
    assert time.monotonic() - began < 50
    mine = [line for line in processes_of(cluster.folder / "local-0/pods") if "trap '' TERM" in line]
    assert mine == []


def test_configuration_reaches_a_container_by_environment_and_by_files(cluster: LocalCluster, kube: Kubectl) -> None:
    kube.run("create", "configmap", "settings", "--from-literal=colour=blue", "--from-literal=size=7")
    kube.run("create", "secret", "generic", "keys", "--from-literal=token=hush")
    fields = {
        "NAME": "metadata.name",
        "SPACE": "metadata.namespace",
        "IP": "status.podIP",
        "APP": "metadata.labels['app']",
    }
    env = [
        {"name": "COLOUR", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "colour"}}},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "token"}}},
        {"name": "BOTH", "value": "$(COLOUR)-$(NAME)-$$(X)"},
        {"name": "FILE", "value": "/etc/settings/colour"},
        *({"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in fields.items()),
    ]
    env = [*env[4:], *env[:4]]
    script = (
        'echo "$COLOUR|$TOKEN|$BOTH|$S_size|$NAME|$SPACE|$IP|$APP|${HOST_SECRET-none}"; '
        'cat "$FILE" /etc/settings/size /etc/keys/token /etc/pod/labels; echo; echo done; exec sleep 60'
    )
    main = shell(
        script,
        env=env,
        envFrom=[{"configMapRef": {"name": "settings"}, "prefix": "S_"}],
        volumeMounts=[
            {"name": "settings", "mountPath": "/etc/settings"},
            {"name": "keys", "mountPath": "/etc/keys"},
            {"name": "pod", "mountPath": "/etc/pod"},
        ],
    )
    labels = {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}
    volumes = [
        {"name": "settings", "configMap": {"name": "settings"}},
        {"name": "keys", "secret": {"secretName": "keys"}},
        {"name": "pod", "downwardAPI": labels},
    ]
    kube.apply(pod("config", main, volumes=volumes))
    text = logged(cluster, kube, "config", "done")
    ip = kube.get("pod", "config")["status"]["podIP"]
    first, second = text.splitlines()[:2]
    assert first == f"blue|hush|blue-config-$(X)|7|config|{kube.namespace}|{ip}|config|none"
    assert second == 'blue7hushapp="config"'


def test_a_pod_waits_for_what_it_refers_to_and_says_for_what(kube: Kubectl) -> None:
    main = web(env=[{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "later", "key": "a"}}}])
    kube.apply(pod("waits", main))

    def waiting() -> dict | None:
        statuses = kube.get("pod", "waits")["status"].get("containerStatuses", [])
        state = statuses[0]["state"].get("waiting", {}) if statuses else {}
        return state if state.get("message") else None

    state = wait_for(waiting, "the reason", lambda: kube.get("pod", "waits"))
    assert state["reason"] == "CreateContainerConfigError"
    assert 'ConfigMap "later"' in state["message"]
    kube.run("create", "configmap", "later", "--from-literal=a=1")
    wait_pod(kube, "waits", Ready="True")


def test_an_unknown_image_is_refused_with_the_names_that_there_are(kube: Kubectl) -> None:
    kube.apply(pod("unknown", container("nginx:1.29")))

    def waiting() -> dict | None:
        statuses = kube.get("pod", "unknown")["status"].get("containerStatuses", [])
        state = statuses[0]["state"].get("waiting", {}) if statuses else {}
        return state if state.get("reason") == "ImagePullBackOff" else None

    state = wait_for(waiting, "the reason", lambda: kube.get("pod", "unknown"))
    assert '"nginx"' in state["message"]
    assert "promptgroup.invalid/router" in state["message"]
    kube.delete("pod", "unknown", "--timeout=90s")


READ = """
import json, ssl, sys, urllib.request
folder = sys.argv[1]
def status(path):
    request = urllib.request.Request(f"https://{sys.argv[2]}{path}")
    request.add_header("Authorization", "Bearer " + open(folder + "/token").read())
    try:
        context = ssl.create_default_context(cafile=folder + "/ca.crt")
        return urllib.request.urlopen(request, context=context, timeout=10).status
    except urllib.error.HTTPError as error:
        return error.code
space = open(folder + "/namespace").read()
print(status(f"/api/v1/namespaces/{space}/configmaps"), status(f"/api/v1/namespaces/{space}/secrets"), flush=True)
import time; time.sleep(60)
"""


def test_a_service_account_token_may_do_what_rbac_says(cluster: LocalCluster, kube: Kubectl) -> None:
    kube.run("create", "serviceaccount", "reader")
    kube.run("create", "role", "reader", "--verb=list", "--resource=configmaps")
    kube.run("create", "rolebinding", "reader", "--role=reader", f"--serviceaccount={kube.namespace}:reader")
    folder = "/var/run/secrets/kubernetes.io/serviceaccount"
    server = "$(KUBERNETES_SERVICE_HOST):$(KUBERNETES_SERVICE_PORT)"
    kube.apply(pod("reader", container("python", args=["-c", READ, folder, server]), serviceAccountName="reader"))
    assert logged(cluster, kube, "reader", "\n").splitlines()[0] == "200 403"


def test_the_pod_of_lowest_deletion_cost_goes_first(kube: Kubectl) -> None:
    kube.apply(deployment("cost", 3, web()))
    kube.rolled_out("cost")
    names = sorted(found["metadata"]["name"] for found in kube.list("pods", "app=cost"))
    kube.run("annotate", "pod", names[1], "controller.kubernetes.io/pod-deletion-cost=-5")
    kube.scale("deployment", "cost", 2)
    wait_gone(kube, names[1])
    assert sorted(found["metadata"]["name"] for found in kube.list("pods", "app=cost")) == [names[0], names[2]]


def _reads(flag: str, **fields: int) -> dict:
    """Return a probe for a file. On a busy machine a process may take longer than the second that probes have."""
    return {"exec": {"command": ["cat", f"/flags/{flag}"]}, "periodSeconds": 1, "timeoutSeconds": 30, **fields}


def test_probes_start_gate_ready_and_restart(cluster: LocalCluster, kube: Kubectl) -> None:
    mount = [{"name": "flags", "mountPath": "/flags"}]
    main = shell(
        "echo up; touch /flags/alive; sleep 0.5; touch /flags/started; exec sleep 600",
        volumeMounts=mount,
        startupProbe=_reads("started", failureThreshold=90),
        readinessProbe=_reads("ready", failureThreshold=1),
        livenessProbe=_reads("alive", failureThreshold=1),
    )
    kube.apply(pod("probed", main, volumes=[{"name": "flags", "emptyDir": {}}]))
    started = wait_for(
        lambda: (
            found
            if (found := kube.get("pod", "probed"))["status"].get("containerStatuses", [{}])[0].get("started")
            else None
        ),
        "the startup probe",
    )
    assert main_status(started)["ready"] is False
    flags = next((cluster.folder / "local-0/pods").glob(f"{kube.namespace}_probed_*")) / "volumes/flags"
    (flags / "ready").touch()
    wait_pod(kube, "probed", Ready="True")
    (flags / "ready").unlink()
    wait_pod(kube, "probed", Ready="False")
    (flags / "ready").touch()
    (flags / "started").unlink()  # a volume outlives its container: the next one is to be alive before it has started
    (flags / "alive").unlink()

    def restarted() -> dict | None:
        status = main_status(kube.get("pod", "probed"))
        return status if status["restartCount"] == 1 and status["ready"] else None

    status = wait_for(restarted, "the restart", lambda: kube.get("pod", "probed"))
    assert status["lastState"]["terminated"]["exitCode"] == 143


def test_pods_outlive_an_outage_of_the_api_server(cluster: LocalCluster, kube: Kubectl) -> None:
    kube.apply(pod("stays", web()), pod("crashes", web()))
    before = [main_status(wait_pod(kube, name, Ready="True")) for name in ("stays", "crashes")]
    address = kube.get("pod", "stays")
    cluster.plane.stop_apiserver()
    try:
        assert fetch(address) == 200
    finally:
        cluster.plane.start_apiserver()
    assert main_status(wait_pod(kube, "stays", Ready="True"))["containerID"] == before[0]["containerID"]
    cluster.kill_pod(kube.namespace, "crashes", "main")
    wait_for(
        lambda: True if main_status(kube.get("pod", "crashes"))["restartCount"] == 1 else None,
        "the agent to report again",
    )
    kube.delete("pod", "stays", "--timeout=90s")


def test_an_eviction_deletes_the_pod_unless_a_budget_forbids_it(kube: Kubectl) -> None:
    kube.apply(pod("evicted", web()), pod("kept", web()))
    kube.apply(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "kept"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}},
        }
    )
    for name in ("evicted", "kept"):
        wait_pod(kube, name, Ready="True")
    assert evict(kube, "evicted") == ""
    wait_gone(kube, "evicted")
    assert "disruption budget" in evict(kube, "kept")


@pytest.fixture
def second_node(cluster: LocalCluster) -> Iterator[str]:
    cluster.start_node("local-1")
    kubectl = cluster.kubectl()
    kubectl.run("wait", "--for=create", "node/local-1", "--timeout=90s")
    kubectl.run("wait", "--for=condition=Ready", "node/local-1", "--timeout=90s")
    yield "local-1"
    cluster.stop_node("local-1")
    kubectl.delete("node", "local-1")


def test_a_drained_node_is_left_by_its_pods(cluster: LocalCluster, kube: Kubectl, second_node: str) -> None:
    kube.run("cordon", "local-0")
    try:
        kube.apply(deployment("moves", 2, web()))
        kube.rolled_out("moves")
        assert {found["spec"]["nodeName"] for found in kube.list("pods")} == {second_node}
    finally:
        kube.run("uncordon", "local-0")
    kube.run("drain", second_node, "--timeout=90s")
    kube.rolled_out("moves")

    def moved() -> bool | None:
        return True if {found["spec"]["nodeName"] for found in kube.list("pods")} == {"local-0"} else None

    wait_for(moved, "the pods to move", lambda: kube.list("pods"))


def test_a_node_that_was_given_up_says_that_it_is_ready(cluster: LocalCluster) -> None:
    kubectl = cluster.kubectl()
    lost = {"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}}
    kubectl.run("patch", "node", "local-0", "--subresource=status", "--type=strategic", "-p", json.dumps(lost))
    assert kubectl.run("wait", "--for=condition=Ready", "node/local-0", "--timeout=90s").returncode == 0


def test_an_agent_that_was_killed_starts_its_pods_anew(cluster: LocalCluster, kube: Kubectl, second_node: str) -> None:
    on_second = {"nodeName": second_node}
    orphans = "sleep 61 & sleep 62 & echo up; wait"
    kube.apply(
        pod("again", shell(orphans), **on_second), pod("done", shell("exit 0"), restartPolicy="Never", **on_second)
    )
    first = {**shell("echo tried; exit 1"), "name": "first"}
    kube.apply(pod("broken", shell("echo never"), initContainers=[first], restartPolicy="Never", **on_second))
    before = main_status(wait_pod(kube, "again", Ready="True"))
    wait_phase(kube, "done", "Succeeded")
    wait_phase(kube, "broken", "Failed")
    folder = cluster.folder / second_node / "pods"
    cluster.stop_node(second_node)
    cluster.start_node(second_node)

    def again() -> dict | None:
        status = main_status(kube.get("pod", "again"))
        return status if status["containerID"] != before["containerID"] and status["ready"] else None

    after = wait_for(again, "the new container", lambda: kube.get("pod", "again"))
    assert after["restartCount"] == 1
    assert kube.get("pod", "done")["status"]["phase"] == "Succeeded"
    assert cluster.logs(kube.namespace, "broken") == "tried\n"

    def running() -> list[str]:
        """Return what sleeps: a container is ready before its shell has started the two."""
        return sorted(line.split()[-1] for line in processes_of(folder) if line.startswith("sleep"))

    wait_for(lambda: True if running() == ["61", "62"] else None, "the processes of the new container alone", running)
    kube.delete("pod", "again", "--timeout=90s")
    assert [line for line in processes_of(folder) if line.startswith("sleep")] == []


def test_kubectl_shows_and_follows_what_a_container_writes(cluster: LocalCluster, kube: Kubectl) -> None:
    kube.apply(pod("talks", shell("echo one; echo two; sleep 1; echo three"), restartPolicy="Never"))
    logged(cluster, kube, "talks", "two")
    assert kube.run("logs", "talks", "--tail=1").stdout in {"two\n", "three\n"}
    assert kube.run("logs", "talks", "--follow").stdout == "one\ntwo\nthree\n"


def test_the_command_starts_and_stops_a_cluster(tmp_path: Path) -> None:
    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "promptgroup_local.cluster", *arguments, f"--state={tmp_path}"]
        return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)

    assert "no cluster runs" in command("down").stdout
    up = command("up", "--gpus=3", "--nodes=2")
    assert up.returncode == 0, up.stderr
    try:
        assert "runs already" in command("up").stdout
        kubeconfig = Path(command("kubeconfig").stdout.strip())
        assert f"export KUBECONFIG={kubeconfig}" in up.stdout
        kubectl = Kubectl(kubeconfig, "default")
        assert [node["status"]["capacity"]["nvidia.com/gpu"] for node in kubectl.list("nodes")] == ["3", "3"]
        kubectl.apply(pod("hello", shell("echo hello; exec sleep 60")))
        wait_pod(kubectl, "hello", Ready="True")
        wait_for(lambda: True if command("logs", "hello").stdout == "hello\n" else None, "the output")
        assert "no pod default/other" in command("logs", "other").stderr
    finally:
        assert command("down").stdout == "stopped\n"
    assert command("status").returncode == 1
    assert processes_of(tmp_path) == []
