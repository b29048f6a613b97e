"""Decides if the spec can be applied. The first violated rule in this order is reported.

a guest's host can serve it                            HostNotFound, HostIsGuest, HostModelDiffers ...
its prompt exists and hashes to its pin                prompt
no older group claims the same prefix                  Conflict
the names of its objects are unused or its own         NameTaken
its pod template can be merged                         InvalidTemplate
its engine serves whole requests                       InvalidRole
its engine's data-parallel ranks can be determined     InvalidRanks
its weights are where its engine loads them            InvalidWeights
its replicas can have several nodes                    InvalidNodes
its KV tiers can work                                  InvalidCache
its engine can have its adapters                       InvalidAdapters
its engine can isolate callers                         IsolationNotSupported
"""

from promptgroup_contract import names
from promptgroup_contract.caller_rules import Isolation
from promptgroup_operator.engines.dialects.registry import DIALECTS
from promptgroup_operator.plan import desired, prompt
from promptgroup_operator.weights import prefetch
from promptgroup_operator.world.snapshot import GroupObject, Manifest, Problem, PromptText, World


def validate(world: World) -> PromptText | Problem:
    """Return the prompt that the group serves, or the first problem of its spec."""
    group, host = world.group, world.host
    if host is not None and host.problem is not None:
        return host.problem
    if isinstance(world.prompt, Problem):
        return world.prompt
    # Any number of groups may declare no prompt, with or without an adapter.
    claims = world.prompt.prompt.size > 0
    clash = prompt.conflict(group, world.prompt.fingerprint, world.siblings) if claims else None
    if clash is not None:
        return clash
    engine = None if host is not None else _engine_problem(group)
    return _foreign(world, world.prompt) or engine or _shared(group) or world.prompt


def _engine_problem(group: GroupObject) -> Problem | None:
    return (
        desired.template_problem(group)
        or desired.role_problem(group)
        or desired.ranks_problem(group)
        or desired.nodes_problem(group)
        or desired.weights_problem(group)
        or desired.cache_problem(group)
        or desired.adapters_problem(group)
    )


def taken_aliases(world: World) -> dict[str, str]:
    """Return alias → name of the group that has it, for the aliases that refer to another model in the namespace.

    Routers decide it in the same way (`promptgroup_router/rings/aliases.py`): names of models and groups have priority,
    then the alias of the oldest group. Groups of the same model share their aliases.
    """
    group = world.group
    space, own = group.key.namespace, (group.created, group.key.name)
    oldest_first = sorted(world.others, key=lambda other: (other.created, other.name))
    taken = {}
    for alias in group.spec.model_aliases:
        named = (
            other_group
            for other_group in oldest_first
            if alias in (other_group.model, other_group.name, f"{space}/{other_group.name}")
        )
        owner, holder = (
            next(named, None),
            next((other_group for other_group in oldest_first if alias in other_group.aliases), None),
        )
        if alias == f"{space}/{group.key.name}":
            taken[alias] = group.key.name
        elif owner is not None:
            taken[alias] = owner.name
        elif holder is not None and holder.model != group.spec.model and (holder.created, holder.name) < own:
            taken[alias] = holder.name
    return taken


def _shared(group: GroupObject) -> Problem | None:
    """Return the problem that callers must be isolated and the engine supports no cache salt; None otherwise."""
    engine = group.spec.engine.type
    if group.spec.routing.isolation is Isolation.GROUP or DIALECTS[engine].salted:
        return None
    return Problem(
        "IsolationNotSupported",
        f"spec.routing.isolation is Caller, and {engine.value} takes no cache_salt: use another engine, or a group for "
        "each caller with routing.sharing Dedicated",
    )


def _foreign(world: World, text: PromptText) -> Problem | None:
    """Return the problem that an object with another owner has a name that the group needs; it is never adopted."""
    wanted = {desired.name(world.group, text.fingerprint), world.group.key.name}
    if world.host is None and prefetch.is_wanted(world.group.spec.engine):
        wanted.add(prefetch.name(world.group.key.name))
    for (kind, object_name), live in sorted(world.live.items()):
        if object_name in wanted and not is_owned(world.group, live):
            return Problem(
                "NameTaken",
                f"{kind} {object_name} exists and belongs to something else: delete or rename it, or rename the group",
            )
    return None


def is_owned(group: GroupObject, live: Manifest) -> bool:
    """Return True if the group may write the object: its owner reference has the group's uid, or it is an orphan.

    An orphan is an object that the operator wrote (it has the operator's hash annotation) and that has no owner, as
    after `kubectl delete --cascade=orphan`. The label alone is no proof, since users can set it.
    """
    metadata = live.get("metadata", {})
    if metadata.get("ownerReferences"):
        return may_delete(group, live)
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    return labels.get(names.LABEL_GROUP) == group.key.name and names.ANNOTATION_APPLIED in annotations


def may_delete(group: GroupObject, live: Manifest) -> bool:
    """Return True if an owner reference has the group's uid: the operator deletes no other objects."""
    return any(
        owner_reference.get("uid") == group.uid
        for owner_reference in live.get("metadata", {}).get("ownerReferences") or []
    )
