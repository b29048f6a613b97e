"""The routing table: an immutable value that the operator writes and routers read.

A `Group` is the `spec` of one PromptRoute together with its namespace and name; `encoding` has its JSON.

Prompt text is not part of a PromptRoute. A revision names the immutable ConfigMap or Secret that holds it
(`prompt_from`), and the router fetches it once. In a table file the text stands inline (`prompt`).
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field

from promptgroup_contract import engine_tls
from promptgroup_contract.access import Access
from promptgroup_contract.caller_rules import NO_RULES, CallerRules
from promptgroup_contract.engine_tls import EngineTls
from promptgroup_contract.fingerprint import Fingerprint, hash_prefix
from promptgroup_contract.messages import read_messages
from promptgroup_contract.names import HEADER_SESSION
from promptgroup_contract.semantic import SemanticCaching
from promptgroup_contract.wire import (
    COUNT,
    FLAG,
    OBJECT_NAME_SCHEMA,
    TEXT,
    Converted,
    Count,
    EnumMember,
    Hidden,
    Inline,
    LowerCase,
    Object,
    Objects,
    TextSet,
    UnfitError,
    shown,
    wire,
)

SYSTEM_KEY = "system"
"""Key of the system text in a prompt ConfigMap or Secret."""
TOOLS_KEY = "tools"
"""Key of the tools in canonical form in a prompt ConfigMap or Secret; absent without tools."""
MESSAGES_KEY = "messages"
"""Key of the messages in canonical form; absent without messages."""
ADAPTER_KEY = "adapter"
"""Key of the identity of the LoRA adapter; absent without one."""


MAX_ALIASES = 16
"""Most other names of a group's model."""
MAX_MESSAGES = 32
"""Most messages of a prefix."""
LOAD_FACTOR_PERCENT = 125
"""Default of a group's `load_factor_percent`."""


MOST_SLOT = (1 << 32) - 1
"""Largest number of a slot: a ring weighs slots by four bytes of their numbers."""


MOST_RANKS = 256
"""Most data-parallel ranks of one engine: the largest deployments of mixture-of-experts models have as many."""


NO_FINGERPRINT = Fingerprint("")
"""The fingerprint of no text."""


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
    """A Tier-1 prefix: system text, and tools and messages in canonical form (`""` for none).

    A revision with a LoRA adapter has the adapter's identity beside them, which is no text that an engine gets.
    """

    system: str = field(metadata=wire(SYSTEM_KEY, Hidden(), absent=""))
    tools: str = field(default="", metadata=wire(TOOLS_KEY, Hidden(), always=True))
    messages: str = field(default="", metadata=wire(MESSAGES_KEY, Hidden()))
    adapter: str = field(default="", metadata=wire(ADAPTER_KEY, Hidden()))

    @property
    def size(self) -> int:
        """Bytes of the three texts in UTF-8."""
        return sum(len(part.encode()) for part in (self.system, self.tools, self.messages))

    @property
    def fingerprint(self) -> Fingerprint:
        """The fingerprint of the three texts and the adapter."""
        return hash_prefix(self.tools, self.system.encode(), self.messages, self.adapter)

    @property
    def text_fingerprint(self) -> Fingerprint:
        """The fingerprint of the three texts, by which a request is matched that brings them."""
        return hash_prefix(self.tools, self.system.encode(), self.messages)

    def check(self) -> None:
        """Raise UnfitError, without the text, if the messages are not in canonical form."""
        try:
            read_messages(self.messages)
        except ValueError as error:
            raise UnfitError(f"cannot be read: {error}", MESSAGES_KEY) from None


@dataclass(frozen=True, slots=True)
class PromptRef:
    """Where the text of a revision is stored: an immutable object in the group's namespace."""

    kind: str = field(metadata=wire("kind", TEXT, enum=["ConfigMap", "Secret"]))
    name: str = field(metadata=wire("name", TEXT, **OBJECT_NAME_SCHEMA))


@dataclass(frozen=True, slots=True)
class Slot:
    """A place on a revision's ring, and the pod that holds it."""

    index: int = field(metadata=wire("slot", Count(most=MOST_SLOT)))
    """Number of the slot."""
    state: SlotState = field(metadata=wire("state", EnumMember(SlotState)))
    address: str = field(default="", metadata=wire("address", TEXT))
    """`host:port` of the engine, empty when Absent."""
    pod: str = field(default="", metadata=wire("pod", TEXT))
    incarnation: str = field(default="", metadata=wire("incarnation", TEXT))
    """Changes when another process takes the slot: health records of the old one do not count for it."""
    credential: str = field(default="", metadata=wire("credential", TEXT))
    """Secret and key (`name/key`) of what the engine asks for as a bearer token; empty for nothing."""
    tls: EngineTls | None = field(
        default=None, metadata=wire("tls", Converted(engine_tls.parse, EngineTls.text, engine_tls.EXPECTED))
    )
    """Object and key with the authorities by which the engine is verified, and the name that its certificate has
    (`ConfigMap/name/key/server-name`, the pod's address without the last); absent where it serves plain HTTP."""
    ranks: int = field(default=1, metadata=wire("ranks", Count(least=1, most=MOST_RANKS)))
    """Number of data-parallel ranks of the engine. Each has a KV cache of its own, so each is a place on the ring; the
    router names the rank in the header field `x-data-parallel-rank`."""

    def check(self) -> None:
        """Raise UnfitError for a slot that takes requests at no address."""
        if self.state is SlotState.ABSENT:
            return
        host, colon, port = self.address.rpartition(":")
        # a number of thousands of digits is not even read
        if not (host and colon and port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65536):
            expected = f"host:port for a slot that is {self.state.value}"
            raise UnfitError(f"is {shown(self.address)}, expected {expected}", "address")


@dataclass(frozen=True, slots=True)
class Engine:
    """Facts about the engines of a revision. A number is 0 while it is unknown."""

    settings: str = field(default="", metadata=wire("settings", TEXT))
    """Digest of everything that must be equal for two engines to be interchangeable, apart from the prompt; empty if
    unknown."""
    kv_tokens: int = field(default=0, metadata=wire("kvTokens", COUNT))
    """Tokens of KV cache that one replica has; of engines with data-parallel ranks, that one rank has."""
    prefill_rate: int = field(default=0, metadata=wire("prefillTokensPerSecond", COUNT))
    """Measured prompt tokens per second at the start of a context; a lower bound."""
    step_tokens: int = field(default=0, metadata=wire("stepTokens", COUNT))
    """Most tokens that one step computes (`max_num_batched_tokens`)."""
    max_sequences: int = field(default=0, metadata=wire("maxSequences", COUNT))
    """Most requests that one engine runs at once (`max_num_seqs`); others wait in its queue."""
    copy_rate: int = field(default=0, metadata=wire("copyTokensPerSecond", COUNT))
    """Measured tokens per second of a copy from a KV tier that all replicas share; a lower bound. 0 without one."""
    unranked: frozenset[str] = field(default=frozenset(), metadata=wire("unrankedAPIs", TextSet()))
    """APIs, as routers name them, for which engines with data-parallel ranks choose the rank themselves."""


@dataclass(frozen=True, slots=True)
class Revision:
    """One fingerprint of a group and the replicas that are warm for it."""

    fingerprint: Fingerprint = field(metadata=wire("fingerprint", TEXT, pattern="^[0-9a-f]{32}$"))
    system_bytes: int = field(metadata=wire("systemBytes", COUNT))
    """Length of the system text in UTF-8."""
    tools: bool = field(metadata=wire("tools", FLAG, absent=False))
    """True if the prefix has tools, whose canonical form is part of the prompt."""
    weight: int = field(metadata=wire("weight", COUNT, maximum=100))
    """Share of the new sessions that name the group, relative to the weights of the other revisions."""
    slots: tuple[Slot, ...] = field(metadata=wire("slots", Objects(Slot, "index", ordered=True), absent=()))
    messages: int = field(default=0, metadata=wire("messages", COUNT, maximum=MAX_MESSAGES))
    """Number of messages behind the system text that are part of the prefix."""
    tokens: int = field(default=0, metadata=wire("tokens", COUNT))
    """Length of the prefix in tokens, as an engine counted it; 0 while unknown."""
    engine: Engine = field(default=Engine(), metadata=wire("engine", Object(Engine)))
    text_fingerprint: Fingerprint = field(default=NO_FINGERPRINT, metadata=wire("textFingerprint", TEXT))
    """Fingerprint of the prompt's text alone, where a LoRA adapter is part of `fingerprint`; absent without one."""
    served_model: str = field(default="", metadata=wire("servedModel", TEXT))
    """The model that requests to its engines name for the LoRA adapter of this revision; absent without one, where they
    serve the group's model."""
    served_apis: frozenset[str] | None = field(default=None, metadata=wire("servedModelAPIs", TextSet()))
    """APIs, as routers name them, on which its engines apply that adapter; absent if they do on all of them."""
    lends: bool = field(default=True, metadata=wire("lends", FLAG))
    """True if its replicas may take requests of other revisions. Only the revision that serves lends: a canary would be
    judged by work that is not its own, and a superseded revision could not retire."""
    prompt_from: PromptRef | None = field(default=None, metadata=wire("promptFrom", Object(PromptRef)))
    prompt: Prompt | None = field(default=None, metadata=wire("prompt", Object(Prompt), inline_only=True))
    """The text, once it has been read. Requests by name need it, matching by content does not."""

    @property
    def is_secret(self) -> bool:
        """True if the prompt comes from a Secret."""
        return self.prompt_from is not None and self.prompt_from.kind == "Secret"

    @property
    def declared(self) -> Fingerprint:
        """The fingerprint of the prompt that requests of the revision begin with."""
        return self.text_fingerprint or self.fingerprint


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """The time for which a group's engines may keep a client waiting, in seconds; 0 for no limit."""

    first_token: int = field(default=0, metadata=wire("firstTokenSeconds", COUNT))
    """Seconds from sending a streamed request to its first visible token; then another replica gets the request."""
    idle: int = field(default=0, metadata=wire("idleSeconds", COUNT))
    """Seconds of a pause within a streamed answer; then the answer is cut."""
    keep_alive: int = field(default=0, metadata=wire("keepAliveSeconds", COUNT))
    """Seconds of silence of a streamed answer; then, and after each further such time, the router sends what keeps it
    alive."""


NO_TIME_LIMITS = TimeLimits()


@dataclass(frozen=True, slots=True)
class Sleep:
    """The treatment of a group's requests while it has no replica on purpose. It borrows none of other groups then."""

    wake_timeout: int = field(default=0, metadata=wire("wakeTimeoutSeconds", COUNT))
    """Seconds for which routers hold a request until a replica is warm; 0 to refuse it at once."""
    since: str = field(default="", metadata=wire("since", TEXT))
    """RFC 3339 time in UTC since which the group asks for no replica; empty while it asks for some."""
    woken: str = field(default="", metadata=wire("woken", TEXT))
    """RFC 3339 time in UTC at which a replica was requested; empty while the group sleeps, and once one is warm."""
    start: int = field(default=0, metadata=wire("startSeconds", COUNT))
    """Seconds that the latest start took, from asking for a replica until it was warm; 0 while unknown."""
    problem: str = field(default="", metadata=wire("problem", TEXT))
    """The reason why no replica can start now; requests are refused with it instead of waiting in vain."""


class CacheScope(enum.StrEnum):
    """The callers that share a cached answer."""

    GROUP = "Group"
    """All callers that may send requests to the group."""
    CALLER = "Caller"
    """The caller whose request was answered, alone."""


@dataclass(frozen=True, slots=True)
class ResponseCaching:
    """The answers that routers keep of a group, and for how long."""

    ttl: int = field(metadata=wire("ttlSeconds", COUNT, minimum=1))
    """Most seconds for which an answer is cached."""
    max_bytes: int = field(metadata=wire("maxBytes", COUNT, minimum=1))
    """Most bytes of answers that one router process keeps in memory."""
    scope: CacheScope = field(default=CacheScope.GROUP, metadata=wire("scope", EnumMember(CacheScope), always=True))
    trust_seed: bool = field(default=False, metadata=wire("trustSeed", FLAG))
    """True if the group's engines answer a request with a seed the same each time."""
    stale: int = field(default=0, metadata=wire("staleSeconds", COUNT))
    """Seconds beyond its lifetime for which an answer is given while another is computed (RFC 5861)."""
    semantic: SemanticCaching | None = field(default=None, metadata=wire("semantic", Object(SemanticCaching)))
    """The rules by which similar questions are counted; absent to count none."""


@dataclass(frozen=True, slots=True)
class ModelAlias:
    """Another name by which clients may ask for a group's model."""

    name: str = field(metadata=wire("name", TEXT))
    since: str = field(default="", metadata=wire("since", TEXT))
    """RFC 3339 time in UTC at which the group first had it; empty if unknown. Of two namespaces that have one name, the
    one that had it first gets the requests that name no namespace: a spec may be changed at any time, so the age of
    the group says nothing."""


@dataclass(frozen=True, slots=True)
class Group:
    """One PromptGroup as a router sees it."""

    namespace: str
    name: str
    model: str = field(metadata=wire("model", TEXT))
    created: str = field(metadata=wire("created", TEXT, absent=""))
    """RFC 3339 time in UTC. Of two groups that claim one prefix, the older one keeps it."""
    revisions: tuple[Revision, ...] = field(metadata=wire("revisions", Objects(Revision, "fingerprint"), absent=()))
    policy: Policy = field(default=Policy.EXPECTED_TTFT, metadata=wire("policy", EnumMember(Policy), always=True))
    sharing: Sharing = field(default=Sharing.POOL, metadata=wire("sharing", EnumMember(Sharing), always=True))
    load_factor_percent: int = field(
        default=LOAD_FACTOR_PERCENT, metadata=wire("loadFactorPercent", Count(least=100, most=10_000), always=True)
    )
    """Bound of BoundedLoad: a slot takes at most this percentage of the mean load, rounded up."""
    session_header: str = field(default=HEADER_SESSION, metadata=wire("sessionHeader", LowerCase(), always=True))
    """Header of requests that names their session."""
    own_instructions: OwnInstructions = field(
        default=OwnInstructions.REFUSE, metadata=wire("ownInstructions", EnumMember(OwnInstructions))
    )
    """The treatment of a request that names the group and brings instructions of its own."""
    time_limits: TimeLimits = field(default=NO_TIME_LIMITS, metadata=wire("", Inline(TimeLimits)))
    access: Access | None = field(default=None, metadata=wire("access", Object(Access)))
    """The callers who may use the group; absent for whomever the router lets in by default."""
    callers: CallerRules = field(default=NO_RULES, metadata=wire("callers", Object(CallerRules)))
    """The rules for callers."""
    responses: ResponseCaching | None = field(default=None, metadata=wire("responses", Object(ResponseCaching)))
    """The answers that routers cache; absent if they cache none."""
    max_resumes: int = field(default=0, metadata=wire("maxResumes", COUNT))
    """Most times that one streamed answer goes on on another replica, after its own is lost or must leave."""
    aliases: tuple[ModelAlias, ...] = field(
        default=(), metadata=wire("aliases", Objects(ModelAlias, "name"), maxItems=MAX_ALIASES)
    )
    """Other names of the model in this namespace."""
    base_model: str = field(default="", metadata=wire("baseModel", TEXT))
    """The model that its engines run, where `model` is the name of a LoRA adapter for it; absent without one."""
    sleep: Sleep | None = field(default=None, metadata=wire("sleep", Object(Sleep)))
    """The treatment of requests while the group has no replica on purpose; absent for a group that always has some."""


@dataclass(frozen=True, slots=True)
class RoutingTable:
    """Everything that a router serves. Two tables differ if `version` does; versions have no order."""

    groups: tuple[Group, ...] = ()
    version: str = ""


def rank_numbers(ranks: int) -> Sequence[int | None]:
    """Return the data-parallel ranks that requests name; None alone for an engine with one cache."""
    return range(ranks) if ranks > 1 else (None,)
