"""PromptGroup → the objects that it wants: a prompt object, a Deployment and a budget a revision, one PromptRoute."""

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from promptgroup_contract import names, table
from promptgroup_contract.encoding import encode_group
from promptgroup_contract.fingerprint import Fingerprint, short
from promptgroup_contract.table import Prompt, PromptRef
from promptgroup_operator.base import durations
from promptgroup_operator.engines import drain_hook, engine_tls, tiers
from promptgroup_operator.engines.dialects import dialect, pod_parts, ranks
from promptgroup_operator.engines.dialects.registry import DIALECTS
from promptgroup_operator.plan import diff
from promptgroup_operator.plan.diff import stamped
from promptgroup_operator.plan.merge import merge
from promptgroup_operator.plan.reserved import reserved
from promptgroup_operator.world.kept import GPU
from promptgroup_operator.world.pod_ranks import pod_ranks
from promptgroup_operator.world.snapshot import CONTAINER, GroupObject, Manifest, Problem

ANNOTATION_CONFIG = pod_parts.CONFIG_ANNOTATION
"""On a pod: the file of settings that its engine reads. A template that sets it gives the engine others."""

STARTUP_MINUTES = 60
"""Longest start of an engine: large weights are pulled and loaded in it."""

ENGINE_USER = 10001
"""User and group of the engine process: no image has it, so nothing in one belongs to it by accident."""

PEERS_KEY_BYTES = 32
"""Length of the key by which routers know each other: that of the hash which they sign with (RFC 2104, section 3)."""


def name(group: GroupObject, fingerprint: Fingerprint) -> str:
    """Return the name of a revision's Deployment and of its prompt object."""
    return f"{group.key.name}-{short(fingerprint)}"


def labels(group: GroupObject, fingerprint: Fingerprint) -> dict[str, str]:
    """Return the labels of everything that belongs to a revision; also its selector."""
    return {names.LABEL_GROUP: group.key.name, names.LABEL_REVISION: short(fingerprint)}


def _metadata(group: GroupObject, object_name: str, **extra: Any) -> dict[str, Any]:
    metadata = {"name": object_name, "namespace": group.key.namespace, **extra}
    metadata["labels"] = {
        "app.kubernetes.io/managed-by": "promptgroup-operator",
        names.LABEL_GROUP: group.key.name,
        **extra.get("labels", {}),
    }
    metadata["ownerReferences"] = [
        {
            "apiVersion": f"{names.API_GROUP}/{names.API_VERSION}",
            "kind": "PromptGroup",
            "name": group.key.name,
            "uid": group.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    return metadata


def prompt_object(group: GroupObject, fingerprint: Fingerprint, prompt: Prompt, kind: str) -> dict[str, Any]:
    """Build the immutable object that keeps a revision's text, whatever its source becomes."""
    optional = {table.TOOLS_KEY: prompt.tools, table.MESSAGES_KEY: prompt.messages}
    data = {table.SYSTEM_KEY: prompt.system} | {key: value for key, value in optional.items() if value}
    if kind == "Secret":
        data = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    annotations = {names.ANNOTATION_FINGERPRINT: fingerprint}
    metadata = _metadata(group, name(group, fingerprint), labels=labels(group, fingerprint), annotations=annotations)
    return stamped({"apiVersion": "v1", "kind": kind, "metadata": metadata, "immutable": True, "data": data})


def deployment(
    group: GroupObject,
    fingerprint: Fingerprint,
    replicas: int,
    prompt_from: PromptRef,
    *,
    records: Mapping[str, str],
    template: Mapping[str, Any] | None = None,
    live: Manifest | None = None,
) -> dict[str, Any]:
    """Build the Deployment of one revision: one pod is replaced at a time, gated by warmth.

    Args:
        group: the PromptGroup.
        fingerprint: the revision.
        replicas: replicas to ask for.
        prompt_from: the object that holds its prompt.
        records: annotations by which it is remembered what becomes of it.
        template: the pod template to keep, of a revision that does not follow the group's engine; its pods would be
            replaced beside those of the release that changes the engine.
        live: the Deployment as it stands. A drain time that alone has changed replaces no engine: its pods keep theirs.
    """
    annotations = {names.ANNOTATION_FINGERPRINT: fingerprint, names.ANNOTATION_PROMPT: prompt_from.kind, **records}
    selector = labels(group, fingerprint)
    return stamped(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": _metadata(group, name(group, fingerprint), labels=selector, annotations=annotations),
            "spec": {
                "replicas": replicas,
                "revisionHistoryLimit": 2,
                "progressDeadlineSeconds": (STARTUP_MINUTES + 5) * 60,
                "strategy": {"type": "RollingUpdate", "rollingUpdate": _rolling(group)},
                "selector": {"matchLabels": selector},
                "template": dict(template)
                if template is not None
                else _pod_template(group, fingerprint, selector, live),
            },
        }
    )


def _rolling(group: GroupObject) -> dict[str, int]:
    """Return how pods of another engine replace others: before one goes, or after it where no GPU is spare."""
    surge = int(group.spec.rollout.surges)
    return {"maxSurge": surge, "maxUnavailable": 1 - surge}


def budget(group: GroupObject, fingerprint: Fingerprint) -> dict[str, Any]:
    """Build the PodDisruptionBudget of a revision that serves: one replica may be evicted, the next when all are warm.

    One of a single replica may go as well: a budget that keeps it would hold up the drain of its node for ever. A
    replica that is not warm serves nothing, and so holds up nothing either.
    """
    selector = labels(group, fingerprint)
    return stamped(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": _metadata(group, name(group, fingerprint), labels=selector),
            "spec": {
                "maxUnavailable": 1,
                "unhealthyPodEvictionPolicy": "AlwaysAllow",
                "selector": {"matchLabels": selector},
            },
        }
    )


def _pod_template(
    group: GroupObject, fingerprint: Fingerprint, selector: dict[str, str], live: Manifest | None
) -> dict[str, Any]:
    template = _engine_template(group)
    settings = _digest(group, template)
    annotations = {names.ANNOTATION_FINGERPRINT: fingerprint, names.ANNOTATION_SETTINGS: settings}
    kept_seconds = (
        drain_hook.kept_seconds(live["spec"]["template"], CONTAINER) if live and settings_of(live) == settings else None
    )
    leaving = _leaving(group, kept_seconds) if _engine_container(template) else {}
    # what makes a pod one of its revision is not the template's to change
    return merge(
        merge({"metadata": {}} | leaving, template), {"metadata": {"labels": selector, "annotations": annotations}}
    )


def _leaving(group: GroupObject, kept: int | None) -> dict[str, Any]:
    """Return how a pod leaves. It is no setting of its engine: it makes no difference to an answer."""
    engine = group.spec.engine
    seconds = kept or drain_hook.drain_seconds(durations.parse(group.spec.rollout.drain_timeout))
    speech, tls = DIALECTS[engine.type], engine.tls is not None
    return drain_hook.pod_parts(speech, CONTAINER, engine.port, seconds, engine.template, tls=tls)


def engine_settings(group: GroupObject) -> str:
    """Return a digest of all that makes two engines interchangeable for any prompt: dialect, model and template.

    The template as the operator makes it, so that image, arguments, port, resources and the user's template count, and
    it makes no difference whether a default is spelled out. Labels and annotations of the user's template count too:
    some of them change what a node does with a pod. Empty when the template cannot be merged.
    """
    try:
        return _digest(group, _engine_template(group))
    except ValueError:
        return ""


def kept_template(live: Manifest) -> dict[str, Any]:
    """Return the pod template of a Deployment as it stands, to be applied as it is.

    Server-side apply makes the operator own with it what the API server added. When the revision follows the group's
    engine again those fields are dropped, and added again with the same values, so that no pod is replaced for that.
    """
    template: dict[str, Any] = live["spec"]["template"]
    metadata = {key: value for key, value in template.get("metadata", {}).items() if value is not None}
    return {**template, "metadata": metadata}


def settings_of(live: Manifest | None) -> str:
    """Return a digest of the engine settings of a Deployment's pods; empty when nobody knows."""
    metadata = live["spec"]["template"].get("metadata", {}) if live is not None else {}
    return str(metadata.get("annotations", {}).get(names.ANNOTATION_SETTINGS, ""))


def step_tokens(group: GroupObject, live: Manifest | None) -> int:
    """Return the most tokens that one step of a revision's engines computes; 0 when their arguments do not say.

    Args:
        group: the PromptGroup.
        live: the revision's Deployment as it stands.
    """
    template = live["spec"]["template"] if live is not None else {}
    return dialect.step_tokens(DIALECTS[group.spec.engine.type], _arguments(template))


def ranks_of(live: Manifest | None) -> int:
    """Return the data-parallel ranks of the engines of a Deployment's pods; 1 when nobody knows."""
    return pod_ranks(_engine_container(live["spec"]["template"])) if live is not None else 1


def _arguments(template: dict[str, Any]) -> list[str]:
    """Return the engine container's arguments. The API server has not seen the template: it may be of any shape."""
    args = _engine_container(template).get("args")
    return [arg for arg in args if isinstance(arg, str)] if isinstance(args, list) else []


def _engine_container(template: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the engine's container of a template of any shape; empty where it has none."""
    match template:
        case {"spec": {"containers": [*containers]}}:
            result = (
                container
                for container in containers
                if isinstance(container, dict) and container.get("name") == CONTAINER
            )
            return next(result, {})
        case _:
            return {}


def _digest(group: GroupObject, template: dict[str, Any]) -> str:
    whole = [group.spec.engine.type, group.spec.model, template]
    return hashlib.sha256(json.dumps(whole, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]


def _engine_template(group: GroupObject) -> dict[str, Any]:
    """Return the pod template without what ties a pod to its revision: alike for all groups with the same engines.

    Raises:
        ValueError: the user's template cannot be merged.
    """
    engine = group.spec.engine
    speech = DIALECTS[engine.type]
    scheme = {"scheme": "HTTPS"} if engine.tls is not None else {}  # of which kubelets verify no certificate
    health = {"httpGet": {"path": speech.health, "port": "http", **scheme}}
    given_up = {"terminationGracePeriodSeconds": drain_hook.UNHEALTHY_SECONDS}
    keyed = speech.key_args if engine.credential_from is not None else ()
    secured = speech.tls_args if engine.tls is not None and engine.tls.secret_name is not None else ()
    ranked = ranks.rank_args(speech, engine)
    parts = tiers.parts(group.spec)
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": engine.image,
        "args": dialect.arguments(
            speech, group.spec.model, engine.port, (*keyed, *secured, *ranked, *parts.args, *engine.args)
        ),
        "env": [
            # the process has no home and no passwd entry; engines keep compile caches there and ask for its name
            {"name": "HOME", "value": "/home/engine"},
            {"name": "USER", "value": CONTAINER},
        ],
        "ports": [{"name": "http", "containerPort": engine.port, "protocol": "TCP"}],
        "resources": engine.resources.model_dump(exclude_none=True),
        "startupProbe": {
            **health,
            "periodSeconds": 1,
            "timeoutSeconds": 5,
            "failureThreshold": STARTUP_MINUTES * 60,
            **given_up,
        },
        "readinessProbe": {**health, "periodSeconds": 5, "timeoutSeconds": 5, "failureThreshold": 3},
        "livenessProbe": {
            **health,
            "periodSeconds": 10,
            "timeoutSeconds": 10,
            "failureThreshold": drain_hook.SILENT_SECONDS // 10,
            **given_up,
        },
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        # where it leaves no message of its own, its status has the end of its log: what the conditions tell of a crash
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": "home", "mountPath": "/home/engine"}],
    }
    base = {
        "metadata": {},
        "spec": {
            "automountServiceAccountToken": False,
            "containers": [container],
            # a Service named vllm would set VLLM_PORT=tcp://...: engines take such variables for their settings
            "enableServiceLinks": False,
            "readinessGates": [{"conditionType": names.CONDITION_PREFIX_WARM}],
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": ENGINE_USER,
                "runAsGroup": ENGINE_USER,
                "fsGroup": ENGINE_USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "volumes": [{"name": "home", "emptyDir": {}}],
        },
    }
    secure = engine_tls.pod_parts(engine, CONTAINER)
    tiered = _tiered(speech, container, parts, engine.template)
    product = (_told(speech, parts), _credential(group, speech), secure, tiered)
    for part in (*product, dict(engine.template)):
        base = merge(base, part)
    return base


def _mounts(template: Mapping[str, Any], path: str) -> bool:
    """Return True if a template, which may have any form, mounts something there for the engine."""
    mounts = _engine_container(template).get("volumeMounts")
    return isinstance(mounts, list) and any(
        isinstance(mount, dict) and mount.get("mountPath") == path for mount in mounts
    )


def _tiered(
    speech: dialect.Dialect, container: Mapping[str, Any], parts: pod_parts.PodParts, template: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what KV tiers add to a pod beside what its engine is told: volumes, and a gate before the engine.

    Where the template mounts shared memory, it is the template's: other pods may keep theirs in the same place.
    """
    spec: dict[str, Any] = {}
    mounts, volumes = [], []
    if parts.claim:
        mounts.append({"name": "kv", "mountPath": pod_parts.FOLDER})
        volumes.append({"name": "kv", "persistentVolumeClaim": {"claimName": parts.claim}})
    engine: dict[str, Any] = {"name": CONTAINER, "volumeMounts": mounts}
    several = parts.shared_memory != "" or _on_several_gpus(speech, container, template)
    if several and not _mounts(template, pod_parts.SHARED_MEMORY):
        size = {"sizeLimit": parts.shared_memory} if parts.shared_memory else {}
        mounts.append({"name": "shm", "mountPath": pod_parts.SHARED_MEMORY})
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory", **size}})
        if parts.left_behind:
            # the volume outlives the container: what an engine left that was killed would fill it for the next one
            engine["lifecycle"] = {"postStart": {"exec": {"command": ["sh", "-c", f"rm -f {parts.left_behind}"]}}}
    if volumes:
        spec |= {"containers": [engine], "volumes": volumes}
    if parts.awaits is not None:
        # the engine's image: it is pulled anyway, and has a Python
        gate = {"name": tiers.GATE, "image": container["image"], "command": parts.gate}
        spec["initContainers"] = [{**gate, "securityContext": container["securityContext"]}]
    return {"spec": spec} if spec else {}


def _on_several_gpus(speech: dialect.Dialect, container: Mapping[str, Any], template: Mapping[str, Any]) -> bool:
    """Return True if an engine has several processes, which need more shared memory than the 64 MiB of a container.

    Args:
        speech: the engine's dialect.
        container: the engine's as the spec asks for it.
        template: spec.engine.template, of any form, whose arguments and resources take the place of those.
    """
    try:
        merged = merge({"spec": {"containers": [dict(container)]}}, dict(template))
    except ValueError:
        return False
    if dialect.is_parallel(speech, _arguments(merged)):
        return True
    match _engine_container(merged).get("resources"):
        case {"limits": dict(limits)}:
            gpus = [diff.quantity(count) or 0 for name, count in limits.items() if str(name).endswith(GPU)]
            return sum(gpus) > 1
        case _:
            return False


def _credential(group: GroupObject, speech: dialect.Dialect) -> dict[str, Any]:
    """Return what makes an engine ask for its API key, and tells others where that is; the key stays in its Secret."""
    source = group.spec.engine.credential_from
    if source is None:
        return {}
    result: dict[str, Any] = {"metadata": {"annotations": {names.ANNOTATION_CREDENTIAL: f"{source.name}/{source.key}"}}}
    if speech.key_env:
        reference = {"secretKeyRef": {"name": source.name, "key": source.key}}
        env = [{"name": speech.key_env, "valueFrom": reference}]
        result["spec"] = {"containers": [{"name": CONTAINER, "env": env}]}
    return result


def _told(speech: dialect.Dialect, parts: pod_parts.PodParts) -> dict[str, Any]:
    """Return what an engine must be told beside its arguments: variables, the pod's address, settings from a file."""
    container: dict[str, Any] = {"name": CONTAINER, "env": [{"name": k, "value": v} for k, v in speech.env.items()]}
    result: dict[str, Any] = {"spec": {"containers": [container]}}
    container["env"].append({"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}})
    container["env"] += [{"name": k, "value": v} for k, v in parts.env.items()]  # which may refer to the address
    config = speech.config + parts.config
    if config:
        folder, _, file = pod_parts.CONFIG_FILE.rpartition("/")
        item = {"path": file, "fieldRef": {"fieldPath": f"metadata.annotations['{ANNOTATION_CONFIG}']"}}
        result["metadata"] = {"annotations": {ANNOTATION_CONFIG: config}}
        result["spec"]["volumes"] = [{"name": "config", "downwardAPI": {"items": [item]}}]
        container["volumeMounts"] = [{"name": "config", "mountPath": folder}]
    return result


def template_problem(group: GroupObject) -> Problem | None:
    """Return what is wrong with the group's pod template: it cannot be merged, or sets what is the product's own."""
    try:
        _engine_template(group)
    except ValueError as error:
        return Problem("InvalidTemplate", f"spec.engine.template: {error}")
    taken = reserved(group.spec.engine.template, allowed={ANNOTATION_CONFIG})
    return Problem("InvalidTemplate", f"spec.engine.template: {taken}") if taken else None


def ranks_problem(group: GroupObject) -> Problem | None:
    """Return what is wrong with the data-parallel ranks of the group's engines; its template can be merged."""
    problem = ranks.ranks_problem(group.spec.engine, _engine_container(_engine_template(group)))
    return Problem("InvalidRanks", problem) if problem else None


def cache_problem(group: GroupObject) -> Problem | None:
    """Return why the group's KV tiers cannot work as its spec says; its template can be merged."""
    problem = tiers.problem(group.spec, diff.quantity((group.spec.engine.resources.limits or {}).get("memory")))
    parts = tiers.parts(group.spec)
    made = _engine_template(group)
    if not problem and not set(parts.args) <= set(_arguments(made)):
        problem = "spec.engine.template replaces the engine's arguments, which spec.cache adds to: use spec.engine.args"
    if not problem and parts.config and ANNOTATION_CONFIG in _annotations(group.spec.engine.template):
        problem = f"spec.engine.template sets {ANNOTATION_CONFIG}, where spec.cache has to write: remove one of the two"
    return Problem("InvalidCache", problem) if problem else None


def _annotations(template: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = template.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    return annotations if isinstance(annotations, Mapping) else {}


def prompt_route(group: GroupObject, route: table.Group, guest: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Build the PromptRoute of the group.

    Args:
        group: the PromptGroup.
        route: what routers shall see.
        guest: what is remembered of a guest; None for a group with an engine of its own.
    """
    remembered = {"guest": dict(guest)} if guest is not None else {}
    return stamped(
        {
            "apiVersion": f"{names.API_GROUP}/{names.API_VERSION}",
            "kind": "PromptRoute",
            "metadata": _metadata(group, group.key.name),
            "spec": {**encode_group(route), **remembered},
        }
    )


def inference_pool(group: GroupObject, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Build the InferencePool of the group."""
    return stamped(
        {
            "apiVersion": f"{names.INFERENCE_GROUP}/v1",
            "kind": "InferencePool",
            "metadata": _metadata(group, group.key.name),
            "spec": dict(spec),
        }
    )


def peers_secret(namespace: str, key: bytes) -> dict[str, Any]:
    """Build the Secret with which a namespace's routers authenticate each other: created once, never written again.

    It belongs to the namespace, not to a group: no owner, so it outlives the last group, as the routers that mounted
    it may. Deleting it makes a new key; the routers exchange nothing until all of them have read that one.
    """
    labels = {"app.kubernetes.io/managed-by": "promptgroup-operator", "app.kubernetes.io/name": "promptgroup-router"}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": names.SECRET_PEERS, "namespace": namespace, "labels": labels},
        "data": {names.KEY_PEERS: base64.b64encode(key).decode()},
    }
