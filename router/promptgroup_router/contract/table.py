"""The routing table: an immutable value, written by the operator, read by routers.

A `Group` is the `spec` of one PromptRoute together with its namespace and name; `encoding` has its JSON.

Prompt text is not part of a PromptRoute. A revision names the immutable ConfigMap or Secret that holds it
(`prompt_from`), and the router fetches it once; in a table file the text stands inline (`prompt`).
"""

import enum
from dataclasses import dataclass

from promptgroup_router.contract.names import HEADER_SESSION

SYSTEM_KEY = "system"
"""Key of the system text in a prompt ConfigMap or Secret."""
TOOLS_KEY = "tools"
"""Key of the tools, canonical JSON, in a prompt ConfigMap or Secret; absent without tools."""


class TableError(ValueError):
    """A table that cannot be used: the message names the field, the value and what is expected."""


class Policy(enum.StrEnum):
    """How a request's replica is chosen."""

    EXPECTED_TTFT = "ExpectedTTFT"
    BOUNDED_LOAD = "BoundedLoad"
    LEAST_REQUEST = "LeastRequest"
    ROUND_ROBIN = "RoundRobin"
    PREFIX_HASH = "PrefixHash"


class Sharing(enum.StrEnum):
    """Whether a group's replicas take the overflow of others, and its own overflow may go to theirs."""

    POOL = "Pool"
    """Among groups of one namespace, model and engine settings that all say so."""
    DEDICATED = "Dedicated"
    """Its replicas serve this group alone."""


class SlotState(enum.StrEnum):
    """What a router may send to a slot."""

    READY = "Ready"
    """Warm: anything."""
    DRAINING = "Draining"
    """Leaving: nothing new; what runs ends."""
    ABSENT = "Absent"
    """No warm pod holds the slot now. It keeps its place on the ring, its keys walk on and come back."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A Tier-1 prefix: system text, and tools in canonical form (`""` for none)."""

    system: str
    tools: str = ""


@dataclass(frozen=True, slots=True)
class PromptRef:
    """Where the text of a revision lies: an immutable object in the group's namespace."""

    kind: str
    """`ConfigMap` or `Secret`."""
    name: str


@dataclass(frozen=True, slots=True)
class Slot:
    """A place on a revision's ring and the pod that holds it."""

    index: int
    state: SlotState
    address: str = ""
    """`host:port`, empty when Absent."""
    pod: str = ""
    incarnation: str = ""
    """Changes when the engine behind the slot is another process: health learned about the old one is void."""


@dataclass(frozen=True, slots=True)
class Engine:
    """What is known of the engines of a revision. A number is 0 where nobody knows it: routers then assume little."""

    settings: str = ""
    """Digest of all that makes two engines interchangeable but their prompt; empty: alike to no other."""
    kv_tokens: int = 0
    """Tokens of KV cache that one replica has."""
    prefill_rate: int = 0
    """Prompt tokens a second at the start of a context, as measured; a lower bound."""
    step_tokens: int = 0
    """Most tokens that one step computes (`max_num_batched_tokens`)."""


@dataclass(frozen=True, slots=True)
class Revision:
    """One fingerprint of a group and the replicas that are warm for it."""

    fingerprint: str
    system_bytes: int
    """Length of the system text in UTF-8."""
    tools: bool
    """Whether the prefix has tools: their canonical form stands in the prompt."""
    weight: int
    """Share of new sessions that name the group, relative to the other revisions' weights."""
    slots: tuple[Slot, ...]
    tokens: int = 0
    """Length of the prefix in tokens, as an engine counted it; 0 while none has."""
    engine: Engine = Engine()
    prompt_from: PromptRef | None = None
    lends: bool = True
    """Its replicas may take requests of other revisions. False for all but the revision that serves: a canary would be
    judged by work that is not its own, and what is superseded could not retire."""
    prompt: Prompt | None = None
    """The text, once it is known: needed to serve requests by name, not to match by content."""


@dataclass(frozen=True, slots=True)
class Group:
    """One PromptGroup as a router sees it."""

    namespace: str
    name: str
    model: str
    created: str
    """RFC 3339 time in UTC: of two groups that claim one prefix, the older keeps it."""
    revisions: tuple[Revision, ...]
    policy: Policy = Policy.EXPECTED_TTFT
    sharing: Sharing = Sharing.POOL
    load_factor_percent: int = 125
    """Bound of BoundedLoad: a slot takes at most this percentage of the mean load, rounded up."""
    session_header: str = HEADER_SESSION


@dataclass(frozen=True, slots=True)
class RoutingTable:
    """Everything a router serves. `version` tells two tables apart; it orders nothing."""

    groups: tuple[Group, ...] = ()
    version: str = ""
