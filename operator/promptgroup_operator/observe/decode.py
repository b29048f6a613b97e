"""Decode objects of the API server into the frozen values that decisions use."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from promptgroup_contract import names, table
from promptgroup_contract.fingerprint import Fingerprint, short
from promptgroup_contract.table import Prompt, PromptRef, SlotState
from promptgroup_operator.api import prompt_group
from promptgroup_operator.base.timestamps import parse_time
from promptgroup_operator.rollout.annotations import progress, rolled_back, size, superseded_at
from promptgroup_operator.world import engine_facts
from promptgroup_operator.world.pod_ranks import container_ranks
from promptgroup_operator.world.pod_start import PodStart
from promptgroup_operator.world.snapshot import (
    CONTAINER,
    NO_CONTAINER,
    ContainerId,
    GroupObject,
    Key,
    Manifest,
    Pod,
    PodCondition,
    RevisionState,
)

MAX_REPLICAS = 2000
"""Upper bound of the replicas of a Deployment: twice the maximum of a group. Any user who may scale one can write two
billion, and every slot of a ring takes memory."""
MAX_SLOT = 999_999
"""Largest slot that is accepted from a pod's label."""


def group_of(key: Key, raw: Manifest) -> GroupObject:
    """Decode a PromptGroup.

    Raises:
        pydantic.ValidationError: it was stored under an older schema and violates the current one.
    """
    metadata = raw["metadata"]
    return GroupObject(
        key=key,
        uid=metadata["uid"],
        generation=metadata["generation"],
        created=metadata["creationTimestamp"],
        spec=prompt_group.parse_spec(raw["spec"]),
        status=raw.get("status", {}),
        replaces=str(metadata.get("annotations", {}).get(names.ANNOTATION_REPLACES, "")),
    )


def fingerprint_of(deployment: Manifest) -> Fingerprint:
    """Return the revision of a Deployment, from its annotation or else its pod template's; empty if neither has one.

    An annotation that does not match the Deployment's name, which is immutable, was edited and is ignored.
    """
    template = deployment["spec"]["template"].get("metadata", {})
    for annotations in (deployment["metadata"].get("annotations", {}), template.get("annotations", {})):
        fingerprint = Fingerprint(annotations.get(names.ANNOTATION_FINGERPRINT, ""))
        if fingerprint and deployment["metadata"]["name"].endswith(f"-{short(fingerprint)}"):
            return fingerprint
    return Fingerprint("")


def prompt_ref(deployment: Manifest) -> PromptRef:
    """Return a reference to the object that holds the prompt of a Deployment's revision."""
    metadata = deployment["metadata"]
    secret = metadata.get("annotations", {}).get(names.ANNOTATION_PROMPT) == "Secret"
    return PromptRef("Secret" if secret else "ConfigMap", metadata["name"])


def revision_of(
    deployment: Manifest,
    prompt: Prompt | None,
    pods: Iterable[Pod],
    standing: Mapping[Fingerprint, tuple[int, Mapping[int, SlotState]]],
) -> RevisionState:
    """Decode the revision that a Deployment runs.

    Args:
        deployment: the Deployment, with the fingerprint and the annotations of the release.
        prompt: text of the prompt; None if its object does not exist, or holds the text of another prompt.
        pods: pods of the group.
        standing: weight and slots by fingerprint, from the PromptRoute (`prompt_route.standing`).
    """
    metadata = deployment["metadata"]
    annotations = metadata.get("annotations", {})
    fingerprint = fingerprint_of(deployment)
    weight, slots = standing.get(fingerprint, (0, {}))
    return RevisionState(
        fingerprint=fingerprint,
        deployment=metadata["name"],
        created=metadata["creationTimestamp"],
        replicas=min(deployment["spec"].get("replicas", 1), MAX_REPLICAS),
        superseded_at=superseded_at(annotations),
        prompt_from=prompt_ref(deployment),
        prompt=prompt,
        pods=tuple(pod for pod in pods if pod.fingerprint == fingerprint),
        weight=weight,
        slots=slots,
        progress=progress(annotations),
        rolled_back=rolled_back(annotations),
        size=size(annotations),
        failure=failure_of(deployment),
        workload=deployment.get("kind", "Deployment"),
    )


def failure_of(deployment: Manifest) -> str:
    """Return Kubernetes' reason why the Deployment cannot create pods (quota, admission); empty if it can."""
    conditions = deployment.get("status", {}).get("conditions", [])
    failed = (
        condition for condition in conditions if (condition["type"], condition["status"]) == ("ReplicaFailure", "True")
    )
    return next((f"{item.get('reason', '')}: {item.get('message', '')}" for item in failed), "")


def pod_of(raw: Manifest, port: int, node_taint: Callable[[str], str] = lambda _: "") -> Pod:
    """Decode a replica of a group.

    Args:
        raw: the pod.
        port: the group's port for engines, used if the pod's template names none.
        node_taint: node → key of the taint that announces its end, empty without one.
    """
    metadata, status = raw["metadata"], raw.get("status", {})
    annotations, labels = metadata.get("annotations", {}), metadata.get("labels", {})
    conditions = {condition["type"]: condition for condition in status.get("conditions", [])}
    engine: Mapping[str, Any] = next(
        (
            container_status
            for container_status in status.get("containerStatuses", [])
            if container_status["name"] == CONTAINER
        ),
        {},
    )
    running = engine.get("state", {}).get("running") is not None
    containers = conditions.get("ContainersReady", {})
    gate = conditions.get(names.CONDITION_PREFIX_WARM)
    ip = status.get("podIP", "")
    return Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        fingerprint=Fingerprint(annotations.get(names.ANNOTATION_FINGERPRINT, "")),
        created=metadata["creationTimestamp"],
        deleting="deletionTimestamp" in metadata
        or status.get("phase") in ("Failed", "Succeeded")
        or conditions.get("DisruptionTarget", {}).get("status") == "True",
        address=f"{f'[{ip}]' if ':' in ip else ip}:{_port(raw, port)}" if ip else "",
        containers_ready=containers.get("status") == "True",
        containers_ready_since=parse_time(containers.get("lastTransitionTime")),
        container_id=ContainerId(engine.get("containerID", "")) if running else NO_CONTAINER,
        slot=_slot(labels.get(names.LABEL_SLOT, "")),
        warmed=ContainerId(annotations.get(names.ANNOTATION_WARMED, "")),
        warm=PodCondition(
            gate["status"], gate.get("reason", ""), gate.get("message", ""), parse_time(gate.get("lastTransitionTime"))
        )
        if gate is not None
        else None,
        draining_since=parse_time(annotations.get(names.ANNOTATION_DRAINING)),
        measured=engine_facts.decode(annotations.get(names.ANNOTATION_ENGINE, "")),
        settings=annotations.get(names.ANNOTATION_SETTINGS, ""),
        replica_set=next(
            (
                owner_reference["name"]
                for owner_reference in metadata.get("ownerReferences", [])
                if owner_reference.get("kind") == "ReplicaSet"
            ),
            "",
        ),
        ordinal=_ordinal(metadata),
        node_taint=node_taint(raw.get("spec", {}).get("nodeName", "")),
        inference_pool=labels.get(names.LABEL_INFERENCE_POOL, ""),
        trouble=_trouble(metadata, status, conditions),
        credential=annotations.get(names.ANNOTATION_CREDENTIAL, ""),
        tls=annotations.get(names.ANNOTATION_ENGINE_TLS, ""),
        ranks=min(table.MOST_RANKS, container_ranks(_engine_container(raw))),
        start=PodStart(
            scheduled=_since_true(conditions.get("PodScheduled")),
            sandboxed=_since_true(conditions.get("PodReadyToStartContainers")),
            running=parse_time(engine["state"]["running"].get("startedAt")) if running else None,
            restarts=engine.get("restartCount", 0),
        ),
        ready_since=_since_true(conditions.get("Ready")),
    )


def _since_true(condition: Mapping[str, Any] | None) -> datetime | None:
    """Return the time since which a condition is True; None if it is not, or if there is none."""
    if condition is None or condition.get("status") != "True":
        return None
    return parse_time(condition.get("lastTransitionTime"))


def router_of(raw: Manifest) -> tuple[ContainerId, str] | None:
    """Return the container of a router's pod and the address of its admin port; None while the pod does not run."""
    status = raw.get("status", {})
    running = next(
        (
            container_status["containerID"]
            for container_status in status.get("containerStatuses", [])
            if "running" in container_status.get("state", {})
        ),
        "",
    )
    ip = status.get("podIP", "")
    if not ip or not running:
        return None
    return ContainerId(running), f"{f'[{ip}]' if ':' in ip else ip}:{admin_port(raw)}"


def admin_port(raw: Manifest) -> int:
    """Return the admin port of a router's pod: health, metrics and explain."""
    ports = (port for container in raw["spec"]["containers"] for port in container.get("ports", []))
    return next((int(port["containerPort"]) for port in ports if port.get("name") == "admin"), names.PORT_ROUTER_ADMIN)


def _ordinal(metadata: Mapping[str, Any]) -> int | None:
    """Return the ordinal of a StatefulSet's pod, with which its name ends; None for any other pod."""
    if not any(owner.get("kind") == "StatefulSet" for owner in metadata.get("ownerReferences", [])):
        return None
    number = metadata["name"].rpartition("-")[2]
    return int(number) if number.isascii() and number.isdigit() else None


def _slot(label: str) -> int | None:
    """Return the slot that a label names; None if it names none."""
    slot = int(label) if label.isascii() and label.isdigit() else None  # a label has at most 63 characters
    return slot if slot is not None and slot <= MAX_SLOT else None


def _engine_container(raw: Manifest) -> Manifest:
    containers = raw.get("spec", {}).get("containers", [])
    return next((container for container in containers if container.get("name") == CONTAINER), {})


def _port(raw: Manifest, port: int) -> int:
    """Return the port of the pod's engine by its own template, which may be older than the group's."""
    containers = raw.get("spec", {}).get("containers", [])
    ports = (
        result
        for container in containers
        if container.get("name") == CONTAINER
        for result in container.get("ports", [])
    )
    return next((int(result["containerPort"]) for result in ports if result.get("name") == "http"), port)


_TROUBLE = ("CrashLoopBackOff", "ErrImagePull", "ImagePullBackOff", "CreateContainerConfigError", "InvalidImageName")
"""Waiting reasons that do not end by themselves."""


LOOPS = 2
"""Number of restarts from which on a terminated container is reported as a crash loop. The report stays while it runs
again until it is ready: otherwise the condition would show no problem between two crashes."""
LONGEST_START = timedelta(hours=1)
"""A container that ran for longer had started successfully: its end is not part of a crash loop."""
LAST_LINE = 200
"""Maximum number of characters that are reported of the last line of a container's log."""


def _trouble(
    metadata: Mapping[str, Any], status: Mapping[str, Any], conditions: Mapping[str, Mapping[str, Any]]
) -> str:
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        return f"{scheduled.get('reason', '')}: {scheduled.get('message', '')}"
    for init_container_status in (*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])):
        waiting = init_container_status.get("state", {}).get("waiting", {})
        if crash := _crash(metadata, init_container_status):
            return crash
        if waiting.get("reason") in _TROUBLE:
            return f"container {init_container_status['name']}: {waiting['reason']}: {waiting.get('message', '')}"
    return ""


def _crash(metadata: Mapping[str, Any], container: Mapping[str, Any]) -> str:
    """Describe the end of a container in a crash loop, in a text that does not change with every restart."""
    last = container.get("lastState", {}).get("terminated", {})
    waits = container.get("state", {}).get("waiting", {}).get("reason") == "CrashLoopBackOff"
    if not last or container.get("ready") or not (waits or container.get("restartCount", 0) >= LOOPS):
        return ""
    began, ended = (parse_time(last.get(item)) for item in ("startedAt", "finishedAt"))
    if not waits and began is not None and ended is not None and ended - began > LONGEST_START:
        return ""
    reason = last.get("reason", "")
    why = f" ({reason})" if reason not in ("", "Error") else ""
    lines = [line for line in str(last.get("message", "")).splitlines() if line.strip()]
    line = "".join(letter for letter in lines[-1].strip() if letter.isprintable())[:LAST_LINE] if lines else ""
    result = f"; its last line: {line}" if line else ""
    pod, space, name = metadata["name"], metadata.get("namespace", ""), container["name"]
    return (
        f"pod {pod}: container {name}: CrashLoopBackOff: exit code {last.get('exitCode', '?')}{why}{result}; "
        f"see `kubectl logs {pod} -n {space} -c {name} --previous`"
    )
