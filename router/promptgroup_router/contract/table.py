"""The routing table: an immutable value that the operator writes and routers read.

A `Group` is the `spec` of one PromptRoute together with its namespace and name; `encoding` has its JSON.

Prompt text is not part of a PromptRoute. A revision names the immutable ConfigMap or Secret that holds it
(`prompt_from`), and the router fetches it once. In a table file the text stands inline (`prompt`).
"""

import enum
from dataclasses import dataclass

from promptgroup_router.contract.access import Access
from promptgroup_router.contract.caller_rules import NO_RULES, CallerRules
from promptgroup_router.contract.engine_tls import EngineTls
from promptgroup_router.contract.fingerprint import Fingerprint, hash_prefix
from promptgroup_router.contract.names import HEADER_SESSION
from promptgroup_router.contract.semantic import SemanticCaching

SYSTEM_KEY = "system"
"""Key of the system text in a prompt ConfigMap or Secret."""
TOOLS_KEY = "tools"
"""Key of the tools in canonical form in a prompt ConfigMap or Secret; absent without tools."""
MESSAGES_KEY = "messages"
"""Key of the messages in canonical form; absent without messages."""


LOAD_FACTOR_PERCENT = 125
"""Default of a group's `load_factor_percent`."""


MOST_SLOT = (1 << 32) - 1
"""Largest number of a slot: a ring weighs slots by four bytes of their numbers."""


class TableError(ValueError):
    """A table that cannot be used. The message names the field, its value and what is expected."""


class Policy(enum.StrEnum):
    """The rule by which a request's replica is chosen."""

    EXPECTED_TTFT = "ExpectedTTFT"
    BOUNDED_LOAD = "BoundedLoad"
    LEAST_REQUEST = "LeastRequest"
    ROUND_ROBIN = "RoundRobin"
    PREFIX_HASH = "PrefixHash"


class OwnInstructions(enum.StrEnum):
    """The treatment of a request that names a group and brings instructions of its own."""

    REFUSE = "Refuse"
    """It is refused: the client may have meant its instructions to replace the group's."""
    APPEND = "Append"
    """Its instructions follow the declared system text, after an empty line."""


class Sharing(enum.StrEnum):
    """The rule by which replicas take requests of other groups."""

    POOL = "Pool"
    """The group's replicas take the overflow of other groups of the same namespace, model, engine settings, access and
    rules for callers that say so too, and its own overflow may go to theirs."""
    DEDICATED = "Dedicated"
    """The group's replicas serve this group alone."""


class SlotState(enum.StrEnum):
    """The requests that a router may send to a slot."""

    READY = "Ready"
    """The slot is warm and takes any request."""
    DRAINING = "Draining"
    """The slot finishes its requests and takes no new ones."""
    ABSENT = "Absent"
    """No warm pod holds the slot. It keeps its place on the ring; its keys go to the next slot and come back with
    it."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A Tier-1 prefix: system text, and tools and messages in canonical form (`""` for none)."""

    system: str
    tools: str = ""
    messages: str = ""

    @property
    def size(self) -> int:
        """Bytes of all three in UTF-8."""
        return sum(len(part.encode()) for part in (self.system, self.tools, self.messages))

    @property
    def fingerprint(self) -> Fingerprint:
        """The fingerprint of all three."""
        return hash_prefix(self.tools, self.system.encode(), self.messages)


@dataclass(frozen=True, slots=True)
class PromptRef:
    """Where the text of a revision is stored: an immutable object in the group's namespace."""

    kind: str
    """`ConfigMap` or `Secret`."""
    name: str


@dataclass(frozen=True, slots=True)
class Slot:
    """A place on a revision's ring, and the pod that holds it."""

    index: int
    """Its number, from 0 to MOST_SLOT."""
    state: SlotState
    address: str = ""
    """`host:port`, empty when Absent."""
    pod: str = ""
    incarnation: str = ""
    """Changes when another process takes the slot: health records of the old one do not count for it."""
    credential: str = ""
    """Secret and key (`name/key`) of what the engine asks for as a bearer token; empty for nothing."""
    tls: EngineTls | None = None
    """The rule by which the engine is verified; None where it serves plain HTTP."""


@dataclass(frozen=True, slots=True)
class Engine:
    """Facts about the engines of a revision. A number is 0 while it is unknown."""

    settings: str = ""
    """Digest of everything that must be equal for two engines to be interchangeable, apart from the prompt; empty if
    unknown."""
    kv_tokens: int = 0
    """Tokens of KV cache that one replica has."""
    prefill_rate: int = 0
    """Measured prompt tokens per second at the start of a context; a lower bound."""
    step_tokens: int = 0
    """Most tokens that one step computes (`max_num_batched_tokens`)."""
    copy_rate: int = 0
    """Measured tokens per second of a copy from a KV tier that all replicas share; a lower bound. 0 without one."""


@dataclass(frozen=True, slots=True)
class Revision:
    """One fingerprint of a group and the replicas that are warm for it."""

    fingerprint: Fingerprint
    system_bytes: int
    """Length of the system text in UTF-8."""
    tools: bool
    """True if the prefix has tools, whose canonical form is part of the prompt."""
    weight: int
    """Share of the new sessions that name the group, relative to the weights of the other revisions."""
    slots: tuple[Slot, ...]
    messages: int = 0
    """Number of messages behind the system text that are part of the prefix."""
    tokens: int = 0
    """Length of the prefix in tokens, as an engine counted it; 0 while unknown."""
    engine: Engine = Engine()
    prompt_from: PromptRef | None = None
    lends: bool = True
    """True if its replicas may take requests of other revisions. Only the revision that serves lends: a canary would be
    judged by work that is not its own, and a superseded revision could not retire."""
    prompt: Prompt | None = None
    """The text, once it is known. Requests by name need it, matching by content does not."""


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """The time for which a group's engines may keep a client waiting, in seconds; 0 for no limit."""

    first_token: int = 0
    """From sending a streamed request to its first visible token; then another replica gets the request."""
    idle: int = 0
    """Pause within a streamed answer; then the answer is cut."""
    keep_alive: int = 0
    """Silence of a streamed answer; then, and after each further such time, the router sends what keeps it alive."""


NO_TIME_LIMITS = TimeLimits()


class CacheScope(enum.StrEnum):
    """The callers that share a kept answer."""

    GROUP = "Group"
    """All callers that may send requests to the group."""
    CALLER = "Caller"
    """The caller whose request was answered, alone."""


@dataclass(frozen=True, slots=True)
class ResponseCaching:
    """The answers that routers keep of a group, and for how long."""

    ttl: int
    """Most seconds for which an answer is kept."""
    max_bytes: int
    """Most bytes of answers that one router process keeps in memory."""
    scope: CacheScope = CacheScope.GROUP
    trust_seed: bool = False
    """True if the group's engines answer a request with a seed the same each time."""
    stale: int = 0
    """Seconds beyond its lifetime for which an answer is given while another is computed (RFC 5861)."""
    semantic: SemanticCaching | None = None
    """The rules by which similar questions are counted; None to count none."""


@dataclass(frozen=True, slots=True)
class ModelAlias:
    """Another name by which clients may ask for a group's model."""

    name: str
    since: str = ""
    """RFC 3339 time in UTC at which the group first had it; empty if unknown. Of two namespaces that have one name, the
    one that had it first gets the requests that name no namespace: a spec may be changed at any time, so the age of
    the group says nothing."""


@dataclass(frozen=True, slots=True)
class Group:
    """One PromptGroup as a router sees it."""

    namespace: str
    name: str
    model: str
    created: str
    """RFC 3339 time in UTC. Of two groups that claim one prefix, the older one keeps it."""
    revisions: tuple[Revision, ...]
    policy: Policy = Policy.EXPECTED_TTFT
    sharing: Sharing = Sharing.POOL
    load_factor_percent: int = LOAD_FACTOR_PERCENT
    """Bound of BoundedLoad: a slot takes at most this percentage of the mean load, rounded up."""
    session_header: str = HEADER_SESSION
    own_instructions: OwnInstructions = OwnInstructions.REFUSE
    time_limits: TimeLimits = NO_TIME_LIMITS
    access: Access | None = None
    """The callers who may use the group; None for whoever the router lets in by default."""
    callers: CallerRules = NO_RULES
    responses: ResponseCaching | None = None
    """None if no answer is kept."""
    aliases: tuple[ModelAlias, ...] = ()
    """Other names of the model in this namespace."""


@dataclass(frozen=True, slots=True)
class RoutingTable:
    """Everything that a router serves. Two tables differ if `version` does; versions have no order."""

    groups: tuple[Group, ...] = ()
    version: str = ""
