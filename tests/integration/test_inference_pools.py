"""The operator makes a group's InferencePool, reads what gateways say, and lives without the CRD: a real API server."""

import pytest

from promptgroup_contract import names
from promptgroup_local.inferencepools import inference_pools, told_by_a_gateway
from promptgroup_local.kubectl import Kubectl, wait_for
from support.groups import PROMPTS, group

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def pool(kube: Kubectl, name: str) -> dict | None:
    return kube.get("inferencepool", name)


def members(kube: Kubectl, name: str) -> dict[str, str]:
    """Pod → slot, of the pods that the pool's selector finds."""
    found = wait_for(lambda: pool(kube, name), "the InferencePool")
    selector = ",".join(f"{key}={value}" for key, value in found["spec"]["selector"]["matchLabels"].items())
    pods = kube.list("pods", selector)
    return {each["metadata"]["name"]: each["metadata"]["labels"][names.LABEL_SLOT] for each in pods}


def wait_members(kube: Kubectl, name: str, count: int) -> dict[str, str]:
    return wait_for(
        lambda: found if len(found := members(kube, name)) == count else None,
        f"{count} members",
        lambda: str(members(kube, name)),
    )


def test_the_life_of_an_inference_pool(kube: Kubectl, operator: None) -> None:
    kube.apply(group("support", replicas=2, gateway={"failureMode": "FailOpen"}))
    kube.wait_condition("support", "GatewayProgrammed", "False", "NoCRD")
    kube.wait_warm("support", "2/2")
    kube.wait_condition("support", "Ready", "True")  # routers serve it all the same

    with inference_pools(kube):
        kube.wait_condition("support", "GatewayProgrammed", "False", "NoParent")
        assert len(wait_members(kube, "support", 2)) == 2
        made = pool(kube, "support") or {}
        assert made["spec"]["endpointPickerRef"] == {
            "group": "",
            "kind": "Service",
            "name": "promptgroup-picker",
            "port": {"number": 9002},
            "failureMode": "FailOpen",
        }
        assert [(each["kind"], each["name"]) for each in made["metadata"]["ownerReferences"]] == [
            ("PromptGroup", "support")
        ]

        told_by_a_gateway(kube, "support", resolved=False)
        kube.wait_condition("support", "GatewayProgrammed", "False", "NotAccepted")
        told_by_a_gateway(kube, "support")
        said = kube.wait_condition("support", "GatewayProgrammed", "True", "PoolAccepted")
        assert "Gateway public" in said["message"]

        # another group joins, and no pod is replaced for that
        kube.apply(group("billing", PROMPTS["b"], replicas=1))
        kube.wait_warm("billing", "1/1")
        before = [each["metadata"]["uid"] for each in kube.list("pods", f"{names.LABEL_GROUP}=billing")]
        version = (pool(kube, "support") or {})["metadata"]["resourceVersion"]
        kube.patch("promptgroup", "billing", {"spec": {"gateway": {"inferencePool": "support"}}})
        kube.wait_condition("billing", "GatewayProgrammed", "True", "PoolAccepted")
        wait_members(kube, "support", 3)
        assert [each["metadata"]["uid"] for each in kube.list("pods", f"{names.LABEL_GROUP}=billing")] == before
        assert pool(kube, "billing") is None

        # a replica that leaves is no member any more while it is still there
        kube.patch("promptgroup", "support", {"spec": {"replicas": 1}})
        wait_members(kube, "support", 2)
        assert (pool(kube, "support") or {})["metadata"]["resourceVersion"] == version  # nothing wrote it

        kube.patch("promptgroup", "support", {"spec": {"gateway": {"failureMode": "FailClose"}}})
        wait_for(
            lambda: True if (pool(kube, "support") or {})["metadata"]["generation"] == 2 else None, "the other mode"
        )

        kube.patch("promptgroup", "support", {"spec": {"gateway": None}})
        wait_for(lambda: True if pool(kube, "support") is None else None, "the InferencePool to go")
        kube.wait_condition("billing", "GatewayProgrammed", "False", "NoPool")
        label = f"{names.LABEL_INFERENCE_POOL}=support,{names.LABEL_GROUP}=support"
        wait_for(lambda: True if kube.list("pods", label) == [] else None, "its replicas to leave it")
        conditions = (kube.get("promptgroup", "support") or {})["status"]["conditions"]
        assert "GatewayProgrammed" not in {each["type"] for each in conditions}

    kube.wait_condition("billing", "GatewayProgrammed", "False", "NoCRD")


def test_somebody_elses_pool_of_the_groups_name_is_left_alone(kube: Kubectl, operator: None) -> None:
    theirs = {
        "apiVersion": "inference.networking.k8s.io/v1",
        "kind": "InferencePool",
        "metadata": {"name": "support"},
        "spec": {
            "selector": {"matchLabels": {"app": "theirs"}},
            "targetPorts": [{"number": 80}],
            "endpointPickerRef": {"name": "theirs", "port": {"number": 1}},
        },
    }
    with inference_pools(kube):
        kube.apply(theirs)
        before = pool(kube, "support")
        kube.apply(group("support", replicas=1, gateway={}))
        kube.wait_condition("support", "GatewayProgrammed", "False", "NameTaken")
        kube.wait_warm("support", "1/1")
        kube.delete("promptgroup", "support")
        assert pool(kube, "support") == before
