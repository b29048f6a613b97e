"""The PromptRoute: what routers may send where."""

from collections.abc import Mapping, Sequence

from promptgroup_operator.observed import Group, Pod, Revision
from promptgroup_operator.rollout import Phase, Step
from promptgroup_router.contract import table


def route(
    group: Group,
    revisions: Sequence[Revision],
    plan: Mapping[str, Step],
    held: Mapping[str, Mapping[str, int]],
) -> table.Group:
    """The group as routers shall see it.

    Args:
        group: the PromptGroup.
        revisions: the revisions that have a Deployment.
        plan: fingerprint → step.
        held: fingerprint → pod name → slot.
    """
    routing = group.spec.routing
    return table.Group(
        namespace=group.key.namespace,
        name=group.key.name,
        model=group.spec.model,
        created=group.created,
        policy=routing.policy,
        load_factor_percent=routing.load_factor_percent,
        session_header=routing.session_header.lower(),
        revisions=tuple(
            table.Revision(
                fingerprint=revision.fingerprint,
                system_bytes=len(revision.prompt.system.encode()),
                tools=revision.prompt.tools != "",
                weight=plan[revision.fingerprint].weight,
                slots=ring(revision.pods, held[revision.fingerprint], plan[revision.fingerprint]),
                prompt_from=revision.prompt_from,
            )
            for revision in revisions
            if revision.prompt is not None
        ),
    )


def ring(pods: Sequence[Pod], held: Mapping[str, int], step: Step) -> tuple[table.Slot, ...]:
    """Every slot of a revision: those of its size, and those above it that still drain."""
    holders = {held[pod.name]: pod for pod in pods if pod.name in held}
    size = len(holders) if step.phase is Phase.RETIRING else step.replicas
    return tuple(
        _slot(index, holders.get(index), drains=index >= step.replicas)
        for index in sorted({*range(size), *holders})
        if index < step.replicas or index in holders
    )


def _slot(index: int, pod: Pod | None, *, drains: bool) -> table.Slot:
    if pod is None or not pod.is_warm:
        return table.Slot(index, table.SlotState.ABSENT)
    return table.Slot(
        index,
        table.SlotState.DRAINING if drains else table.SlotState.READY,
        address=pod.address,
        pod=pod.name,
        incarnation=pod.container_id.rpartition("/")[2][:12],
    )
