"""README: plain Kubernetes. A HorizontalPodAutoscaler scales a PromptGroup through its scale subresource.

There is no metrics server here: what it does then is hold the number of replicas within its bounds.
"""

from harness.group import group, pods, prompt
from harness.images import Images
from promptgroup_local.kubectl import Kubectl, wait_for

NAME = "scaled"


def autoscaler(least: int, most: int) -> dict[str, object]:
    target = {"apiVersion": "promptgroup.dev/v1alpha1", "kind": "PromptGroup", "name": NAME}
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": NAME},
        "spec": {
            "scaleTargetRef": target,
            "minReplicas": least,
            "maxReplicas": most,
            "metrics": [{"type": "Resource", "resource": cpu}],
        },
    }


def test_an_autoscaler_raises_and_lowers_the_replicas(kubectl: Kubectl, images: Images) -> None:
    kubectl.apply(group(NAME, images, prompt("a"), replicas=1))
    kubectl.wait_warm(NAME, "1/1")
    kubectl.apply(autoscaler(3, 4))
    kubectl.wait_warm(NAME, "3/3")

    def able() -> bool | None:
        conditions = (kubectl.get("hpa", NAME) or {})["status"].get("conditions", [])
        return True if ("AbleToScale", "True") in {(item["type"], item["status"]) for item in conditions} else None

    wait_for(able, "the autoscaler to be able to scale", lambda: kubectl.get("hpa", NAME))
    kubectl.apply(autoscaler(1, 2))
    kubectl.wait_warm(NAME, "2/2")
    wait_for(lambda: True if len(pods(kubectl, NAME)) == 2 else None, "the third replica to go")
    scale = kubectl.run("get", "promptgroup", NAME, "--subresource=scale", "-o", "jsonpath={.status.selector}").stdout
    assert f"promptgroup.dev/group={NAME}" in scale
