"""Decides on the parts of a pod that give its engine the model's weights on a read-only volume."""

from collections.abc import Mapping
from typing import Any

from promptgroup_operator.api.prompt_group import EngineSpec
from promptgroup_operator.engines.dialects.dialect import Dialect
from promptgroup_operator.engines.dialects.pod_parts import volume_mounts

WEIGHTS_PATH = "/weights"
"""Path at which an engine has the volume with the weights."""
VOLUME = "model-weights"
"""Name of that volume."""


def model_path(engine: EngineSpec, model: str) -> str:
    """Return the argument that names what the engine loads: the path of the weights, or the model's name."""
    if engine.weights is None:
        return model
    return f"{WEIGHTS_PATH}/{engine.weights.path}" if engine.weights.path else WEIGHTS_PATH


def model_args(dialect: Dialect, engine: EngineSpec, model: str) -> tuple[str, ...]:
    """Return the arguments by which an engine that loads from a path serves the model under its name."""
    return (dialect.served_name.format(model=model),) if engine.weights is not None else ()


def pod_parts(engine: EngineSpec, container: str) -> dict[str, Any]:
    """Return the part of a pod template with the volume of the weights.

    Args:
        engine: the spec.
        container: name of the engine's container.
    """
    source = volume(engine)
    if not source:
        return {}
    mount = {"name": VOLUME, "mountPath": WEIGHTS_PATH, "readOnly": True}
    return {"spec": {"containers": [{"name": container, "volumeMounts": [mount]}], "volumes": [source]}}


def volume(engine: EngineSpec) -> dict[str, Any]:
    """Return the volume of the weights; empty where the engine has none."""
    weights = engine.weights
    if weights is None:
        return {}
    if weights.image is not None:
        policy = {"pullPolicy": weights.pull_policy.value} if weights.pull_policy is not None else {}
        return {"name": VOLUME, "image": {"reference": weights.image, **policy}}
    return {"name": VOLUME, "persistentVolumeClaim": {"claimName": weights.claim_name, "readOnly": True}}


def problem(engine: EngineSpec, container: Mapping[str, Any]) -> str:
    """Return the problem that the template takes away the volume of the weights, with the remedy; empty without one.

    Args:
        engine: the spec.
        container: the engine's container in the template as it was merged.
    """
    if engine.weights is None:
        return ""
    at_path = [mount for mount in volume_mounts(container) if mount.get("mountPath") == WEIGHTS_PATH]
    if [mount.get("name") for mount in at_path] != [VOLUME]:
        return f"spec.engine.template mounts at {WEIGHTS_PATH}, where spec.engine.weights are: use another path"
    return ""
