"""Builds the manifest of a host, a PromptGroup without a prompt, from the converted fields of the Deployment."""

from dataclasses import dataclass
from typing import Any

from promptgroup_cli.adoption import arguments, pod, startup
from promptgroup_cli.adoption.decision import AdoptionError, FieldDecision, Verdict
from promptgroup_cli.adoption.startup import Startup
from promptgroup_cli.adoption.workload import EngineDeployment, mapping
from promptgroup_contract import names
from promptgroup_operator.api.prompt_group import MAX_NAME, EngineSpec, EngineType
from promptgroup_operator.engines.dialects.registry import DIALECTS

MODEL_FOLDER = "/mnt/models"
"""Path at which KServe's webhook mounts a model for its own pods."""
_SOURCE = "internal.serving.kserve.io/storage-initializer-sourceuri"
_HUB = "hf://"


@dataclass(frozen=True, slots=True)
class Adoption:
    """A Deployment as a host."""

    workload: EngineDeployment
    start: Startup
    manifest: dict[str, Any]
    """The PromptGroup."""
    decisions: tuple[FieldDecision, ...]


def adopt(workload: EngineDeployment, name: str = "") -> Adoption:
    """Return a Deployment as a host.

    Args:
        workload: the Deployment.
        name: of the PromptGroup; that of the Deployment if empty.

    Raises:
        AdoptionError: it cannot be one.
    """
    if len(name or workload.name) > MAX_NAME:
        raise AdoptionError(f"{workload.name} is longer than {MAX_NAME} characters: give another name with --name")
    started = startup.read(workload.container)
    decided: list[FieldDecision] = [
        FieldDecision("image", Verdict.UNCHANGED, "engine.image"),
        FieldDecision("replicas", Verdict.UNCHANGED),
        *pod.of_deployment(workload),
    ]
    flags = list(arguments.remaining(started))
    decided += [decision for _, decision in flags]
    words = [word for flag, _ in flags if flag is not None for word in flag.words]
    weights = _weights(workload, started, decided)
    made = pod.parts(workload, started.port)
    decided += made.decisions
    engine: dict[str, Any] = {"image": str(workload.container.get("image") or "")}
    if started.engine is not EngineType.VLLM:
        engine = {"type": started.engine.value, **engine}
    if started.port != EngineSpec.model_fields["port"].default:
        engine["port"] = started.port
    if made.credential is not None:
        engine["credentialFrom"] = made.credential
    starts, extra = _starts(started, weights, words, decided)
    if extra:
        engine["args"] = extra
    resources = mapping(workload.container.get("resources"))
    if resources:
        engine["resources"] = {
            key: {name: _quantity(value) for name, value in mapping(resources.get(key)).items()}
            for key in ("limits", "requests")
            if mapping(resources.get(key))
        }
        decided.append(FieldDecision("resources", Verdict.UNCHANGED, "engine.resources"))
    template = _template(made, starts)
    if template:
        engine["template"] = template
    return Adoption(workload, started, _manifest(workload, started, name, engine), tuple(decided))


def _quantity(value: object) -> object:
    """Return a quantity as a PromptGroup has it: YAML reads 0.5 as a number, which has to be a text."""
    return str(value) if isinstance(value, float) else value


def _template(made: pod.KeptPodParts, starts: dict[str, Any]) -> dict[str, Any]:
    """Return `spec.engine.template`: the fields of the pods that remain, and the start of their engine."""
    container = {**starts, **made.container}
    spec = {**made.spec, **({"containers": [{"name": "engine", **container}]} if container else {})}
    metadata = {"metadata": {"annotations": made.annotations}} if made.annotations else {}
    return metadata | ({"spec": spec} if spec else {})


def _manifest(workload: EngineDeployment, started: Startup, name: str, engine: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name or workload.name}
    if workload.namespace:
        metadata["namespace"] = workload.namespace
    spec: dict[str, Any] = {"model": started.names[0]}
    if len(started.names) > 1:
        spec["modelAliases"] = list(started.names[1:])
    spec |= {"engine": engine, "replicas": workload.replicas}
    if pod.is_without_surge(workload):
        spec["rollout"] = {"maxSurge": 0}
    kind = {"apiVersion": f"{names.API_GROUP}/{names.API_VERSION}", "kind": "PromptGroup"}
    return {**kind, "metadata": metadata, "spec": spec}


def _starts(
    started: Startup, weights: str, words: list[str], decided: list[FieldDecision]
) -> tuple[dict[str, Any], list[str]]:
    """Return the template's fields for the start of the engine, and `spec.engine.args`.

    The operator's words name the model by its name. Where that is not where its weights are, vLLM takes the first word
    whatever follows, so that the template has all of them; SGLang takes the last flag.
    """
    name = started.names[0]
    if started.engine is EngineType.SGLANG:
        if started.command:
            decided.append(FieldDecision("command", Verdict.LEFT_OUT, "the operator starts SGLang's server itself"))
        return {}, words if weights == name else [f"--model-path={weights}", f"--served-model-name={name}", *words]
    made: dict[str, Any] = {}
    if started.command:
        made["command"] = list(started.command) if started.command[-1] == "serve" else ["vllm", "serve"]
        same = made["command"] == list(started.command)
        why = "" if same else "vllm serve, which takes the operator's arguments"
        decided.append(FieldDecision("command", Verdict.UNCHANGED if same else Verdict.CHANGED, why))
    if weights == name:
        return made, words
    own = [word.format(model=weights, port=started.port) for word in DIALECTS[started.engine].args]
    made["args"] = [*own, f"--served-model-name={name}", *words]
    return made, []


def _weights(workload: EngineDeployment, started: Startup, decided: list[FieldDecision]) -> str:
    """Return the model's name or path; for KServe's folder the model that its webhook loads into it."""
    result = {
        **mapping(mapping(workload.manifest.get("metadata")).get("annotations")),
        **mapping(mapping(workload.template.get("metadata")).get("annotations")),
    }
    source = str(result.get(_SOURCE) or "")
    if source.startswith(_HUB) and started.weights.rstrip("/") == MODEL_FOLDER:
        weights = source.removeprefix(_HUB).partition(":")[0]
        why = f"{weights}: KServe's webhook loads it for KServe's own pods; engines load it by themselves"
        decided.append(FieldDecision(f"model {started.weights}", Verdict.CHANGED, why))
        return weights
    if source:
        why = f"KServe's webhook brings {source} for its own pods only: mount the volume with the model at that path"
        decided.append(FieldDecision(f"model {started.weights}", Verdict.UNCHANGED, why))
    return started.weights
