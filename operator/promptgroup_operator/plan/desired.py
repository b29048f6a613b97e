"""Builds the objects of a PromptGroup: a prompt object, a Deployment and a budget per revision, and one PromptRoute."""

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from promptgroup_contract import names, table
from promptgroup_contract.encoding import encode_group
from promptgroup_contract.fingerprint import Fingerprint, short
from promptgroup_contract.table import Prompt, PromptRef
from promptgroup_operator.adapters import identity, problems
from promptgroup_operator.api.prompt_group import PromptGroupSpec
from promptgroup_operator.base import durations
from promptgroup_operator.engines import drain_hook, engine_tls, tiers
from promptgroup_operator.engines.dialects import dialect, pod_parts, ranks
from promptgroup_operator.engines.dialects.registry import DIALECTS
from promptgroup_operator.nodes import engine_args, leader_worker_set
from promptgroup_operator.plan import diff
from promptgroup_operator.plan.diff import stamped
from promptgroup_operator.plan.merge import merge
from promptgroup_operator.plan.reserved import reserved
from promptgroup_operator.weights import prefetch, volume
from promptgroup_operator.world.pod_ranks import container_ranks
from promptgroup_operator.world.snapshot import CONTAINER, GroupObject, Manifest, Problem
from promptgroup_operator.world.trimmed import GPU

ANNOTATION_CONFIG = pod_parts.CONFIG_ANNOTATION
"""Annotation of a pod with the settings file of its engine. A template that sets it replaces the settings."""

STARTUP_MINUTES = 60
"""Time limit for the start of an engine, in which large weights are pulled and loaded."""

ENGINE_USER = 10001
"""User and group id of the engine process: no image uses it, so it owns no file of an image by accident."""

PEERS_KEY_BYTES = 32
"""Length of the key with which routers authenticate each other: that of the signatures' hash (RFC 2104, section 3)."""


def name(group: GroupObject, fingerprint: Fingerprint) -> str:
    """Return the name of a revision's Deployment and of its prompt object."""
    return f"{group.key.name}-{short(fingerprint)}"


def labels(group: GroupObject, fingerprint: Fingerprint) -> dict[str, str]:
    """Return the labels of all objects of a revision; also its selector."""
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
    """Build the immutable object that stores a revision's text independently of its source."""
    optional = {table.TOOLS_KEY: prompt.tools, table.MESSAGES_KEY: prompt.messages, table.ADAPTER_KEY: prompt.adapter}
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
        replicas: number of replicas.
        prompt_from: the object that holds its prompt.
        records: annotations with the state of its release.
        template: the existing pod template of a revision that does not follow the group's engine; otherwise its pods
            would be replaced in parallel to those of the release that changes the engine.
        live: the current Deployment. A change of the drain time alone replaces no engine: its pods keep the old one.
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


def workload(group: GroupObject, deployment: Manifest, standing: Manifest | None) -> Manifest:
    """Return the object that makes the pods of a revision: its Deployment, or a LeaderWorkerSet for several nodes.

    Args:
        group: the PromptGroup.
        deployment: the Deployment that the revision has with one node.
        standing: the current object of a revision that keeps its pod template; None for any other.
    """
    engine = group.spec.engine
    if not engine_args.is_several(engine):
        return deployment
    return stamped(leader_worker_set.of_deployment(deployment, DIALECTS[engine.type], engine, standing))


def _rolling(group: GroupObject) -> dict[str, int]:
    """Return the rolling update strategy: a new pod starts before an old one is removed, or after it without surge."""
    surge = int(group.spec.rollout.surges)
    return {"maxSurge": surge, "maxUnavailable": 1 - surge}


def budget(group: GroupObject, fingerprint: Fingerprint) -> dict[str, Any]:
    """Build the PodDisruptionBudget of a serving revision: one replica may be evicted, the next when all are warm.

    A single replica may be evicted as well, since a stricter budget would block the drain of its node forever. A
    replica that is not warm serves nothing, so it may always be evicted.
    """
    selector = labels(group, fingerprint)
    object_name = name(group, fingerprint)
    return stamped(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": _metadata(group, object_name, labels=selector),
            "spec": {
                "maxUnavailable": 1,
                "unhealthyPodEvictionPolicy": "AlwaysAllow",
                "selector": {
                    "matchLabels": leader_worker_set.budget_selector(group.spec.engine, object_name, selector)
                },
            },
        }
    )


def _pod_template(
    group: GroupObject, fingerprint: Fingerprint, selector: dict[str, str], live: Manifest | None
) -> dict[str, Any]:
    template, settings = _engine_template(group), _settings(group)
    annotations = {names.ANNOTATION_FINGERPRINT: fingerprint, names.ANNOTATION_SETTINGS: settings}
    hook_seconds = (
        drain_hook.hook_seconds(live["spec"]["template"], CONTAINER) if live and settings_of(live) == settings else None
    )
    leaving = _leaving(group, hook_seconds) if _engine_container(template) else {}
    # The user's template cannot change the labels and annotations that identify a pod's revision.
    return merge(
        merge({"metadata": {}} | leaving, template), {"metadata": {"labels": selector, "annotations": annotations}}
    )


def _leaving(group: GroupObject, hooked: int | None) -> dict[str, Any]:
    """Return the drain hook of a pod. It is not part of the engine settings, since it does not affect responses."""
    engine = group.spec.engine
    seconds = hooked or drain_hook.drain_seconds(durations.parse(group.spec.rollout.drain_timeout))
    speech, tls = DIALECTS[engine.type], engine.tls is not None
    return drain_hook.pod_parts(speech, CONTAINER, engine.port, seconds, engine.template, tls=tls)


def engine_settings(group: GroupObject) -> str:
    """Return a digest of the settings that make two engines interchangeable for any prompt: type, model and template.

    The digest covers the final template, so that image, arguments, port, resources and the user's template count, and
    an explicit default makes no difference. Labels and annotations of the user's template count too, since some of them
    change the treatment of a pod on its node. Empty when the template cannot be merged.
    """
    try:
        return _settings(group)
    except ValueError:
        return ""


def standing_template(live: Manifest) -> dict[str, Any]:
    """Return the current pod template of a Deployment, to be applied unchanged.

    With server-side apply, the operator then also owns fields that the API server added. When the revision follows the
    group's engine again, those fields are dropped and added again with the same values, so no pod is replaced.
    """
    template: dict[str, Any] = live["spec"]["template"]
    metadata = {key: value for key, value in template.get("metadata", {}).items() if value is not None}
    return {**template, "metadata": metadata}


def settings_of(live: Manifest | None) -> str:
    """Return the digest of the engine settings of a Deployment's pods; empty when unknown."""
    metadata = live["spec"]["template"].get("metadata", {}) if live is not None else {}
    return str(metadata.get("annotations", {}).get(names.ANNOTATION_SETTINGS, ""))


def step_tokens(group: GroupObject, live: Manifest | None) -> int:
    """Return the maximum of tokens in one step of a revision's engines; 0 when their arguments do not set it.

    Args:
        group: the PromptGroup.
        live: the revision's current Deployment.
    """
    return dialect.step_tokens(DIALECTS[group.spec.engine.type], _live_arguments(live))


def max_sequences(group: GroupObject, live: Manifest | None) -> int:
    """Return the maximum of requests that a revision's engines run at once; 0 when their arguments do not set it.

    Args:
        group: the PromptGroup.
        live: the revision's current Deployment.
    """
    return dialect.max_sequences(DIALECTS[group.spec.engine.type], _live_arguments(live))


def _live_arguments(live: Manifest | None) -> list[str]:
    """Return the arguments of the engines of a Deployment's pods."""
    return _arguments(live["spec"]["template"]) if live is not None else []


def deployment_ranks(live: Manifest | None) -> int:
    """Return the data-parallel ranks of the engines of a Deployment's pods; 1 when unknown."""
    return container_ranks(_engine_container(live["spec"]["template"])) if live is not None else 1


def _arguments(template: dict[str, Any]) -> list[str]:
    """Return the engine container's arguments. The API server has not validated the template: it may be malformed."""
    args = _engine_container(template).get("args")
    return [arg for arg in args if isinstance(arg, str)] if isinstance(args, list) else []


def _engine_container(template: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the engine's container of a template, which may be malformed; empty where it has none."""
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


def _settings(group: GroupObject) -> str:
    """Return the digest of the group's engine settings.

    Raises:
        ValueError: the user's template cannot be merged.
    """
    if "settings" not in group.derived:
        whole = [group.spec.engine.type, group.spec.model, _engine_template(group)]
        text = json.dumps(whole, sort_keys=True, separators=(",", ":"))
        group.derived["settings"] = hashlib.sha256(text.encode()).hexdigest()[:16]
    return str(group.derived["settings"])


def _engine_template(group: GroupObject) -> dict[str, Any]:
    """Return the pod template without the parts of a revision: the same for all groups with the same engines.

    A pass uses it several times. It must not be changed.

    Raises:
        ValueError: the user's template cannot be merged.
    """
    if "template" not in group.derived:
        group.derived["template"] = _merged_template(group)
    template: dict[str, Any] = group.derived["template"]
    return template


def _merged_template(group: GroupObject) -> dict[str, Any]:
    engine = group.spec.engine
    speech = DIALECTS[engine.type]
    scheme = {"scheme": "HTTPS"} if engine.tls is not None else {}  # kubelets do not verify the certificate
    health = {"httpGet": {"path": speech.health, "port": "http", **scheme}}
    given_up = {"terminationGracePeriodSeconds": drain_hook.UNHEALTHY_SECONDS}
    keyed = speech.key_args if engine.credential_from is not None else ()
    secured = speech.tls_args if engine.tls is not None and engine.tls.secret_name is not None else ()
    ranked = (*ranks.rank_args(speech, engine), *engine_args.node_args(speech, engine))
    parts = tiers.parts(group.spec)
    adapted = _adapter_args(group.spec, speech)
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": engine.image,
        "args": dialect.arguments(
            speech,
            volume.model_path(engine, group.spec.model),
            engine.port,
            (
                *volume.model_args(speech, engine, group.spec.model),
                *keyed,
                *secured,
                *ranked,
                *parts.args,
                *adapted,
                *engine.args,
            ),
        ),
        "env": [
            # The user has no home directory and no passwd entry; engines need both, for compile caches and the name.
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
        # Without a termination message, the status has the end of the log, which conditions report after a crash.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": "home", "mountPath": "/home/engine"}],
    }
    base = {
        "metadata": {},
        "spec": {
            "automountServiceAccountToken": False,
            "containers": [container],
            # A Service named vllm would set VLLM_PORT=tcp://..., and engines interpret such variables as settings.
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
    loaded, adapted_parts = volume.pod_parts(engine, CONTAINER), _adapters(group.spec, speech)
    product = (_speech_parts(speech, parts), _credential(group, speech), secure, tiered, loaded, adapted_parts)
    for part in (*product, dict(engine.template)):
        base = merge(base, part)
    return base


def _mounts(template: Mapping[str, Any], path: str) -> bool:
    """Return True if a template, which may be malformed, has a volume mount at this path for the engine."""
    mounts = pod_parts.volume_mounts(_engine_container(template))
    return any(mount.get("mountPath") == path for mount in mounts)


def _tiered(
    speech: dialect.Dialect, container: Mapping[str, Any], parts: pod_parts.PodParts, template: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the parts of a pod for KV tiers, beside the engine's settings: volumes, and an init container as a gate.

    Shared memory that the template mounts is not modified, since other pods may use the same volume.
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
            # The volume outlives the container: files of a killed engine would fill it for the next one.
            engine["lifecycle"] = {"postStart": {"exec": {"command": ["sh", "-c", f"rm -f {parts.left_behind}"]}}}
    if volumes:
        spec |= {"containers": [engine], "volumes": volumes}
    if parts.awaits is not None:
        # The engine's image is pulled anyway, and contains Python.
        gate = {"name": tiers.GATE, "image": container["image"], "command": parts.gate}
        spec["initContainers"] = [{**gate, "securityContext": container["securityContext"]}]
    return {"spec": spec} if spec else {}


def _on_several_gpus(speech: dialect.Dialect, container: Mapping[str, Any], template: Mapping[str, Any]) -> bool:
    """Return True if an engine has several processes, which need more shared memory than the 64 MiB of a container.

    Args:
        speech: the engine's dialect.
        container: the engine's container according to the spec.
        template: spec.engine.template, which may be malformed; its arguments and resources replace the container's.
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
    """Return the parts of a pod by which an engine requires its API key, and a reference to the key's Secret."""
    source = group.spec.engine.credential_from
    if source is None:
        return {}
    result: dict[str, Any] = {"metadata": {"annotations": {names.ANNOTATION_CREDENTIAL: f"{source.name}/{source.key}"}}}
    if speech.key_env:
        reference = {"secretKeyRef": {"name": source.name, "key": source.key}}
        env = [{"name": speech.key_env, "valueFrom": reference}]
        result["spec"] = {"containers": [{"name": CONTAINER, "env": env}]}
    return result


def _speech_parts(speech: dialect.Dialect, parts: pod_parts.PodParts) -> dict[str, Any]:
    """Return the settings of an engine beside its arguments: variables, the pod's address, and a settings file."""
    container: dict[str, Any] = {"name": CONTAINER, "env": [{"name": k, "value": v} for k, v in speech.env.items()]}
    result: dict[str, Any] = {"spec": {"containers": [container]}}
    container["env"].append({"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}})
    container["env"] += [{"name": k, "value": v} for k, v in parts.env.items()]  # they may refer to the address
    config = speech.config + parts.config
    if config:
        folder, _, file = pod_parts.CONFIG_FILE.rpartition("/")
        item = {"path": file, "fieldRef": {"fieldPath": f"metadata.annotations['{ANNOTATION_CONFIG}']"}}
        result["metadata"] = {"annotations": {ANNOTATION_CONFIG: config}}
        result["spec"]["volumes"] = [{"name": "config", "downwardAPI": {"items": [item]}}]
        container["volumeMounts"] = [{"name": "config", "mountPath": folder}]
    return result


def _adapter_args(spec: PromptGroupSpec, speech: dialect.Dialect) -> tuple[str, ...]:
    adapter = identity.of_spec(spec.adapter) if spec.adapter is not None else None
    return speech.adapters.args(spec.engine.adapters, adapter) if speech.adapters is not None else ()


def _adapters(spec: PromptGroupSpec, speech: dialect.Dialect) -> dict[str, Any]:
    """Return the parts of a pod for engines that load adapters while they run: variables, and their volume."""
    room = spec.engine.adapters
    if room is None or speech.adapters is None:
        return {}
    env = [{"name": name, "value": value} for name, value in speech.adapters.run_time.items()]
    container: dict[str, Any] = {"name": CONTAINER, "env": env}
    if room.claim_name is None:
        return {"spec": {"containers": [container]}}
    container["volumeMounts"] = [{"name": "adapters", "mountPath": identity.MOUNT, "readOnly": True}]
    claim = {"name": "adapters", "persistentVolumeClaim": {"claimName": room.claim_name, "readOnly": True}}
    return {"spec": {"containers": [container], "volumes": [claim]}}


def adapters_problem(group: GroupObject) -> Problem | None:
    """Return the problem of the engines' adapters, for a template that can be merged; None without one."""
    rank_count = container_ranks(_engine_container(_engine_template(group)))
    form = DIALECTS[group.spec.engine.type].adapters
    problem = problems.own_problem(group.spec, rank_count, form.flags if form is not None else None)
    return Problem("InvalidAdapters", problem) if problem else None


def template_problem(group: GroupObject) -> Problem | None:
    """Return the problem of the group's pod template: it cannot be merged, or sets reserved keys; None without one."""
    try:
        _engine_template(group)
    except ValueError as error:
        return Problem("InvalidTemplate", f"spec.engine.template: {error}")
    taken = reserved(group.spec.engine.template, allowed={ANNOTATION_CONFIG})
    return Problem("InvalidTemplate", f"spec.engine.template: {taken}") if taken else None


def ranks_problem(group: GroupObject) -> Problem | None:
    """Return the problem of the engines' data-parallel ranks, for a template that can be merged; None without one."""
    problem = ranks.ranks_problem(group.spec.engine, _engine_container(_engine_template(group)))
    return Problem("InvalidRanks", problem) if problem else None


def role_problem(group: GroupObject) -> Problem | None:
    """Return the problem that the engines compute prompts or answers alone; None without one."""
    engine = group.spec.engine
    setting = DIALECTS[engine.type].split_setting(_arguments(_engine_template(group)))
    if not setting:
        return None
    return Problem(
        "InvalidRole",
        f"{setting} makes the engines one half of a pair that splits prefill and decode, and each replica of a group "
        "serves whole requests: remove it, or use a project that splits requests, such as llm-d or Dynamo",
    )


def weights_problem(group: GroupObject) -> Problem | None:
    """Return the problem of the engine's weights, for a template that can be merged; None without one."""
    engine, template = group.spec.engine, _engine_template(group)
    problem = volume.problem(engine, _engine_container(template)) or prefetch.problem(engine, template)
    return Problem("InvalidWeights", problem) if problem else None


def nodes_problem(group: GroupObject) -> Problem | None:
    """Return the problem of replicas of several nodes, for a template that can be merged; None without one."""
    engine = group.spec.engine
    container = _engine_container(_engine_template(group))
    problem = engine_args.problem(DIALECTS[engine.type], engine, group.key.name, container)
    return Problem("InvalidNodes", problem) if problem else None


def cache_problem(group: GroupObject) -> Problem | None:
    """Return the problem of the group's KV tiers, for a template that can be merged; None without one."""
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
        route: the route for routers.
        guest: the record of a guest's revisions; None for a group with its own engine.
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


def weights_daemon_set(group: GroupObject) -> dict[str, Any]:
    """Build the DaemonSet by which nodes have the weights of the group's engine before a replica starts there."""
    return stamped(
        {
            "apiVersion": "apps/v1",
            "kind": prefetch.KIND,
            "metadata": _metadata(group, prefetch.name(group.key.name)),
            "spec": prefetch.daemon_spec(group.key.name, group.spec.engine, _engine_template(group)),
        }
    )


def peers_secret(namespace: str, key: bytes) -> dict[str, Any]:
    """Build the Secret with which a namespace's routers authenticate each other: created once, never written again.

    It belongs to the namespace, not to a group: it has no owner, so it outlives the last group, as may the routers that
    mount it. If it is deleted, a new key is created; routers exchange nothing until all of them have read it.
    """
    labels = {"app.kubernetes.io/managed-by": "promptgroup-operator", "app.kubernetes.io/name": "promptgroup-router"}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": names.SECRET_PEERS, "namespace": namespace, "labels": labels},
        "data": {names.KEY_PEERS: base64.b64encode(key).decode()},
    }
