"""Decides if the spec can be acted on. The first objection in this order is reported.

the group whose replicas serve it can do so            HostNotFound, HostIsGuest, HostModelDiffers ...
its prompt is there and hashes to its pin              prompt
no older group claims the same prefix                  Conflict
the names of its objects are free or its own           NameTaken
its pod template can be merged                         InvalidTemplate
its engine's data-parallel ranks can be known          InvalidRanks
its KV tiers can work                                  InvalidCache
its engine can keep callers apart                      IsolationNotSupported
"""

from promptgroup_contract import names
from promptgroup_contract.caller_rules import Isolation
from promptgroup_operator.engines.dialects.registry import DIALECTS
from promptgroup_operator.plan import desired, prompt
from promptgroup_operator.world.snapshot import GroupObject, Manifest, Problem, PromptText, World


def validate(world: World) -> PromptText | Problem:
    """Return the prompt that the group is to serve, or the first objection to it."""
    group, host = world.group, world.host
    if host is not None and host.problem is not None:
        return host.problem
    if isinstance(world.prompt, Problem):
        return world.prompt
    clash = prompt.conflict(group, world.prompt.fingerprint, world.siblings)
    if clash is not None:
        return clash
    engine = None if host is not None else _engine_problem(group)
    return _foreign(world, world.prompt) or engine or _shared(group) or world.prompt


def _engine_problem(group: GroupObject) -> Problem | None:
    return desired.template_problem(group) or desired.ranks_problem(group) or desired.cache_problem(group)


def taken_aliases(world: World) -> dict[str, str]:
    """Return alias → name of the group that keeps it, for the aliases that stand for something else in the namespace.

    Routers decide it alike (`promptgroup_router/rings/aliases.py`): what has a name itself comes first, then the alias
    of the oldest group. Groups of the same model share their aliases.
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
    """Return the problem that callers are to be kept apart, and the engine knows no salt on any API."""
    engine = group.spec.engine.type
    if group.spec.routing.isolation is Isolation.GROUP or DIALECTS[engine].salted:
        return None
    return Problem(
        "IsolationNotSupported",
        f"spec.routing.isolation is Caller, and {engine.value} takes no cache_salt: use another engine, or a group for "
        "each caller with routing.sharing Dedicated",
    )


def _foreign(world: World, text: PromptText) -> Problem | None:
    """Return the problem that an object of somebody else has a name that the group needs: it is never taken over."""
    wanted = {desired.name(world.group, text.fingerprint), world.group.key.name}
    for (kind, object_name), live in sorted(world.live.items()):
        if object_name in wanted and not is_owned(world.group, live):
            return Problem(
                "NameTaken",
                f"{kind} {object_name} exists and belongs to something else: delete or rename it, or rename the group",
            )
    return None


def is_owned(group: GroupObject, live: Manifest) -> bool:
    """Return True if the object is the group's to write: its owner reference names the group's uid, or it is an orphan.

    An orphan is an object that the operator wrote (it carries the operator's stamp) and that nobody owns, as
    `kubectl delete --cascade=orphan` leaves it behind. The label alone proves nothing: users set it, too.
    """
    metadata = live.get("metadata", {})
    if metadata.get("ownerReferences"):
        return may_delete(group, live)
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    return labels.get(names.LABEL_GROUP) == group.key.name and names.ANNOTATION_APPLIED in annotations


def may_delete(group: GroupObject, live: Manifest) -> bool:
    """Return True if an owner reference names the group's uid: nothing less allows the operator to delete an object."""
    return any(
        owner_reference.get("uid") == group.uid
        for owner_reference in live.get("metadata", {}).get("ownerReferences") or []
    )
