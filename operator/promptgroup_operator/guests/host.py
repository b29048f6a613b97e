"""Decides which group serves a guest, and why it cannot.

A guest names its host in `spec.engineFrom.promptGroup`: a group of the same namespace with an engine of its own.
`served` copies the host's model, engine and caches into the guest's spec, where the other modules read them.
"""

from collections.abc import Iterable, Mapping

from promptgroup_contract.table import Sharing, Sleep, SlotState
from promptgroup_operator.adapters.problems import guest_problem
from promptgroup_operator.api.gateway import GatewaySpec
from promptgroup_operator.api.prompt_group import PromptGroupSpec
from promptgroup_operator.engines.dialects.registry import DIALECTS
from promptgroup_operator.world.snapshot import Host, Pod, Problem

FIELD = "spec.engineFrom.promptGroup"

ROOM = 1000
"""Surge of a guest's release, in replicas: a revision of a guest takes no GPU."""


def problem(
    name: str, guest: PromptGroupSpec, host: PromptGroupSpec | None, *, deleting: bool = False
) -> Problem | None:
    """Return why a group can serve no guest; None if it can.

    Args:
        name: the host's name, as the guest's spec has it.
        guest: the guest's spec as it is stored.
        host: the host's spec; None if there is no such group.
        deleting: True if the host is being deleted.
    """
    if host is None:
        return Problem("HostNotFound", f"PromptGroup {name} ({FIELD}) does not exist: create it, with an engine")
    if deleting:
        text = f"PromptGroup {name} ({FIELD}) is being deleted: create it again, or move the prompt to another group"
        return Problem("HostNotFound", text)
    if host.engine_from is not None:
        other = host.engine_from.prompt_group
        text = f"PromptGroup {name} ({FIELD}) has no engine of its own but uses that of {other}: name {other} instead"
        return Problem("HostIsGuest", text)
    if guest.model and guest.model != host.model:
        text = f"spec.model is {guest.model}, and PromptGroup {name} ({FIELD}) serves {host.model}: remove spec.model"
        return Problem("HostModelDiffers", f"{text}, or name a group that serves {guest.model}")
    if host.caches_nothing:
        text = f"PromptGroup {name} ({FIELD}) has spec.cache.prefixCaching Disabled, so that it keeps no prompt warm"
        return Problem("HostCachesNothing", f"{text}: remove that, or name another group")
    supported = DIALECTS[host.engine.type].adapters is not None
    if adapters := guest_problem(name, guest, host.engine, supported=supported):
        return Problem("HostLoadsNoAdapters", adapters)
    return None


def without_replicas(name: str) -> Problem:
    """Return the problem of a host that has no replica to place a guest on."""
    return Problem(
        "HostWithoutReplicas",
        f"PromptGroup {name} ({FIELD}) has no replica: raise its spec.replicas, or see why its pods do not start",
    )


def replicas(
    name: str,
    pods: Iterable[Pod],
    listed: Mapping[str, SlotState],
    problem: Problem | None = None,
    *,
    sleep: Sleep | None = None,
    gateway: GatewaySpec | None = None,
) -> Host:
    """Return the host with its replicas: those on which prompts of guests may be kept warm, and those being removed.

    Args:
        name: the host's name.
        pods: its pods, of all of its revisions.
        listed: pod → state of its slot in the host's PromptRoute. A pod whose slot drains is about to be removed.
        problem: the reason why it can serve no guest.
        sleep: treatment of its requests while it has no replica; None for a host that always has one.
        gateway: the gateway that its replicas are behind.
    """
    stay: list[Pod] = []
    leave: list[Pod] = []
    for pod in pods:
        leaves = pod.deleting or pod.draining_since is not None or listed.get(pod.name) is SlotState.DRAINING
        (leave if leaves else stay).append(pod)
    if problem is None and not stay and (sleep is None or not sleep.wake_timeout):
        problem = without_replicas(name)
    mode = gateway.failure_mode if gateway is not None else None
    return Host(name, tuple(stay), tuple(leave), problem, sleep, mode)


def served(guest: PromptGroupSpec, host: PromptGroupSpec | None, replicas: int, model: str) -> PromptGroupSpec:
    """Return the guest's spec with the fields that it inherits from its host.

    The guest neither lends nor borrows replicas, since all of them are the host's.

    Args:
        guest: the guest's spec as it is stored.
        host: the host's spec; None if no group can serve the guest.
        replicas: replicas of the host that may serve the guest.
        model: the model that the guest served before, for a host that no longer exists.
    """
    placement = guest.placement
    requested = (placement.replicas or placement.max_replicas) if placement is not None else None
    filled = {
        "model": guest.model or (host.model if host is not None else model),
        "replicas": replicas if requested is None else min(requested, replicas),
        "rollout": guest.rollout.model_copy(update={"max_surge": ROOM}),
        # requests for an adapter that begin with no declared prompt have no other replicas
        "routing": guest.routing
        if guest.adapter is not None
        else guest.routing.model_copy(update={"sharing": Sharing.DEDICATED}),
    }
    if host is not None:
        filled |= {"engine": host.engine, "cache": host.cache}
    return guest.model_copy(update=filled)
