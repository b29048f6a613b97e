"""Lists the steps by which a host replaces the Deployment that it was made of: beside it, warm, switch, remove."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from promptgroup_cli.adoption.host import Adoption
from promptgroup_cli.adoption.workload import GPU, mapping, mappings, name_of
from promptgroup_contract.names import is_object_name

ROUTER = "promptgroup-router"


class Step(NamedTuple):
    """A step of the hand-over."""

    what: str
    commands: tuple[str, ...]


def services(adoption: Adoption, objects: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of the Services that lead to the Deployment's pods."""
    labels = mapping(mapping(adoption.workload.template.get("metadata")).get("labels"))
    result = []
    for item in objects:
        selector = mapping(mapping(item.get("spec")).get("selector"))
        matches = bool(selector) and all(labels.get(key) == value for key, value in selector.items())
        if item.get("kind") == "Service" and matches and is_object_name(name_of(item)):
            result.append(name_of(item))
    return sorted(result)


def owner(adoption: Adoption) -> str:
    """Return the owner of the Deployment, which would create it again; empty if none is recorded."""
    metadata = mapping(adoption.workload.manifest.get("metadata"))
    for item in mappings(metadata.get("ownerReferences")):
        return f"{item.get('kind')} {item.get('name')}"
    labels, annotations = mapping(metadata.get("labels")), mapping(metadata.get("annotations"))
    release = annotations.get("meta.helm.sh/release-name") or labels.get("helm-release-name")
    if release or labels.get("app.kubernetes.io/managed-by") == "Helm":
        return f"Helm release {release}" if release else "a Helm release"
    if "argocd.argoproj.io/tracking-id" in annotations:
        return "an Argo CD Application"
    return ""


def steps(adoption: Adoption, file: str, namespace: str, result: Sequence[str]) -> Iterator[Step]:
    """Yield the steps.

    Args:
        adoption: the host.
        file: of its manifest, as commands name it.
        namespace: of both; empty for the one that kubectl uses.
        result: Services that lead to the Deployment.
    """
    workload = adoption.workload
    name, old = adoption.manifest["metadata"]["name"], workload.name
    at = f"kubectl -n {namespace}" if namespace else "kubectl"
    gpus = _gpus(adoption)
    needs = f": {gpus} GPU{'s'[: gpus != 1]} more for a while" if gpus else ""
    apply = f"{at} apply -f {file}"
    yield Step(f"Put the host beside the Deployment{needs}. It takes no request yet.", (apply,))
    if gpus:
        fewer = max(workload.replicas - 1, 0)
        text = (
            "Only without spare GPUs: write `replicas: 1` into the file first, and take a replica from the Deployment "
            "for each one of the host"
        )
        alone = "" if fewer else ": it is the only one, so that clients wait until the host is Ready"
        yield Step(f"{text}{alone}.", (f"{at} scale deployment {old} --replicas={fewer}",))
    yield Step("Wait until it is Ready.", (f"{at} wait promptgroup/{name} --for=condition=Ready --timeout=60m",))
    subject = (
        "Switch clients to the routers, one after the other: their requests name the same model. The Deployment serves "
        "whoever has not switched"
    )
    switch = (
        f"http://{ROUTER}.{namespace or 'NAMESPACE'}/v1 in the place of http://{result[0] if result else 'SERVICE'}"
    )
    yield Step(f"{subject}.", (f"base URL: {switch}",))
    made_by = owner(adoption)
    if made_by:
        text = f"Remove the Deployment where it is made, which is {made_by}: it would come back otherwise."
        yield Step(text, ())
    else:
        gone = (f"{at} scale deployment {old} --replicas=0", f"{at} delete deployment {old}")
        yield Step("Remove the Deployment once its engines have no more requests.", gone)
    within = f" -n {namespace}" if namespace else ""
    discover = f"kubectl promptgroup discover{within} --host {name} --sample requests.jsonl --all --write guests.yaml"
    text = (
        "Find the prompts that are worth a guest, once clients use the routers. requests.jsonl is your own log of "
        "their requests, a JSON body on each line; routers that run with --keep-samples need none"
    )
    yield Step(f"{text}.", (discover,))


def _gpus(adoption: Adoption) -> int:
    resources = mapping(adoption.workload.container.get("resources"))
    limits = mapping(resources.get("limits"))
    item = sum(int(str(count)) for name, count in limits.items() if str(name).endswith(GPU) and _is_count(count))
    return item * adoption.workload.replicas


def _is_count(value: object) -> bool:
    text = str(value)
    return text.isascii() and text.isdecimal() and len(text) < 5
