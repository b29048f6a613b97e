"""One PromptGroup's life on a real control plane, with stand-in engines as its replicas."""

import base64
import itertools
import json
import subprocess
from typing import Any

import pytest

from promptgroup_contract.fingerprint import fingerprint
from promptgroup_local import lab
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from support.atrest import wait_unwritten
from support.groups import PROMPTS, group
from support.operators import operator_process

pytestmark = pytest.mark.integration


def slots(kube: Kubectl, name: str) -> dict[str, str]:
    """Slot → pod name, from the pods' labels."""
    return {
        pod["metadata"]["labels"]["promptgroup.dev/slot"]: pod["metadata"]["name"]
        for pod in lab.engine_pods(kube, name)
        if "promptgroup.dev/slot" in pod["metadata"]["labels"]
    }


def route_revisions(kube: Kubectl, name: str) -> dict[str, dict]:
    route = kube.get("promptroute", name) or {"spec": {"revisions": []}}
    return {revision["fingerprint"]: revision for revision in route["spec"]["revisions"]}


def test_a_group_becomes_warm_routed_and_ready(kube: Kubectl, operator: None) -> None:
    kube.apply(group("first", replicas=3))
    kube.wait_warm("first", "3/3")
    kube.wait_condition("first", "CacheEffective", "Unknown")  # the last to come, once engines have been read
    found = kube.get("promptgroup", "first")
    fingerprint = found["status"]["fingerprint"]
    assert set(slots(kube, "first")) == {"0", "1", "2"}
    (revision,) = route_revisions(kube, "first").values()
    assert revision["fingerprint"] == fingerprint
    assert [slot["state"] for slot in revision["slots"]] == ["Ready"] * 3
    conditions = {each["type"]: each["status"] for each in found["status"]["conditions"]}
    assert conditions == {
        "Accepted": "True",
        "CacheEffective": "Unknown",
        "Degraded": "False",
        "PrefixWarm": "True",
        "Progressing": "False",
        "Ready": "True",
        "ResolvedRefs": "True",
        "RouterProgrammed": "True",
        "ScalingActive": "False",
    }
    kube.rolled_out(f"first-{fingerprint[:8]}")
    columns = kube.run("get", "promptgroup", "first").stdout.splitlines()
    assert columns[0].split() == ["NAME", "READY", "REVISION", "WARM", "REPLICAS", "HIT", "RATE", "AGE"]
    assert columns[1].split()[:5] == ["first", "True", fingerprint[:8], "3/3", "3"]
    for field in ("replicas", "scaleReplicas", "readyReplicas", "warmReplicas"):
        kube.run("wait", "promptgroup/first", f"--for=jsonpath={{.status.{field}}}=3", "--timeout=90s")
    scale = json.loads(kube.run("get", "promptgroup", "first", "--subresource=scale", "-o", "json").stdout)
    assert scale["status"]["replicas"] == 3


def test_routers_are_told_what_the_proof_of_warmth_measured(kube: Kubectl, operator: None) -> None:
    kube.apply(group("known", replicas=2, args=("--max-num-batched-tokens=4096", "--max-num-seqs=64")))
    kube.wait_warm("known", "2/2")
    (revision,) = route_revisions(kube, "known").values()
    engine = revision["engine"]
    annotations = [pod["metadata"]["annotations"] for pod in lab.engine_pods(kube, "known")]
    measured = [json.loads(each["promptgroup.dev/engine"]) for each in annotations]
    assert revision["tokens"] == measured[0]["prefixTokens"] > 256
    assert engine["kvTokens"] == min(each["kvTokens"] for each in measured) > revision["tokens"]
    assert engine["prefillTokensPerSecond"] == min(each["prefillTokensPerSecond"] for each in measured) > 0
    assert engine["stepTokens"] == 4096
    assert engine["maxSequences"] == 64
    assert {each["promptgroup.dev/engine-settings"] for each in annotations} == {engine["settings"]}


def routers_key(kube: Kubectl) -> dict | None:
    return kube.get("secret", "promptgroup-router-peers")


def test_the_routers_of_a_namespace_get_one_key_that_outlives_its_groups(kube: Kubectl, operator: None) -> None:
    kube.apply(group("one", replicas=1))
    kube.wait_warm("one", "1/1")
    made = wait_for(lambda: routers_key(kube), "the routers' key")
    assert len(base64.b64decode(made["data"]["key"])) == 32
    kube.apply(group("two", PROMPTS["b"], replicas=1))
    kube.wait_warm("two", "1/1")
    kube.run("delete", "promptgroup", "one", "two")
    kube.apply(group("three", PROMPTS["c"], replicas=1))
    kube.wait_warm("three", "1/1")
    assert routers_key(kube) == made
    kube.delete("secret", "promptgroup-router-peers")
    kube.run("label", "promptgroup", "three", "poke=1")
    again = wait_for(lambda: routers_key(kube), "another key")
    assert again["data"]["key"] != made["data"]["key"]


def test_the_users_object_gets_no_finalizer_and_no_annotation(kube: Kubectl, operator: None) -> None:
    kube.run("apply", "--server-side", "-f", "-", stdin=json.dumps(group("clean", replicas=1)))
    metadata = kube.wait_warm("clean", "1/1")["metadata"]
    assert "finalizers" not in metadata
    assert metadata.get("annotations", {}) == {}


def test_nothing_is_written_at_rest(kube: Kubectl, operator: None) -> None:
    made = group("rest", replicas=2)
    made["spec"]["engine"]["weights"] = {"image": "registry.example.com/models/tiny:1", "prefetch": True}
    made["spec"]["engine"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/os": "linux"}
    kube.apply(made)
    kube.wait_warm("rest", "2/2")
    pulled = wait_for(lambda: (kube.get("promptgroup", "rest") or {})["status"].get("prefetch"), "nodes to be counted")
    assert pulled["nodes"] >= 1
    wait_for(
        lambda: (
            (counts := (kube.get("promptgroup", "rest") or {})["status"]["prefetch"])["ready"] == counts["nodes"]
            or None
        ),
        "all nodes to have the weights",
    )
    kube.wait_condition("rest", "Progressing", "False")
    kube.wait_condition("rest", "CacheEffective", "Unknown")  # the last to come, once engines have been read
    kinds = "promptgroups,promptroutes,deployments,daemonsets,pods,configmaps,secrets,events"

    def versions() -> dict[str, str]:
        """Return those of all objects but the group itself, which gets labels."""
        versions = {
            f"{item['kind']}/{item['metadata']['name']}": item["metadata"]["resourceVersion"]
            for item in kube.list(kinds)
        }
        return versions | {"PromptGroup/rest": ""}

    numbers = itertools.count()

    def poke() -> None:
        for _ in range(5):
            kube.run("label", "promptgroup", "rest", f"poke={next(numbers)}", "--overwrite")

    # every pass that a label makes the operator run must leave the world as it is
    wait_unwritten(versions, poke, "passes that write nothing")


def test_rollout_status_waits_until_warmth_is_proven(kube: Kubectl, operator: None) -> None:
    kube.apply(group("block", args=("--no-enable-prefix-caching",), replicas=1))
    chosen = group("chosen", PROMPTS["b"], replicas=1)
    chosen["spec"]["cache"] = {"prefixCaching": "Disabled"}
    kube.apply(chosen)
    condition = kube.wait_condition("block", "PrefixWarm", "False", "PrefixCachingDisabled")
    assert "--no-enable-prefix-caching" in condition["message"]
    assert kube.condition("block", "Degraded")["status"] == "True"
    name = f"block-{kube.get('promptgroup', 'block')['status']['revision']}"
    waits = kube.run("rollout", "status", f"deployment/{name}", "--timeout=3s", check=False)
    assert waits.returncode != 0
    assert "timed out" in waits.stderr
    (pod,) = lab.engine_pods(kube, "block")
    conditions = {each["type"]: each["status"] for each in pod["status"]["conditions"]}
    assert (conditions["ContainersReady"], conditions["Ready"]) == ("True", "False")
    kube.patch("promptgroup", "block", {"spec": {"warmup": {"failurePolicy": "Proceed"}}})
    kube.wait_condition("block", "PrefixWarm", "False", "ProceededWithoutProof")
    kube.rolled_out(name)
    kube.wait_condition("block", "Ready", "True")
    kube.wait_condition("chosen", "PrefixWarm", "True", "CachingOffByChoice")
    wait_for(
        lambda: kube.condition("chosen", "CacheEffective").get("reason") == "CachingOffByChoice" or None,
        "the choice to be told",
        lambda: kube.condition("chosen", "CacheEffective"),
    )
    assert kube.get("promptroute", "chosen")["spec"]["policy"] == "LeastRequest"


def test_a_restarted_container_is_cold_until_it_is_warmed_again(
    kube: Kubectl, cluster: LocalCluster, operator: None
) -> None:
    kube.apply(group("restart", replicas=2))
    kube.wait_warm("restart", "2/2")
    name = slots(kube, "restart")["1"]
    warmed = kube.get("pod", name)["metadata"]["annotations"]["promptgroup.dev/warmed-container"]
    cluster.kill_pod(kube.namespace, name)

    def warm_again() -> str | None:
        pod = kube.get("pod", name)
        container = pod["status"]["containerStatuses"][0].get("containerID", "")
        proof = pod["metadata"]["annotations"].get("promptgroup.dev/warmed-container")
        return proof if proof == container != warmed else None

    wait_for(warm_again, "the new container to be proven warm", lambda: kube.get("pod", name))
    kube.wait_warm("restart", "2/2")
    assert slots(kube, "restart")["1"] == name


def test_a_replacement_takes_the_slot_of_the_pod_it_replaces(kube: Kubectl, operator: None) -> None:
    kube.apply(group("replace", replicas=3))
    kube.wait_warm("replace", "3/3")
    before = slots(kube, "replace")
    kube.delete("pod", before["1"], wait=False)

    def replaced() -> dict[str, str] | None:
        now = slots(kube, "replace")
        return now if len(now) == 3 and now["1"] != before["1"] else None

    after = wait_for(replaced, "slot 1 to be held by another pod", lambda: slots(kube, "replace"))
    assert (after["0"], after["2"]) == (before["0"], before["2"])


def test_scaling_keeps_slots_and_removes_the_highest(kube: Kubectl, operator: None) -> None:
    kube.apply(group("scale", replicas=2))
    kube.wait_warm("scale", "2/2")
    two = slots(kube, "scale")
    kube.scale("promptgroup", "scale", 4)
    kube.wait_warm("scale", "4/4")
    four = slots(kube, "scale")
    assert {slot: four[slot] for slot in two} == two
    kube.scale("promptgroup", "scale", 1)
    wait_for(
        lambda: True if len(lab.engine_pods(kube, "scale")) == 1 else None,
        "three pods to go",
        lambda: lab.engine_pods(kube, "scale"),
    )
    kube.wait_warm("scale", "1/1")
    assert slots(kube, "scale") == {"0": two["0"]}


def test_a_new_prompt_takes_over_warm_while_the_old_one_serves(kube: Kubectl, operator: None) -> None:
    kube.apply(group("release", PROMPTS["a"], replicas=2))
    old = kube.wait_warm("release", "2/2")["status"]["fingerprint"]
    kube.apply(group("release", PROMPTS["b"], replicas=2))
    weights: list[tuple[int, int]] = []

    def taken_over() -> bool | None:
        revisions = route_revisions(kube, "release")
        new = next((each for key, each in revisions.items() if key != old), None)
        ready = sum(slot["state"] == "Ready" for slot in new["slots"]) if new else 0
        weights.append((revisions[old]["weight"], ready))
        return True if new and new["weight"] == 100 else None

    wait_for(taken_over, "the new revision to take over", lambda: route_revisions(kube, "release"))
    # the old one gives up no more than the warm replicas of the new one carry
    assert all(weight >= 100 - 50 * ready for weight, ready in weights)
    new = kube.wait_warm("release", "2/2")["status"]["fingerprint"]
    revisions = route_revisions(kube, "release")
    assert (revisions[new]["weight"], revisions[old]["weight"]) == (100, 0)
    # of the two replicas that it had, one has made room
    states = lambda: [slot["state"] for slot in route_revisions(kube, "release")[old]["slots"]]  # noqa: E731
    wait_for(lambda: True if states() == ["Ready"] else None, "one replica of the old revision", states)
    # quiet for retireAfter, the old revision goes and is kept as history; beyond that all that belongs to it goes
    kube.patch("promptgroup", "release", {"spec": {"rollout": {"retireAfter": "1s"}}})
    wait_for(
        lambda: True if set(route_revisions(kube, "release")) == {new} else None,
        "the old revision to leave the route",
        lambda: route_revisions(kube, "release"),
    )
    record = lambda: (kube.get("deployment", f"release-{old[:8]}") or {})["spec"]["replicas"]  # noqa: E731
    wait_for(lambda: True if record() == 0 else None, "a record without replicas", record)
    kube.patch("promptgroup", "release", {"spec": {"rollout": {"revisionHistoryLimit": 0}}})
    wait_for(
        lambda: True if kube.get("deployment", f"release-{old[:8]}") is None else None,
        "the old Deployment to go",
    )
    wait_for(lambda: True if kube.get("configmap", f"release-{old[:8]}") is None else None, "its prompt to go")


def test_a_missing_key_is_waited_for_by_name(kube: Kubectl, operator: None) -> None:
    prompt = {"systemFrom": {"configMapKeyRef": {"name": "texts", "key": "support"}}}
    kube.apply({**group("waits", replicas=1), "spec": {**group("waits", replicas=1)["spec"], "prompt": prompt}})
    condition = kube.wait_condition("waits", "ResolvedRefs", "False", "PromptNotFound")
    assert "ConfigMap texts" in condition["message"]
    assert kube.list("deployments") == []
    kube.run("create", "configmap", "texts", f"--from-literal=other={PROMPTS['a']}")
    wait_for(
        lambda: True if "key support" in kube.condition("waits", "ResolvedRefs").get("message", "") else None,
        "the message to name the key",
    )
    kube.patch("configmap", "texts", {"data": {"support": PROMPTS["a"]}})
    first = kube.wait_warm("waits", "1/1")["status"]["fingerprint"]
    # an edited ConfigMap is a new revision
    kube.patch("configmap", "texts", {"data": {"support": PROMPTS["b"]}})
    wait_for(
        lambda: True if kube.get("promptgroup", "waits")["status"]["fingerprint"] != first else None,
        "the edit to be noticed",
    )
    kube.wait_warm("waits", "1/1")


def test_text_from_a_secret_stays_in_secrets(kube: Kubectl, operator: None) -> None:
    kube.run("create", "secret", "generic", "private", f"--from-literal=system={PROMPTS['c']}")
    prompt = {"systemFrom": {"secretKeyRef": {"name": "private", "key": "system"}}}
    kube.apply({**group("secret", replicas=1), "spec": {**group("secret", replicas=1)["spec"], "prompt": prompt}})
    found = kube.wait_warm("secret", "1/1")
    name = f"secret-{found['status']['revision']}"
    assert kube.get("configmap", name) is None
    assert kube.get("secret", name)["immutable"] is True
    everything = json.dumps([kube.list("promptgroups,promptroutes,deployments,pods,configmaps,events")])
    assert "Rule c7" not in everything


def test_a_wrong_fingerprint_is_refused_with_both_hashes(kube: Kubectl, operator: None) -> None:
    pinned = group("pin", replicas=1)
    pinned["spec"]["prompt"]["fingerprint"] = "0" * 32
    kube.apply(pinned)
    condition = kube.wait_condition("pin", "Accepted", "False", "FingerprintMismatch")
    assert "0" * 32 in condition["message"]
    assert kube.list("deployments") == []
    actual = condition["message"].split("hashes to ")[1][:32]
    kube.patch("promptgroup", "pin", {"spec": {"prompt": {"fingerprint": actual}}})
    kube.wait_warm("pin", "1/1")


def test_of_two_groups_with_one_prompt_the_older_keeps_it(kube: Kubectl, operator: None) -> None:
    kube.apply(group("older", replicas=1))
    kube.wait_warm("older", "1/1")
    kube.apply(group("younger", replicas=1))
    condition = kube.wait_condition("younger", "Accepted", "False", "Conflict")
    assert "older" in condition["message"]
    assert lab.engine_pods(kube, "younger") == []
    kube.delete("promptgroup", "older")
    kube.wait_warm("younger", "1/1")


NOBODYS_PODS = {"matchLabels": {"app": "mine"}}
FOREIGN = {
    "configmaps": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"mine": "1"}},
    "deployments": {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "spec": {
            "replicas": 0,
            "selector": NOBODYS_PODS,
            "template": {
                "metadata": {"labels": NOBODYS_PODS["matchLabels"]},
                "spec": {"containers": [{"name": "mine", "image": "mine"}]},
            },
        },
    },
    "poddisruptionbudgets": {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "spec": {"maxUnavailable": 7, "selector": NOBODYS_PODS},
    },
    "promptroutes": {
        "apiVersion": "promptgroup.dev/v1alpha1",
        "kind": "PromptRoute",
        "spec": {
            "format": 1,
            "model": "mine",
            "created": "2026-01-01T00:00:00Z",
            "loadFactorPercent": 125,
            "sessionHeader": "x-mine",
            "policy": "RoundRobin",
            "revisions": [],
        },
    },
}


def told_of(kube: Kubectl, kind: str, name: str) -> dict:
    """What users wrote of an object, and whose it is."""
    found = kube.get(kind, name)
    metadata = {key: found["metadata"].get(key) for key in ("uid", "labels", "ownerReferences")}
    return {key: found.get(key) for key in ("spec", "data")} | metadata


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_foreign_object_of_the_same_name_is_never_taken_over(kube: Kubectl, operator: None, kind: str) -> None:
    taken = f"taken-{fingerprint(PROMPTS['a'], [])[:8]}" if kind != "promptroutes" else "taken"
    kube.apply({**FOREIGN[kind], "metadata": {"name": taken}})
    before = told_of(kube, kind, taken)
    kube.apply(group("taken", replicas=1))
    condition = kube.wait_condition("taken", "Accepted", "False", "NameTaken")
    assert f"{FOREIGN[kind]['kind']} {taken}" in condition["message"]
    assert told_of(kube, kind, taken) == before
    kube.delete(kind, taken)
    kube.wait_warm("taken", "1/1")


def test_orphans_of_a_deleted_group_are_adopted_by_its_successor(kube: Kubectl, operator: None) -> None:
    """`kubectl delete --cascade=orphan`, then the same manifest again: engines serve on, nothing starts anew."""
    kube.apply(group("orphan", replicas=2))
    before = kube.wait_warm("orphan", "2/2")["metadata"]["uid"]
    pods = {pod["metadata"]["uid"] for pod in lab.engine_pods(kube, "orphan")}
    kube.delete("promptgroup", "orphan", "--cascade=orphan")
    kube.apply(group("orphan", replicas=2))
    successor = kube.wait_warm("orphan", "2/2")["metadata"]["uid"]
    assert successor != before
    kinds = "deployments,promptroutes,poddisruptionbudgets,configmaps"

    def owners() -> bool | None:
        found = kube.list(kinds, "promptgroup.dev/group=orphan")
        owned = [[each["uid"] for each in item["metadata"].get("ownerReferences", [])] for item in found]
        return True if owned == [[successor]] * 4 else None

    wait_for(owners, "all of it to be the successor's", lambda: kube.list(kinds, "promptgroup.dev/group=orphan"))
    assert {pod["metadata"]["uid"] for pod in lab.engine_pods(kube, "orphan")} == pods


def test_groups_that_share_a_model_live_and_go_alone(kube: Kubectl, operator: None) -> None:
    for letter in "abc":
        kube.apply(group(f"share-{letter}", PROMPTS[letter], replicas=1))
    for letter in "abc":
        kube.wait_warm(f"share-{letter}", "1/1")
    before = {letter: kube.get("promptroute", f"share-{letter}")["spec"] for letter in "ac"}
    kube.delete("promptgroup", "share-b")
    left = "promptgroup.dev/group=share-b"
    wait_for(lambda: True if kube.list("deployments,pods,promptroutes", left) == [] else None, "share-b to go")
    assert {letter: kube.get("promptroute", f"share-{letter}")["spec"] for letter in "ac"} == before


def test_deleting_a_group_leaves_nothing(kube: Kubectl, operator: None) -> None:
    kube.apply(group("gone", replicas=2))
    kube.wait_warm("gone", "2/2")
    kube.delete("promptgroup", "gone", "--timeout=90s")
    kinds = "promptroutes,deployments,replicasets,pods"
    wait_for(lambda: True if kube.list(kinds) == [] else None, "everything to go", lambda: kube.list(kinds))
    assert [each["metadata"]["name"] for each in kube.list("configmaps")] == ["kube-root-ca.crt"]


def test_a_template_that_the_api_server_refuses_is_told_of(kube: Kubectl, operator: None) -> None:
    bad = group("refused", replicas=1)
    bad["spec"]["engine"]["template"]["spec"]["containers"][0]["imagePullPolicy"] = "Sometimes"
    kube.apply(bad)
    condition = kube.wait_condition("refused", "Accepted", "False", "ObjectRefused")
    assert "imagePullPolicy" in condition["message"]
    kube.apply(group("refused", replicas=1))
    kube.wait_warm("refused", "1/1")


MISTAKES = {
    "typed-env": {"containers": [{"name": "engine", "env": [{"name": "OMP_NUM_THREADS", "value": 8}]}]},
    "typed-list": {"tolerations": {"key": "nvidia.com/gpu", "operator": "Exists"}},
    "typed-name": {"nodeSelectr": {"a": "b"}},
}
"""Templates that the API server refuses with 500: they do not fit the schema of a Deployment."""


def mistaken(name: str, replicas: int) -> dict[str, Any]:
    """A group whose template has one of the mistakes."""
    found = group(name, replicas=replicas)
    template = found["spec"]["engine"]["template"]
    for part, value in MISTAKES[name].items():
        if part == "containers":
            template["spec"]["containers"][0].setdefault("env", []).extend(value[0]["env"])
        else:
            template["spec"][part] = value
    return found


@pytest.mark.parametrize("name", MISTAKES)
def test_a_group_whose_new_template_does_not_fit_serves_on_and_says_so(
    kube: Kubectl, operator: None, name: str
) -> None:
    kube.apply(group(name, replicas=2))
    kube.wait_warm(name, "2/2")
    kube.apply(mistaken(name, 2))
    condition = kube.wait_condition(name, "Ready", "False", "ObjectRefused")
    assert "failed to create typed patch object" in condition["message"]
    found = kube.get("promptgroup", name)
    assert found["status"]["observedGeneration"] == found["metadata"]["generation"]
    events = lambda: [item["reason"] for item in kube.list("events") if item["involvedObject"]["name"] == name]  # noqa: E731
    wait_for(lambda: True if "ObjectRefused" in events() else None, "the event", events)

    before = {pod["metadata"]["uid"] for pod in lab.engine_pods(kube, name)}
    kube.run("delete", "pod", "-l", f"promptgroup.dev/group={name}", "--wait=false")

    def replaced() -> bool | None:
        """Other pods are warm, and the route leads to them."""
        routed = [slot for each in route_revisions(kube, name).values() for slot in each["slots"]]
        pods = {pod["metadata"]["name"]: pod for pod in lab.engine_pods(kube, name)}
        serving = [pods[slot["pod"]] for slot in routed if slot["state"] == "Ready" and slot.get("pod") in pods]
        new = [pod for pod in serving if pod["metadata"]["uid"] not in before]
        return True if len(new) == 2 else None

    wait_for(replaced, "the replicas to be replaced", lambda: kube.get("promptroute", name))
    kube.apply(mistaken(name, 3))
    warm = lambda: kube.get("promptgroup", name)["status"]["warm"]  # noqa: E731 - Ready it is not
    wait_for(lambda: True if warm() == "3/3" else None, "a third replica", warm)
    kube.apply(group(name, replicas=3))
    kube.wait_condition(name, "Ready", "True")


def test_a_new_group_whose_template_does_not_fit_is_told_of(kube: Kubectl, operator: None) -> None:
    kube.apply({**mistaken("typed-list", 1), "metadata": {"name": "typed-new"}})
    condition = kube.wait_condition("typed-new", "Accepted", "False", "ObjectRefused")
    assert "tolerations" in condition["message"]
    assert kube.get("promptgroup", "typed-new")["status"]["observedGeneration"] == 1


def test_a_quota_that_stops_pods_is_told_of(kube: Kubectl, operator: None) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    kube.apply(quota)
    kube.apply(group("quota", replicas=1))
    condition = kube.wait_condition("quota", "Degraded", "True", "ReplicaFailure")
    assert "exceeded quota" in condition["message"]
    kube.delete("resourcequota", "none")
    kube.wait_warm("quota", "1/1")


BAD = {
    "no model": ({"model": None}, "model is missing: name the model that the engine serves"),
    "empty prompt": ({"prompt": {"system": ""}}, "prompt.system is empty"),
    "no prompt": ({"prompt": {}}, "exactly one of system (inline) and systemFrom"),
    "inline and reference": (
        {"prompt": {"system": "x", "systemFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}},
        "exactly one of system (inline) and systemFrom",
    ),
    "two sources": (
        {"prompt": {"systemFrom": {key: {"name": "a", "key": "b"} for key in ("configMapKeyRef", "secretKeyRef")}}},
        "exactly one source",
    ),
    "malformed fingerprint": ({"prompt": {"system": "x", "fingerprint": "zz"}}, "spec.prompt.fingerprint"),
    "min above max": (
        {"replicas": None, "sizing": {"minReplicas": 4, "maxReplicas": 2}},
        "sizing.minReplicas is above sizing.maxReplicas",
    ),
    "a sleep after seconds": (
        {"replicas": None, "sizing": {"minReplicas": 0, "maxReplicas": 2, "idleAfter": "59s"}},
        "sizing.idleAfter must be 1m or more",
    ),
    "a wait of milliseconds": ({"routing": {"wakeTimeout": "999ms"}}, "routing.wakeTimeout must be 1s or more"),
    "no time to first token": (
        {"replicas": None, "sizing": {"maxReplicas": 2, "targets": {"ttft": "0ms"}}},
        "sizing.targets.ttft is zero",
    ),
    "a scaling policy without a period": (
        {
            "replicas": None,
            "sizing": {"maxReplicas": 2, "behavior": {"scaleUp": {"policies": [{"type": "Pods", "value": 1}]}}},
        },
        "spec.sizing.behavior.scaleUp.policies[0].periodSeconds: Required value",
    ),
    "replicas and sizing": ({"sizing": {"maxReplicas": 2}}, "replicas (fixed, or set through the scale subresource)"),
    "no image": ({"engine": {"image": ""}}, "spec.engine.image"),
    "model equals name": ({"model": "bad"}, "spec.model equals metadata.name"),
    "unknown engine": ({"engine": {"image": "x", "type": "Foo"}}, "Unsupported value"),
    "negative replicas": ({"replicas": -1}, "spec.replicas"),
    "bad duration": ({"warmup": {"timeout": "soon"}}, "spec.warmup.timeout"),
    "misspelt field": ({"promtp": {}}, 'unknown field "spec.promtp"'),
}


@pytest.mark.parametrize("case", BAD)
def test_the_api_server_refuses_a_bad_group_and_names_the_field(kube: Kubectl, crds: None, case: str) -> None:
    change, message = BAD[case]
    bad = group("bad")
    bad["spec"] = {key: value for key, value in (bad["spec"] | change).items() if value is not None}
    refused = kube.apply(bad, check=False)
    assert refused.returncode != 0
    assert message in refused.stderr
    assert kube.get("promptgroup", "bad") is None


def test_the_model_of_a_group_cannot_be_changed(kube: Kubectl, crds: None) -> None:
    kube.apply(group("model", replicas=0))
    other = group("model", replicas=0)
    other["spec"]["model"] = "another"
    refused = kube.apply(other, check=False)
    assert refused.returncode != 0
    assert "spec.model cannot be changed" in refused.stderr


def test_the_operator_killed_at_random_moments_ends_in_the_same_state(
    kube: Kubectl, cluster: LocalCluster, no_operator: None
) -> None:
    """Create, scale, release, delete, with SIGKILL after 0 to 1.5 seconds again and again: one end state."""
    delays = itertools.cycle((0.05, 0.4, 0.8, 0.15, 1.5, 0.6, 0.25, 1.0))

    def stormy(change: dict) -> None:
        kube.apply(change)
        for _ in range(4):
            with operator_process(cluster, kube.namespace) as (process, _):
                try:
                    process.wait(timeout=0.6 + next(delays))
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def end_state(name: str) -> tuple[list, ...]:
        (revision,) = (
            {key: value for key, value in each.items() if key in ("fingerprint", "weight")}
            | {"slots": [(slot["slot"], slot["state"]) for slot in each["slots"]]}
            for each in route_revisions(kube, name).values()
            if each["weight"]
        )
        return [revision], sorted(slots(kube, name)), [each["spec"]["replicas"] for each in kube.list("deployments")]

    calm = {"rollout": {"retireAfter": "1s", "revisionHistoryLimit": 0}}
    for name in ("storm-1", "storm-2"):
        stormy(group(name, PROMPTS["d"], replicas=2, **calm))
        stormy(group(name, PROMPTS["d"], replicas=3, **calm))
        stormy(group(name, PROMPTS["e"], replicas=2, **calm))
        with operator_process(cluster, kube.namespace):
            kube.wait_warm(name, "2/2")
            wait_for(
                lambda name=name: True if len(route_revisions(kube, name)) == 1 else None,
                "the old revision to retire",
                lambda name=name: kube.get("promptroute", name),
            )
            wait_for(lambda: True if len(kube.list("deployments")) == 1 else None, "one Deployment")
            kube.wait_warm(name, "2/2")
            assert end_state(name) == (
                [
                    {
                        "fingerprint": kube.get("promptgroup", name)["status"]["fingerprint"],
                        "weight": 100,
                        "slots": [(0, "Ready"), (1, "Ready")],
                    }
                ],
                ["0", "1"],
                [2],
            )
        kube.delete("promptgroup", name)
        wait_for(lambda: True if kube.list("deployments,pods,promptroutes") == [] else None, "everything to go")
