"""Finds the Deployment to adopt among manifests, and its engine's container. Their content is not trusted."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from promptgroup_cli.adoption.decision import AdoptionError
from promptgroup_contract.names import is_object_name

Manifest = Mapping[str, Any]

NOT_PLAIN = {
    "InferenceService": "KServe makes a Deployment NAME-predictor of it: adopt that",
    "LLMInferenceService": "KServe makes a Deployment NAME-kserve of it: adopt that",
    "VLLMRuntime": "the production stack makes a Deployment of it: adopt that",
    "LeaderWorkerSet": "engines of several nodes cannot be replicas of a PromptGroup",
    "RayCluster": "engines of several nodes cannot be replicas of a PromptGroup",
    "RayService": "engines of several nodes cannot be replicas of a PromptGroup",
    "StatefulSet": "replicas of a PromptGroup have no identity of their own: adopt a Deployment",
}
"""Kinds that run engines and are no Deployment → remedy."""
GPU = "/gpu"
"""End of the names of resources that are GPUs."""
ENGINE_NAMES = ("vllm", "sglang", "kserve-container", "engine", "main", "server")
"""Names that engines' containers usually have, the likeliest first."""


@dataclass(frozen=True, slots=True)
class EngineDeployment:
    """A Deployment with one engine a pod."""

    name: str
    namespace: str
    """Empty where the manifest names none."""
    manifest: Manifest
    container: Manifest
    """The engine's."""

    @property
    def spec(self) -> Manifest:
        """The spec of the Deployment."""
        return mapping(self.manifest.get("spec"))

    @property
    def template(self) -> Manifest:
        """Its pod template."""
        return mapping(self.spec.get("template"))

    @property
    def pod(self) -> Manifest:
        """The spec of its pods."""
        return mapping(self.template.get("spec"))

    @property
    def replicas(self) -> int:
        """Its replicas."""
        count = self.spec.get("replicas", 1)
        return count if type(count) is int and count >= 0 else 1


def mapping(value: object) -> Manifest:
    """Return a map, empty in the place of anything else."""
    return value if isinstance(value, Mapping) else {}


def mappings(value: object) -> list[Manifest]:
    """Return the maps of a list, none in the place of anything else."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def objects(documents: Sequence[object]) -> Iterator[Manifest]:
    """Yield the objects of documents, and of the Lists among them."""
    for document in documents:
        whole = mapping(document)
        if str(whole.get("kind", "")).endswith("List"):
            yield from mappings(whole.get("items"))
        elif whole:
            yield whole


def find(documents: Sequence[object], name: str = "") -> EngineDeployment:
    """Return the Deployment to adopt.

    Args:
        documents: parsed manifests.
        name: of the Deployment; empty if there is but one with an engine.

    Raises:
        AdoptionError: there is none, or more than one.
    """
    result = list(objects(documents))
    deployments = [item for item in result if item.get("kind") == "Deployment" and (not name or name_of(item) == name)]
    if not deployments:
        raise AdoptionError(_none(result, name))
    if len(deployments) > 1:
        with_gpu = [
            deployment
            for deployment in deployments
            if any(_has_gpu(container) for container in _containers(deployment))
        ]
        if len(with_gpu) != 1:
            names = ", ".join(sorted(name_of(deployment) for deployment in deployments))
            raise AdoptionError(f"{len(deployments)} Deployments ({names}): name the one to adopt")
        deployments = with_gpu
    (manifest,) = deployments
    namespace = str(mapping(manifest.get("metadata")).get("namespace") or "")
    if not is_object_name(name_of(manifest)) or (namespace and not is_object_name(namespace)):
        raise AdoptionError("the Deployment has no name, or one that no object can have")
    return EngineDeployment(name_of(manifest), namespace, manifest, _engine(manifest))


def name_of(manifest: Manifest) -> str:
    """Return the name of an object."""
    return str(mapping(manifest.get("metadata")).get("name") or "")


def _none(manifests: Sequence[Manifest], name: str) -> str:
    for item in manifests:
        kind = str(item.get("kind"))
        if kind in NOT_PLAIN:
            return f"{kind} {name_of(item)} is no Deployment: {NOT_PLAIN[kind]}"
    kinds = ", ".join(sorted({str(item.get("kind")) for item in manifests})) or "nothing"
    return f"no Deployment{f' {name}' if name else ''} there, but {kinds}: name a Deployment that runs vLLM or SGLang"


def _containers(manifest: Manifest) -> list[Manifest]:
    template = mapping(mapping(manifest.get("spec")).get("template"))
    return mappings(mapping(template.get("spec")).get("containers"))


def _engine(manifest: Manifest) -> Manifest:
    containers = _containers(manifest)
    for chosen in (
        [container for container in containers if _has_gpu(container)],
        [container for name in ENGINE_NAMES for container in containers if container.get("name") == name],
        containers,
    ):
        if chosen:
            return chosen[0]
    raise AdoptionError(f"Deployment {name_of(manifest)} has no container")


def _has_gpu(container: Manifest) -> bool:
    limits = mapping(mapping(container.get("resources")).get("limits"))
    return any(str(resource).endswith(GPU) for resource in limits)
