"""Several operators, an API server that fails, rights of one namespace, other tools: on a real control plane."""

import json
import re
import time
import urllib.error
import urllib.request
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import yaml

from promptgroup_local import lab
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from support.differences import wait_no_difference
from support.evictions import evict, wait_evicted
from support.freezer import freezer
from support.groups import PROMPTS, group
from support.operators import NAME, SYSTEM, holder, is_ready, leader, metrics, operator_process

pytestmark = pytest.mark.integration

GOES_ON_SECONDS = 5.0
"""Time within which operators act on changes once the API server answers again: longest pause of a watch."""
SLOWER = 5
"""How many times as long as before the outage the rest may take: an API server has just started on the machine."""


@pytest.fixture
def system(cluster: LocalCluster, operator: None) -> Kubectl:
    return cluster.kubectl(SYSTEM)


def health(url: str) -> tuple[int, dict]:
    """Status and what the probes say; status 0 where nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code, {}
    except OSError:
        return 0, {}


# --- the Lease -----------------------------------------------------------------------------------------------

LEASE = timedelta(seconds=15)
"""How long a lease lasts without a renewal."""


def renewed(system: Kubectl) -> datetime:
    """When the operator that leads renewed its lease last, by its own clock."""
    return datetime.fromisoformat(system.get("lease", NAME)["spec"]["renewTime"])


def acquired(system: Kubectl) -> datetime:
    """When the operator that leads took the lease."""
    return datetime.fromisoformat(system.get("lease", NAME)["spec"]["acquireTime"])


def test_a_leader_that_is_told_to_stop_hands_over_at_once(system: Kubectl, kube: Kubectl) -> None:
    first = leader(system)
    seen = renewed(system)
    # so that the lease that is handed over has nearly all of its time left
    last = wait_for(lambda: at if (at := renewed(system)) > seen else None, "a renewal")
    system.delete("pod", first, wait=False)
    wait_for(lambda: True if holder(system).partition("_")[0] not in ("", first) else None, "another to lead")
    assert acquired(system) - last < LEASE, "the lease had ended before another operator took it"
    kube.apply(group("handed", replicas=1))
    kube.wait_warm("handed", "1/1")


def test_a_leader_that_is_killed_is_replaced_when_its_lease_ends(
    system: Kubectl, kube: Kubectl, cluster: LocalCluster
) -> None:
    kube.apply(group("outlives", replicas=1))
    kube.wait_warm("outlives", "1/1")
    first = leader(system)
    identity = holder(system)
    cluster.kill_pod(SYSTEM, first, "operator")
    last = renewed(system)
    wait_for(lambda: True if holder(system) not in ("", identity) else None, "another process to lead")
    assert acquired(system) - last >= LEASE
    assert system.get("lease", NAME)["spec"]["leaseDurationSeconds"] == LEASE.total_seconds()
    kube.patch("promptgroup", "outlives", {"spec": {"replicas": 2}})
    kube.wait_warm("outlives", "2/2")


def test_only_the_leader_writes(system: Kubectl, kube: Kubectl, cluster: LocalCluster) -> None:
    leading = leader(system)
    kube.apply(group("alone", replicas=1))
    kube.wait_warm("alone", "1/1")
    said = {pod["metadata"]["name"]: cluster.logs(SYSTEM, pod["metadata"]["name"]) for pod in system.list("pods")}
    mine = f"pod {kube.namespace}/alone"
    assert [name for name, lines in said.items() if mine in lines] == [leading]


def test_only_the_leader_tells_prometheus_of_groups(system: Kubectl, kube: Kubectl) -> None:
    leading = leader(system)
    kube.apply(group("told", replicas=2))
    kube.wait_warm("told", "2/2")
    of_group = f'{{name="told",namespace="{kube.namespace}"}}'

    def settled() -> dict[str, str] | None:
        found = metrics(system)
        return found if f"promptgroup_status_warm_replicas{of_group} 2.0" in found[leading] else None

    found = wait_for(settled, "the store to have the status")
    assert f"promptgroup_status_desired_replicas{of_group} 2.0" in found[leading]
    assert re.search(r'promptgroup_operator_warmups_total\{outcome="PrefixCached"\} [1-9]', found[leading])
    assert re.search(r'promptgroup_operator_api_requests_total\{code="20[01]",verb="PATCH"\} [1-9]', found[leading])
    for line in (of_group, "promptgroup_operator_leader 1.0"):
        assert [name for name, text in found.items() if line in text] == [leading]
    kube.delete("promptgroup", "told")
    wait_for(lambda: True if of_group not in metrics(system)[leading] else None, "its series to go")


def test_after_an_outage_of_the_api_server_the_same_processes_lead_and_listen(
    system: Kubectl, kube: Kubectl, cluster: LocalCluster
) -> None:
    kube.apply(group("outage", replicas=1))
    kube.wait_warm("outage", "1/1")
    usual = _followed(kube, "outage", 2)
    kube.wait_warm("outage", "2/2")
    pods = system.list("pods")
    restarts = {pod["metadata"]["uid"]: pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods}
    urls = [f"http://{pod['status']['podIP']}:8081/healthz" for pod in pods]
    cluster.plane.stop_apiserver()
    try:
        # nobody can renew: after 10 s nobody writes, and all of them are well
        wait_for(lambda: True if [health(url)[1].get("leads") for url in urls] == [False] * 2 else None, "no leader")
        wait_for(lambda: True if [health(url)[0] for url in urls] == [200, 200] else None, "both to be well")
    finally:
        cluster.plane.start_apiserver()
    assert _followed(kube, "outage", 3) < GOES_ON_SECONDS + SLOWER * usual
    # probes are told what was found up to ten seconds ago
    wait_for(lambda: True if sum(health(url)[1].get("leads", False) for url in urls) == 1 else None, "one to lead")
    kube.wait_warm("outage", "3/3")
    assert restarts == {
        pod["metadata"]["uid"]: pod["status"]["containerStatuses"][0]["restartCount"] for pod in system.list("pods")
    }


def _followed(kube: Kubectl, group: str, replicas: int) -> float:
    """Change the replicas of a group; return the seconds until its Deployments ask for so many."""

    def asked_for() -> bool | None:
        deployments = kube.list("deployments", f"promptgroup.dev/group={group}")
        return True if sum(item["spec"]["replicas"] for item in deployments) == replicas else None

    began = time.monotonic()
    kube.patch("promptgroup", group, {"spec": {"replicas": replicas}})
    wait_for(asked_for, "the operator to go on")
    return time.monotonic() - began


# --- watches -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_watches_that_go_silent_are_found_out_and_nothing_is_missed(
    kube: Kubectl, cluster: LocalCluster, no_operator: None, tmp_path: Path
) -> None:
    with freezer(cluster.plane.port) as proxy:
        config = yaml.safe_load(cluster.kubeconfig.read_text())
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{proxy.port}"
        behind = tmp_path / "kubeconfig"
        behind.touch(mode=0o600)
        behind.write_text(yaml.safe_dump(config))
        with operator_process(cluster, kube.namespace, "--resync=2", kubeconfig=behind) as (_, url):
            kube.apply(group("heard", PROMPTS["a"], replicas=1))
            kube.wait_warm("heard", "1/1")
            wait_for(lambda: True if health(url)[0] == 200 else None, "the probe to succeed")
            proxy.freeze()
            kube.apply(group("unheard", PROMPTS["b"], replicas=1))
            wait_for(lambda: True if health(url)[0] == 500 else None, "the probe to notice")
            kube.wait_warm("unheard", "1/1")
            # the watches are begun anew after 90 s of silence
            wait_for(lambda: True if health(url)[0] == 200 else None, "the watches to tell again", seconds=180)


# --- rights --------------------------------------------------------------------------------------------------


def test_an_operator_of_one_namespace_needs_no_right_outside_it(
    kube: Kubectl, cluster: LocalCluster, no_operator: None
) -> None:
    kube.apply_folder(lab.ROOT / "manifests/operator-namespaced")
    kube.rolled_out(NAME)
    kube.apply(group("inside", replicas=2))
    kube.wait_warm("inside", "2/2")
    first = leader(kube)
    kube.delete("pod", first, wait=False)
    wait_for(lambda: True if holder(kube).partition("_")[0] not in ("", first) else None, "another to lead")
    kube.patch("promptgroup", "inside", {"spec": {"replicas": 1}})
    kube.wait_warm("inside", "1/1")
    kube.delete("promptgroup", "inside")
    gone = "promptgroup.dev/group=inside"
    wait_for(lambda: True if kube.list("deployments,pods,promptroutes", gone) == [] else None, "all of it to go")
    account = f"--as=system:serviceaccount:{kube.namespace}:{NAME}"
    for question in (("list", "pods", "-n", "default"), ("list", "namespaces"), ("list", "customresourcedefinitions")):
        assert kube.run("auth", "can-i", *question, account, check=False).stdout.strip() == "no"
    for pod in kube.list("pods", f"app.kubernetes.io/name={NAME}"):
        if is_ready(pod):
            assert "orbidden" not in cluster.logs(kube.namespace, pod["metadata"]["name"])


# --- evictions -----------------------------------------------------------------------------------------------


def test_replicas_are_evicted_one_at_a_time_and_the_next_when_all_are_warm(
    cluster: LocalCluster, kube: Kubectl, operator: None
) -> None:
    kube.apply(group("evicted", replicas=2, env={"STANDIN_PREFILL_TOKENS_PER_SECOND": "2000"}))
    found = kube.wait_warm("evicted", "2/2")
    budget = f"evicted-{found['status']['revision']}"
    wait_for(lambda: True if kube.get("pdb", budget)["status"].get("disruptionsAllowed") == 1 else None, "the budget")
    first, second = (pod["metadata"]["name"] for pod in lab.engine_pods(kube, "evicted"))
    nodes = cluster.kubectl()
    nodes.run("cordon", "local-0")  # no new pod is warm before the second is asked for
    try:
        assert evict(kube, first) == ""
        assert "disruption budget" in evict(kube, second)
    finally:
        nodes.run("uncordon", "local-0")
    wait_for(lambda: True if kube.get("pod", first) is None else None, "the first to go")
    kube.wait_warm("evicted", "2/2")
    wait_evicted(kube, second)


def test_a_single_replica_does_not_hold_up_the_drain_of_its_node(kube: Kubectl, operator: None) -> None:
    kube.apply(group("single", replicas=1))
    kube.wait_warm("single", "1/1")
    (pod,) = (pod["metadata"]["name"] for pod in lab.engine_pods(kube, "single"))
    wait_evicted(kube, pod)
    wait_for(lambda: True if kube.get("pod", pod) is None else None, "it to go")
    kube.wait_warm("single", "1/1")


# --- GitOps --------------------------------------------------------------------------------------------------


def test_a_group_that_nobody_has_looked_at_is_not_taken_for_finished(kube: Kubectl, no_operator: None) -> None:
    """Kstatus takes an object without a status for Current, and would tell of a success."""
    kube.apply(group("unseen", replicas=1))
    assert kube.get("promptgroup", "unseen")["status"]["observedGeneration"] == -1


def test_other_tools_see_no_difference_and_wait_for_ready(kube: Kubectl, operator: None) -> None:
    manifest = json.dumps(group("git", replicas=2))
    apply = ("apply", "--server-side", "--field-manager=flux", "-f", "-")
    kube.run(*apply, stdin=manifest)
    kube.run("wait", "--for=condition=Ready", "promptgroup/git", "--timeout=90s")
    kube.wait_condition("git", "CacheEffective", "Unknown", "NoTraffic")  # the last write before the group is at rest
    before = kube.get("promptgroup", "git")["metadata"]
    wait_no_difference(kube, "--server-side", "--field-manager=flux", "-f", "-", stdin=manifest)

    def unchanged() -> bool | None:
        """Return True if an apply changed nothing; the operator may have written the status meanwhile."""
        version = kube.get("promptgroup", "git")["metadata"]["resourceVersion"]
        kube.run(*apply, stdin=manifest)
        return True if kube.get("promptgroup", "git")["metadata"]["resourceVersion"] == version else None

    wait_for(unchanged, "an apply that changes nothing")
    assert kube.get("promptgroup", "git")["metadata"]["generation"] == before["generation"]
    changed = json.dumps(group("git", PROMPTS["b"], replicas=2))
    kube.run(*apply, stdin=changed)
    kube.wait_condition("git", "Ready", "False")
    kube.run("wait", "--for=condition=Ready", "promptgroup/git", "--timeout=90s")
    assert kube.get("promptgroup", "git")["status"]["observedGeneration"] == before["generation"] + 1
