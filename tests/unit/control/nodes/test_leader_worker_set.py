from promptgroup_contract import names
from promptgroup_contract.table import PromptRef
from promptgroup_operator.nodes.leader_worker_set import LABEL_SET, LOST_NODE_SECONDS, as_deployment, nodes_of
from promptgroup_operator.plan import desired, diff
from promptgroup_operator.world.snapshot import CONTAINER
from support.builders import FINGERPRINT, group

NODES = {"nodes": 2, "args": ["--tensor-parallel-size=2"]}
PROMPT = PromptRef("ConfigMap", "x")


def several(rollout=None, **engine):
    return group(engine=NODES | engine, **({"rollout": rollout} if rollout else {}))


def workload(of, *, template=None, live=None):
    made = desired.deployment(of, FINGERPRINT, 2, PROMPT, records={}, template=template, live=live)
    return desired.workload(of, made, live if template is not None else None)


def test_a_group_with_one_node_has_a_deployment_as_ever():
    for of in (group(), group(engine={"nodes": 1})):
        assert workload(of) == desired.deployment(of, FINGERPRINT, 2, PROMPT, records={})


def test_a_leader_worker_set_has_the_names_and_the_template_of_the_deployment():
    made, instead = workload(several()), desired.deployment(several(), FINGERPRINT, 2, PROMPT, records={})
    assert (made["apiVersion"], made["kind"]) == ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")
    for field in ("name", "namespace", "labels", "ownerReferences"):
        assert made["metadata"][field] == instead["metadata"][field]
    assert made["metadata"]["annotations"].keys() == instead["metadata"]["annotations"].keys()
    parts = made["spec"]["leaderWorkerTemplate"]
    assert (made["spec"]["replicas"], parts["size"]) == (2, 2)
    assert parts["restartPolicy"] == "RecreateGroupOnPodRestart"
    assert parts["leaderTemplate"]["metadata"] == instead["spec"]["template"]["metadata"]


def test_a_surge_and_none_are_those_of_the_deployment():
    rolling = lambda made: made["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"]  # noqa: E731
    assert rolling(workload(several())) == {"maxSurge": 1, "maxUnavailable": 0}
    assert rolling(workload(several({"maxSurge": 0}))) == {"maxSurge": 0, "maxUnavailable": 1}


def tolerations(of):
    parts = workload(of)["spec"]["leaderWorkerTemplate"]
    leader, worker = (parts[name]["spec"]["tolerations"] for name in ("leaderTemplate", "workerTemplate"))
    assert leader == worker
    return {toleration.get("key"): toleration.get("tolerationSeconds") for toleration in leader}


def test_pods_of_a_lost_node_are_soon_deleted():
    assert tolerations(several()) == {
        "node.kubernetes.io/not-ready": LOST_NODE_SECONDS,
        "node.kubernetes.io/unreachable": LOST_NODE_SECONDS,
    }


def test_a_users_own_tolerations_stand():
    own = [
        {"key": "nvidia.com/gpu", "operator": "Exists"},
        {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "tolerationSeconds": 600},
    ]
    assert tolerations(several(template={"spec": {"tolerations": own}})) == {
        "nvidia.com/gpu": None,
        "node.kubernetes.io/unreachable": 600,
        "node.kubernetes.io/not-ready": LOST_NODE_SECONDS,
    }
    everything = [{"operator": "Exists"}]
    assert tolerations(several(template={"spec": {"tolerations": everything}})) == {None: None}


def test_it_is_read_as_the_deployment_that_it_stands_for():
    made = workload(several())
    live = as_deployment({**made, "status": {"observedGeneration": 3, "readyReplicas": 1}})
    assert live["spec"]["template"] == made["spec"]["leaderWorkerTemplate"]["leaderTemplate"]
    assert live["spec"]["strategy"] == {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    assert live["status"]["availableReplicas"] == 1
    assert desired.settings_of(live) == desired.engine_settings(several())
    assert not diff.must_write(live, made)
    assert as_deployment(made)["status"] == {"availableReplicas": 0}


def test_replicas_that_keep_their_template_keep_their_workers_and_their_nodes():
    """A revision that another one replaces does not follow the group's engine."""
    live = as_deployment(workload(several()))
    template = desired.standing_template(live)
    made = workload(several(nodes=4, image="vllm/vllm-openai:v0.33.0"), live=live, template=template)
    assert made["spec"]["leaderWorkerTemplate"] == live["spec"]["leaderWorkerTemplate"]
    assert nodes_of(made) == 2


def test_the_target_follows_the_engine_with_leaders_and_workers():
    live = as_deployment(workload(several()))
    parts = workload(several(nodes=4, args=["-tp=4"]), live=live)["spec"]["leaderWorkerTemplate"]
    assert parts["size"] == 4
    for template in (parts["leaderTemplate"], parts["workerTemplate"]):
        (engine,) = (each for each in template["spec"]["containers"] if each["name"] == CONTAINER)
        assert "--nnodes=4" in engine["args"]


def test_a_change_of_the_drain_time_alone_replaces_nothing():
    live = as_deployment(workload(several()))
    made = workload(several({"drainTimeout": "1m"}), live=live)
    assert made["spec"]["leaderWorkerTemplate"] == live["spec"]["leaderWorkerTemplate"]


def test_a_budget_counts_the_workers_too():
    matched = lambda of: desired.budget(of, FINGERPRINT)["spec"]["selector"]["matchLabels"]  # noqa: E731
    assert matched(several()) == {LABEL_SET: f"support-{FINGERPRINT[:8]}"}
    assert matched(group()).keys() == {names.LABEL_GROUP, names.LABEL_REVISION}
