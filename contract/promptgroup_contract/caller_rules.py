"""The rules of a group for its callers: what they may ask and learn, and how much they get.

A caller is the client that a request's credential identifies. Their names come from the group's author, or from who
authenticates them.
"""

import enum
import re
from dataclasses import dataclass, field, replace

from promptgroup_contract.wire import COUNT, Count, EnumMember, Keyed, Object, TextSet, UnfitError, shown, wire


class EngineField(enum.StrEnum):
    """A field of a request that speaks to the engine's operator: clients set it only where their group allows it."""

    CACHE_SALT = "cache_salt"
    """All engines: the part of the cache that is read and written."""
    EXTRA_KEY = "extra_key"
    """SGLang: the same."""
    KV_TRANSFER_PARAMS = "kv_transfer_params"
    """vLLM: blocks of other engines' caches to fetch, and from where."""
    EC_TRANSFER_PARAMS = "ec_transfer_params"
    """vLLM: the same for encoded images."""
    BOOTSTRAP_HOST = "bootstrap_host"
    """SGLang: the engine that computes the prompt. This one connects to it."""
    BOOTSTRAP_PORT = "bootstrap_port"
    BOOTSTRAP_ROOM = "bootstrap_room"
    BOOTSTRAP_PAIR_KEY = "bootstrap_pair_key"
    DISAGGREGATED_PARAMS = "disaggregated_params"
    """TensorRT-LLM: the same."""
    CONVERSATION_PARAMS = "conversation_params"
    """TensorRT-LLM: the conversation by which the part of the engine is chosen that serves the request."""
    DATA_PARALLEL_RANK = "data_parallel_rank"
    """SGLang: the part of the engine that serves the request."""
    ROUTED_DP_RANK = "routed_dp_rank"
    DISAGG_PREFILL_DP_RANK = "disagg_prefill_dp_rank"
    NVEXT = "nvext"
    """NVIDIA Dynamo: where to route, and more."""
    VLLM_XARGS = "vllm_xargs"
    """vLLM: arguments of plugins."""
    CUSTOM_LOGIT_PROCESSOR = "custom_logit_processor"
    """SGLang: code to run."""
    CUSTOM_PARAMS = "custom_params"
    """SGLang: its arguments."""
    LORA_REQUEST = "lora_request"
    """TensorRT-LLM: a path of weights to load."""
    LORA_PATH = "lora_path"
    """SGLang: weights to use beside the model's."""
    SESSION_PARAMS = "session_params"
    """SGLang: a session that the engine keeps."""
    SESSION_ID = "session_id"
    """vLLM, SGLang: the session that the engine keeps or reports a request's cache under."""
    RID = "rid"
    """SGLang: the id of the request within the engine, by which it can be aborted."""
    REQUEST_ID = "request_id"
    """vLLM: the same, and the id of a response."""
    INPUT_IDS = "input_ids"
    """SGLang: tokens that a chat's engine takes in place of its messages, so also of a declared prompt."""
    PROMPT_EMBEDS = "prompt_embeds"
    """vLLM: prompts beside the one that the router reads."""
    CUSTOM_LABELS = "custom_labels"
    """SGLang: labels of the engine's metrics."""
    PRIORITY = "priority"
    """All engines: who goes first."""


MOST_HEADERS = 16
"""Most header fields that a group names."""
HEADER_NAME = "^[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?$"
"""Pattern of their names."""
UNNAMEABLE_HEADERS = (
    # about one connection, or about where a message goes and ends
    *("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"),
    *("host", "content-length", "content-encoding", "expect", "via", "proxy-authenticate"),
    # credentials, which `access.passCredentials` is about
    *("authorization", "proxy-authorization", "x-api-key", "api-key", "cookie", "set-cookie"),
    # the router's own word, and the gateway's
    *("x-request-id", "request-id", "cache-status", "age"),
)
"""Header fields that no group can name."""
UNNAMEABLE_BEGINNINGS = ("x-promptgroup", "x-ratelimit-", "x-envoy-", "x-gateway-destination-endpoint")
"""Beginnings of further ones, which are the router's, the gateway's and the picker's."""
_HEADER_NAME = re.compile(HEADER_NAME, re.ASCII)


def is_nameable(header: str) -> bool:
    """Return True if a group can let a header field pass between its callers and its engines."""
    return (
        _HEADER_NAME.fullmatch(header) is not None
        and header not in UNNAMEABLE_HEADERS
        and not header.startswith(UNNAMEABLE_BEGINNINGS)
    )


SALTS = frozenset((EngineField.CACHE_SALT, EngineField.EXTRA_KEY))
"""Fields that choose the part of a cache. A group that isolates its callers sets it itself."""


class Isolation(enum.StrEnum):
    """The callers who share what engines have cached."""

    GROUP = "Group"
    """All callers of a group."""
    CALLER = "Caller"
    """Nobody: each caller has caches of its own, of the declared prompt too."""


class CachedTokens(enum.StrEnum):
    """The precision in which answers report the number of cached tokens."""

    EXACT = "Exact"
    """The engine's number."""
    ROUNDED = "Rounded"
    """The number, rounded down to `CACHED_STEP` tokens."""
    HIDDEN = "Hidden"
    """Nothing."""


CACHED_STEP = 1024
"""Step to which Rounded rounds down."""


class Priority(enum.StrEnum):
    """The class of a caller's requests while they wait for room, the first one first."""

    HIGH = "High"
    NORMAL = "Normal"
    LOW = "Low"


@dataclass(frozen=True, slots=True)
class CallerLimits:
    """The limits of one caller in a group; 0 for no limit."""

    requests_per_minute: int = field(default=0, metadata=wire("requestsPerMinute", COUNT))
    tokens_per_minute: int = field(default=0, metadata=wire("tokensPerMinute", COUNT))
    """Tokens of prompts and answers."""
    in_flight: int = field(default=0, metadata=wire("requestsInFlight", COUNT))
    """Requests at a time."""
    tokens_per_day: int = field(default=0, metadata=wire("tokensPerDay", COUNT))
    """Tokens of prompts and answers from midnight to midnight, UTC."""
    weight: int = field(default=1, metadata=wire("weight", Count(least=1)))
    """Share of a full group, relative to the weights of the callers of the same class who wait."""
    priority: Priority = field(default=Priority.NORMAL, metadata=wire("priority", EnumMember(Priority)))
    """Class of the requests that wait for room."""


NO_LIMITS = CallerLimits()


@dataclass(frozen=True, slots=True)
class CallerRules:
    """The rules of one group."""

    allowed: frozenset[EngineField] = field(
        default=frozenset(), metadata=wire("allowedEngineFields", TextSet(EngineField))
    )
    """Fields of requests that clients may set. Those that a router does not know stay forbidden."""
    headers: frozenset[str] = field(default=frozenset(), metadata=wire("allowedEngineHeaders", TextSet()))
    """Header fields, in lower case, that pass between clients and engines beside those that pass in every group."""
    salted: frozenset[str] | None = field(default=None, metadata=wire("salted", TextSet()))
    """The APIs on which the engines take a salt, of a group that isolates its callers and serves no other API; absent
    where callers share caches."""
    cached_tokens: CachedTokens = field(
        default=CachedTokens.EXACT, metadata=wire("reportCachedTokens", EnumMember(CachedTokens))
    )
    default: CallerLimits = field(default=NO_LIMITS, metadata=wire("default", Object(CallerLimits)))
    """Limits of a caller that is not named."""
    named: tuple[tuple[str, CallerLimits], ...] = field(
        default=(), metadata=wire("named", Keyed(CallerLimits, "caller"))
    )
    """Limits of callers by name, in the order of names."""
    _by_name: dict[str, CallerLimits] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", dict(self.named))

    def check(self) -> None:
        """Raise UnfitError if header fields are named that no group can let pass."""
        key = "allowedEngineHeaders"
        for name in sorted(self.headers):
            if not is_nameable(name):
                way = "name fields in lower case that no connection, credential, router or gateway needs"
                raise UnfitError(f"has {shown(name)}, which no group can let pass: {way}", key)
        if len(self.headers) > MOST_HEADERS:
            raise UnfitError(f"has {len(self.headers)} names, at most {MOST_HEADERS}: name fewer", key)

    @property
    def isolates(self) -> bool:
        """True if callers share no cache."""
        return self.salted is not None

    @property
    def without_limits(self) -> "CallerRules":
        """The rules for what engines get and callers learn: groups that have the same may share replicas."""
        return replace(self, default=NO_LIMITS, named=())

    def limits_of(self, caller: str) -> CallerLimits:
        """Return the limits of a caller."""
        return self._by_name.get(caller, self.default)


NO_RULES = CallerRules()
