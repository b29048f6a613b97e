import pytest

from promptgroup_cli.adoption.decision import Verdict
from promptgroup_cli.adoption.pod import is_without_surge, of_deployment, parts
from promptgroup_cli.adoption.workload import find


def workload(pod=None, container=None, metadata=None, **spec):
    whole = {"name": "vllm", **(container or {})}
    template = {"metadata": metadata or {}, "spec": {"containers": [whole], **(pod or {})}}
    return find([{"kind": "Deployment", "metadata": {"name": "a"}, "spec": {"template": template, **spec}}])


def told(made, field):
    return next((each.verdict, each.why) for each in made.decisions if each.field == field)


def test_where_pods_run_stays_and_how_they_are_found_does_not():
    pod = {"nodeSelector": {"a": "b"}, "hostNetwork": True, "hostname": "x", "newField": 3, "dnsPolicy": "ClusterFirst"}
    made = parts(workload(pod, metadata={"labels": {"app": "x"}}), 8000)
    assert made.spec == {"nodeSelector": {"a": "b"}}
    assert told(made, "pod labels")[0] is Verdict.LEFT_OUT
    assert "share its ports" in told(made, "pod hostNetwork")[1]
    assert "not known here" in told(made, "pod newField")[1]
    assert all(each.field != "pod dnsPolicy" for each in made.decisions)


def test_annotations_of_whoever_made_the_deployment_are_left_out():
    annotations = {"prometheus.io/scrape": "true", "checksum/config": "1", "promptgroup.dev/x": "1"}
    made = parts(workload(metadata={"annotations": annotations}), 8000)
    assert made.annotations == {"prometheus.io/scrape": "true"}


def test_mounts_below_roots_home_move_unless_the_pod_names_its_user():
    mounts = {"volumeMounts": [{"name": "w", "mountPath": "/root/.cache"}, {"name": "x", "mountPath": "/rooted"}]}
    made = parts(workload(container=mounts), 8000)
    assert [each["mountPath"] for each in made.container["volumeMounts"]] == ["/home/engine/.cache", "/rooted"]
    as_root = parts(workload({"securityContext": {"runAsUser": 0}}, mounts), 8000)
    assert as_root.container["volumeMounts"][0]["mountPath"] == "/root/.cache"
    assert "refuses root" in told(as_root, "securityContext")[1]
    assert workload(container=mounts).container == {"name": "vllm", **mounts}


def test_the_key_of_an_engine_becomes_its_credential():
    reference = {"valueFrom": {"secretKeyRef": {"name": "keys", "key": "vllm"}}}
    made = parts(workload(container={"env": [{"name": "VLLM_API_KEY", **reference}]}), 8000)
    assert (made.credential, made.container) == ({"name": "keys", "key": "vllm"}, {})
    plain = parts(workload(container={"env": [{"name": "VLLM_API_KEY", "value": "hidden"}]}), 8000)
    assert plain.credential is None
    assert "hidden" not in str(plain)


def test_a_token_in_plain_text_is_told():
    made = parts(workload(container={"env": [{"name": "HF_TOKEN", "value": "x"}]}), 8000)
    assert "plain text" in told(made, "env HF_TOKEN")[1]


def test_containers_beside_the_engine_are_left_out_and_those_before_it_stay():
    pod = {
        "initContainers": [{"name": "download"}, {"name": "proxy", "restartPolicy": "Always"}],
        "containers": [{"name": "vllm"}, {"name": "sidecar"}],
    }
    made = parts(workload(pod), 8000)
    assert made.spec == {"initContainers": [{"name": "download"}]}
    assert told(made, "container sidecar")[0] is told(made, "init container proxy")[0] is Verdict.LEFT_OUT


def test_ports_beside_the_engines_stay_without_names():
    ports = [{"containerPort": 8000, "name": "http"}, {"containerPort": 5557, "name": "http2"}]
    assert parts(workload(container={"ports": ports}), 8000).container == {"ports": [{"containerPort": 5557}]}


def test_selectors_and_volumes_have_words_of_care():
    pod = {
        "affinity": {"podAntiAffinity": {"x": [{"labelSelector": {}}]}},
        "volumes": [{"name": "w", "persistentVolumeClaim": {"claimName": "w"}}],
    }
    made = parts(workload(pod), 8000)
    assert "promptgroup.dev/group" in told(made, "pod affinity")[1]
    assert "ReadWriteMany" in told(made, "pod volumes")[1]
    assert "hostPath" in told(parts(workload({"volumes": [{"name": "w", "hostPath": {}}]}), 8000), "pod volumes")[1]


@pytest.mark.parametrize(
    ("strategy", "without"),
    [
        ({"type": "Recreate"}, True),
        ({"rollingUpdate": {"maxSurge": 0}}, True),
        ({"rollingUpdate": {"maxSurge": "25%"}}, False),
        (None, False),
    ],
)
def test_a_deployment_without_surge_is_a_group_without_it(strategy, without):
    found = workload(strategy=strategy, minReadySeconds=5, revisionHistoryLimit=10)
    assert is_without_surge(found) is without
    assert "minReadySeconds" in [each.field for each in of_deployment(found)]
    assert "revisionHistoryLimit" not in [each.field for each in of_deployment(found)]
