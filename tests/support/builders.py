"""Snapshots for tests: what a case does not name has the value of a group at rest."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from promptgroup_contract.fingerprint import fingerprint
from promptgroup_contract.table import Prompt, PromptRef, SlotState
from promptgroup_operator.api.prompt_group import PromptGroupSpec, RolloutSpec, parse_spec
from promptgroup_operator.plan import desired
from promptgroup_operator.rollout.release import Goal, policy
from promptgroup_operator.world.engine_facts import Measured
from promptgroup_operator.world.samples import Traffic
from promptgroup_operator.world.snapshot import (
    GroupObject,
    Key,
    Manifest,
    Pod,
    PodCondition,
    Problem,
    PromptText,
    Reading,
    RevisionState,
    Sibling,
    World,
)

NOW = datetime(2026, 11, 3, 12, 0, 0, tzinfo=UTC)
CREATED = "2026-11-03T11:00:00Z"
TEXT = "You are the support assistant of Example Ltd."
FINGERPRINT = fingerprint(TEXT)


def ago(**parts: float) -> datetime:
    """A time before NOW."""
    return NOW - timedelta(**parts)


def spec(**fields: Any) -> PromptGroupSpec:
    """A valid spec; fields by their YAML names, a dict is merged one level deep, None removes."""
    raw: dict[str, Any] = {
        "model": "llama",
        "prompt": {"system": TEXT},
        "engine": {"image": "vllm/vllm-openai:v0.32.0"},
        "replicas": 2,
    }
    for name, value in fields.items():
        if name == "engine" and value is not None:
            raw[name] = raw[name] | value
        elif value is None:
            raw.pop(name, None)
        else:
            raw[name] = value
    return parse_spec(raw)


def group(
    *, name: str = "support", status: Mapping[str, Any] | None = None, generation: int = 1, **fields: Any
) -> GroupObject:
    """A PromptGroup; further fields are those of its spec."""
    return GroupObject(Key("chat", name), f"uid-{name}", generation, CREATED, spec(**fields), status or {})


SETTINGS = desired.engine_settings(group())
"""Digest of the engines of a spec that names nothing of its own."""


def pod(name: str = "p0", slot: int | None = 0, **fields: Any) -> Pod:
    """A warm replica that holds a slot."""
    container = fields.get("container_id", f"containerd://{name}-0123456789ab")
    base = Pod(
        name=name,
        uid=f"uid-{name}",
        fingerprint=FINGERPRINT,
        created=CREATED,
        deleting=False,
        address="10.0.0.1:8000",
        containers_ready=True,
        containers_ready_since=ago(minutes=50),
        container_id=container,
        slot=slot,
        warmed=container,
        warm=PodCondition("True", "PrefixCached", "96 of 96 prefix tokens in cache", ago(minutes=49)),
        draining_since=None,
        measured=Measured(kv_tokens=400_000, prefill_rate=9_800, prefix_tokens=96),
        settings=SETTINGS,
    )
    return replace(base, **fields)


def cold(name: str = "p0", slot: int | None = None, reason: str = "Warming", **fields: Any) -> Pod:
    """A replica whose containers are ready and whose warmth is not proven."""
    return pod(
        name, slot, **{"warmed": "", "warm": PodCondition("False", reason, "a reason", ago(minutes=1)), **fields}
    )


def starting(name: str = "p0", **fields: Any) -> Pod:
    """A replica whose containers do not run yet."""
    nothing = {"containers_ready": False, "containers_ready_since": None, "container_id": "", "address": ""}
    return cold(name, **{"reason": "WaitingForContainers", **nothing, **fields})


def restarted(name: str = "p0", slot: int | None = 0, **fields: Any) -> Pod:
    """A replica whose engine is another process than the one that was warmed."""
    return pod(name, slot, **{"warmed": "containerd://the-one-before", **fields})


def revision(text: str = TEXT, pods: Iterable[Pod] = (), **fields: Any) -> RevisionState:
    """A revision that serves, as large as it has pods."""
    full, listed = fingerprint(text), tuple(pods)
    name = f"support-{full[:8]}"
    base = RevisionState(
        fingerprint=full,
        deployment=name,
        created=CREATED,
        replicas=len(listed),
        superseded_at=None,
        prompt_from=PromptRef("ConfigMap", name),
        prompt=Prompt(text),
        pods=tuple(replace(each, fingerprint=full) for each in listed),
        weight=100,
        slots={each.slot: _state(each) for each in listed if each.slot is not None},
    )
    return replace(base, **fields)


def _state(pod: Pod) -> SlotState:
    """The state of its slot in the route."""
    if not pod.is_warm:
        return SlotState.ABSENT
    return SlotState.DRAINING if pod.draining_since is not None else SlotState.READY


def text(system: str = TEXT, tools: str = "", *, secret: bool = False) -> PromptText:
    """A resolved prompt without tools of its own, unless their canonical form is given."""
    return PromptText(Prompt(system, tools), fingerprint(system), secret)


def reading(queries: float = 0, hits: float = 0, **fields: Any) -> Reading:
    """An idle engine's counters."""
    base = Reading(queries=queries, hits=hits, generated=0, usage=0, step=16, caching=True, kv_tokens=400_000)
    return replace(base, **fields)


def goal(
    target: str,
    replicas: int = 2,
    *,
    settings: str = SETTINGS,
    traffic: Traffic | None = None,
    now: datetime = NOW,
    **rollout: Any,
) -> Goal:
    """What a group wants; further arguments are fields of `spec.rollout`."""
    spec_of = RolloutSpec.model_validate({"retireAfter": "1h", **rollout})
    return Goal(fingerprint(target), replicas, policy(spec_of, replicas), settings, traffic, now)


def world(
    revisions: Iterable[RevisionState] = (),
    *,
    of: GroupObject | None = None,
    prompt: PromptText | Problem | None = None,
    siblings: Iterable[Sibling] = (),
    live: Mapping[tuple[str, str], Manifest] | None = None,
    hit_rate: float | None = None,
    peers_key: bool = True,
    traffic: Traffic | None = None,
) -> World:
    """A snapshot; the prompt is TEXT unless given."""
    return World(
        of or group(), prompt or text(), tuple(revisions), tuple(siblings), live or {}, traffic, hit_rate, peers_key
    )
