"""The state of the API server for one group, as values."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from promptgroup_operator.world.snapshot import (
    NO_POOLS,
    GroupObject,
    GuestSubject,
    Host,
    Key,
    Manifest,
    OtherGroup,
    Problem,
    PromptText,
    RevisionState,
    SeenPools,
    Sibling,
)


@dataclass(frozen=True, slots=True)
class ClusterState:
    """State of the API server for one group, before its engines are read."""

    group: GroupObject
    prompt: PromptText | Problem
    """The prompt that it declares, or the reason why it cannot be served."""
    revisions: tuple[RevisionState, ...]
    siblings: tuple[Sibling, ...]
    live: Mapping[tuple[str, str], Manifest]
    """(kind, name) → object, for every object of the group."""
    inference_pools: SeenPools = NO_POOLS
    """The InferencePools that are relevant to it."""
    others: tuple[OtherGroup, ...] = ()
    """The other groups of the namespace; empty where the group's model has no aliases."""
    host: Host | None = None
    """The group whose replicas serve it; None for a group with its own engine."""
    guests: tuple[GuestSubject, ...] = ()
    """The revisions of its guests that are routed to its replicas."""
    guest_keys: tuple[Key, ...] = ()
    """Its guests."""
    prompts: Mapping[str, int] = field(default_factory=dict)
    """Group → tokens of its prompts on one replica, for a host that has guests and for these guests; else empty."""
    guests_routed: frozenset[str] = frozenset()
    """Its pods that are routable in the PromptRoutes of its guests."""
    adapters: frozenset[str] = frozenset()
    """The models that requests to its engines name for the adapters of its revisions and of its guests'."""
