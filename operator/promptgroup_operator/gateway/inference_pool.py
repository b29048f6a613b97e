"""Decides which InferencePool has a group's replicas and the spec of the group's own pool, and reads its status.

An InferencePool (Gateway API Inference Extension, `inference.networking.k8s.io/v1`) names pods by labels, and a picker
by its Service. Pods bear the label while they hold a slot and do not drain: gateways never see a replica that nobody
warmed, nor one that leaves, and a group that joins the pool of another one replaces no pods.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from promptgroup_contract import names
from promptgroup_operator.api.access import asks_callers
from promptgroup_operator.api.gateway import FailureMode
from promptgroup_operator.world.snapshot import GroupObject, Manifest, SeenPools

ABSENT = frozenset({"NoCRD", "NotAllowed"})
"""Reasons for which no InferencePool can be read, so that none is written."""
MAX_TEXT = 200
"""Most characters of what a gateway's controller wrote that a condition repeats."""
MAX_PARENTS = 32
"""Most gateways of an InferencePool, by its schema."""


@dataclass(frozen=True, slots=True)
class GatewayVerdict:
    """Condition GatewayProgrammed."""

    status: bool | None
    """None is unknown."""
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class PoolDecision:
    """The InferencePool of a group: its members, its spec, and the condition from its status."""

    member_of: str
    """The InferencePool that its replicas are in; empty for none."""
    spec: Mapping[str, Any] | None
    """Spec of the group's own InferencePool; None where it shall have none."""
    verdict: GatewayVerdict | None
    """None without `spec.gateway`."""


def name(group: GroupObject) -> str:
    """Return the name of the InferencePool that the group's spec names; empty if it names none."""
    gateway = group.spec.gateway
    return "" if gateway is None else gateway.inference_pool or group.key.name


def decide(group: GroupObject, seen: SeenPools, *, taken: bool) -> PoolDecision:
    """Decide on the InferencePool of a group.

    Args:
        group: the PromptGroup.
        seen: the InferencePools that there are.
        taken: True if the one of the group's name belongs to something else.
    """
    pool = name(group)
    if not pool:
        return PoolDecision("", None, None)
    verdict = _objection(group, pool, seen, taken=taken)
    joins = pool != group.key.name
    if verdict is not None and verdict.reason == "FailsOpen":
        return PoolDecision("", None, verdict)
    absent = seen.problem is not None and seen.problem.reason in ABSENT
    spec = None if joins or taken or absent else _spec(group, pool)
    return PoolDecision(pool, spec, verdict or _from_parents(pool, seen.by_name[pool]))


def _spec(group: GroupObject, pool: str) -> dict[str, Any]:
    mode = group.spec.gateway.failure_mode if group.spec.gateway is not None else FailureMode.FAIL_CLOSE
    return {
        "selector": {"matchLabels": {names.LABEL_INFERENCE_POOL: pool}},
        "targetPorts": [{"number": group.spec.engine.port}],
        "endpointPickerRef": {"name": names.PICKER, "port": {"number": names.PORT_PICKER}, "failureMode": mode.value},
    }


def _objection(group: GroupObject, pool: str, seen: SeenPools, *, taken: bool) -> GatewayVerdict | None:
    """Return why no gateway can use the pool for this group, as far as its spec shows."""
    if seen.problem is not None:
        return GatewayVerdict(False, seen.problem.reason, seen.problem.message)
    if taken and pool == group.key.name:
        text = f"InferencePool {pool} exists and belongs to something else: delete it, or name another pool"
        return GatewayVerdict(False, "NameTaken", text)
    live = seen.by_name.get(pool)
    if live is None and pool != group.key.name:
        text = f"InferencePool {pool} does not exist: set spec.gateway on the group {pool}, or name another pool"
        return GatewayVerdict(False, "NoPool", text)
    if live is None:
        return GatewayVerdict(False, "NoPool", f"InferencePool {pool} is being created")
    picker = _mapping(_mapping(live.get("spec")).get("endpointPickerRef"))
    if (
        pool != group.key.name
        and picker.get("failureMode") == FailureMode.FAIL_OPEN.value
        and asks_callers(group.spec.access)
    ):
        text = (
            f"InferencePool {pool} fails open, so that requests bypass spec.access while no picker answers: join a "
            "pool that fails closed"
        )
        return GatewayVerdict(False, "FailsOpen", text)
    return None


def _from_parents(pool: str, live: Manifest) -> GatewayVerdict:
    """Return the verdict of gateways on a pool. Their controllers write its status, which is validated in full."""
    generation = _mapping(live.get("metadata")).get("generation")
    accepted, pending, refused = [], [], []
    for gateway, conditions in _parents(live):
        bad = [condition for condition in conditions.values() if condition.get("status") == "False"]
        first = conditions.get("Accepted", {})
        if bad:
            refused.append(f"{gateway}: {_clip(bad[0].get('reason'))}: {_clip(bad[0].get('message'))}")
        elif first.get("status") == "True" and first.get("observedGeneration", generation) == generation:
            accepted.append(gateway)
        else:
            pending.append(gateway)
    if refused:
        return GatewayVerdict(False, "NotAccepted", "; ".join(refused[:3]))
    if pending:
        text = f"{', '.join(pending[:3])} has not reported on InferencePool {pool} yet"
        return GatewayVerdict(None, "Pending", text)
    if accepted:
        more = f" and {len(accepted) - 3} more" if len(accepted) > 3 else ""
        return GatewayVerdict(
            True, "PoolAccepted", f"InferencePool {pool} is accepted by {', '.join(accepted[:3])}{more}"
        )
    text = f"no gateway uses InferencePool {pool}: name it in backendRefs of an HTTPRoute"
    return GatewayVerdict(False, "NoParent", text)


def _parents(live: Manifest) -> Iterator[tuple[str, dict[str, Mapping[str, Any]]]]:
    """Yield each gateway of a pool with its conditions by type, `Accepted` and `ResolvedRefs` only, in this order."""
    for parent in _list(_mapping(live.get("status")).get("parents"))[:MAX_PARENTS]:
        reference = _mapping(_mapping(parent).get("parentRef"))
        if reference.get("kind") == "Status":
            continue  # a default of early versions: no gateway
        result = {item.get("type"): item for item in map(_mapping, _list(_mapping(parent).get("conditions"))[:8])}
        namespace = f"{_clip(reference['namespace'])}/" if reference.get("namespace") else ""
        gateway = f"{_clip(reference.get('kind', 'Gateway'))} {namespace}{_clip(reference.get('name'))}"
        yield gateway, {kind: result[kind] for kind in ("Accepted", "ResolvedRefs") if kind in result}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _clip(value: object) -> str:
    """Return a text on one line and of bounded length."""
    return " ".join(str(value)[:MAX_TEXT].split())
