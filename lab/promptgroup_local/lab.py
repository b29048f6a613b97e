"""A local cluster with the project installed on it: the start of the demo, the real-engine run and the tests.

The manifests are those of a real cluster, unchanged, its two halves each: `kubectl apply -k manifests/control`,
`kubectl apply -k manifests/router`.
"""

from pathlib import Path
from typing import Any

from promptgroup_contract import names
from promptgroup_local.kubectl import Kubectl, wait_for

ROOT = Path(__file__).parents[2]
"""The project's folder."""

ENGINE_IMAGE = "promptgroup.invalid/standin-engine:0.1.0"
"""The stand-in engine's image, on local clusters a program."""


def install_operator(kubectl: Kubectl) -> None:
    """Apply manifests/control and wait until the operator runs."""
    system = kubectl.within("promptgroup-system")
    system.apply_folder(ROOT / "manifests/control")
    system.rolled_out("promptgroup-operator")


def set_operator(kubectl: Kubectl, **settings: object) -> None:
    """Change settings of the operator, and wait until it runs with them."""
    system = kubectl.within("promptgroup-system")
    variables = [f"PROMPTGROUP_OPERATOR_{name.upper()}={value}" for name, value in settings.items()]
    system.run("set", "env", "deployment/promptgroup-operator", *variables)
    system.rolled_out("promptgroup-operator")


def install_router(kubectl: Kubectl) -> None:
    """Apply manifests/router to the namespace, and wait until the router runs."""
    kubectl.apply_folder(ROOT / "manifests/router")
    kubectl.rolled_out("promptgroup-router")


def router_pod(kubectl: Kubectl) -> dict[str, Any]:
    """A router pod that is ready. Services have no data plane on a local cluster: clients use its address."""

    def ready() -> dict[str, Any] | None:
        for pod in kubectl.list("pods", "app.kubernetes.io/name=promptgroup-router"):
            conditions = {condition["type"]: condition["status"] for condition in pod["status"].get("conditions", [])}
            if conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]:
                return pod
        return None

    return wait_for(ready, "a ready router")


def router_url(kubectl: Kubectl) -> str:
    """Base URL of a ready router."""
    return f"http://{router_pod(kubectl)['status']['podIP']}:{names.PORT_ROUTER}"


def router_admin_url(kubectl: Kubectl) -> str:
    """Base URL of the same router's admin port."""
    return f"http://{router_pod(kubectl)['status']['podIP']}:{names.PORT_ROUTER_ADMIN}"


def engine_pods(kubectl: Kubectl, group: str) -> list[dict[str, Any]]:
    """The pods of a group that are not going, by slot."""
    pods = [
        pod
        for pod in kubectl.list("pods", f"{names.LABEL_GROUP}={group}")
        if "deletionTimestamp" not in pod["metadata"]
    ]
    return sorted(pods, key=lambda pod: int(pod["metadata"]["labels"].get(names.LABEL_SLOT, "999999")))


def engine_url(pod: dict[str, Any]) -> str:
    """Base URL of an engine."""
    return f"http://{pod['status']['podIP']}:{names.PORT_ENGINE}"


def group(name: str, model: str, system: str, *, image: str = ENGINE_IMAGE, **spec: Any) -> dict[str, Any]:
    """A PromptGroup whose engines take one (fake) GPU each; `spec` is the rest of it, `replicas` or `sizing` first."""
    return {
        "apiVersion": f"{names.API_GROUP}/{names.API_VERSION}",
        "kind": "PromptGroup",
        "metadata": {"name": name},
        "spec": {
            "model": model,
            "prompt": {"system": system},
            "engine": {"image": image, "resources": {"limits": {"nvidia.com/gpu": 1}}},
            **spec,
        },
    }
