"""PromptGroup and PromptRoute as pydantic models: the API that users write and read.

The CRDs under crds/ are generated from these models (`promptgroup-operator crd`); docstrings become the fields'
descriptions in `kubectl explain`, with their defaults. Rules that need more than one field are CEL (KEP-2876), so that
the API server refuses a bad object before anything is created from it. Each rule has a twin in Python beside it, by
which files are checked where there is no API server.
"""

import enum
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue
from pydantic.config import JsonDict

from promptgroup_contract.access import AccessType
from promptgroup_contract.caller_rules import (
    HEADER_NAME,
    MOST_HEADERS,
    SALTS,
    UNNAMEABLE_BEGINNINGS,
    UNNAMEABLE_HEADERS,
    CachedTokens,
    EngineField,
    Isolation,
    is_nameable,
)
from promptgroup_contract.fingerprint import Fingerprint
from promptgroup_contract.names import HEADER_SESSION
from promptgroup_contract.table import MAX_ALIASES, MAX_MESSAGES, MOST_RANKS, OwnInstructions, Policy, Sharing
from promptgroup_operator.api.access import AccessSpec, asks_callers
from promptgroup_operator.api.cache import CacheSpec, CacheStatus, PoolType, PrefixCaching
from promptgroup_operator.api.gateway import FailureMode, GatewaySpec
from promptgroup_operator.api.limits import LimitsSpec
from promptgroup_operator.api.loaded_weights import AdapterSpec, EngineAdaptersSpec, PrefetchStatus, WeightsSpec
from promptgroup_operator.api.model import ApiModel, Duration, KeyRef, ObjectName, Printed, rule, rule_of_change, rules
from promptgroup_operator.api.responses import ResponseCacheMode, ResponsesSpec
from promptgroup_operator.api.starts import SHOWN, StartingReplica, StartStatus
from promptgroup_operator.base import durations, nesting

MAX_NAME = 50
"""Longest name of a group: `<group>-<8 hex digits>` must fit a label value (63), as Deployments' names do."""

MAX_PROMPT = 900_000
"""Most bytes of system text and tools together: an object must fit etcd's 1.5 MiB. The schema, which counts characters,
refuses longer texts at once; the operator counts bytes."""

_SURGE = re.compile(r"(0|[1-9][0-9]{0,2})%", re.ASCII)


def _is_surge(value: int | str) -> bool:
    return value >= 0 if isinstance(value, int) else _SURGE.fullmatch(value) is not None


def take_turns(roles: list[str]) -> bool:
    """Return True if the roles are pairs of user and assistant, as every chat template renders them."""
    return roles == ["user", "assistant"] * (len(roles) // 2)


def _increase(weights: list[int]) -> bool:
    return weights == sorted(set(weights))


FREE_LEVELS = 64
"""Most levels of objects and lists in a free-form field: half of what the operator reads of any object."""


def _is_shallow(value: Any) -> Any:
    if nesting.is_deeper(value, FREE_LEVELS):
        raise ValueError(f"it nests more than {FREE_LEVELS} levels deep, and no more are read: make it flatter")
    return value


FreeForm = Annotated[
    dict[str, JsonValue],
    BeforeValidator(_is_shallow),
    Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True, "additionalProperties": None}),
]
IntOrText = Annotated[int | str, Field(json_schema_extra={"x-kubernetes-int-or-string": True, "anyOf": None})]

_QUANTITY = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$"
"""The form of what Kubernetes takes for a quantity, with exponents that one can have: the largest is 2^63-1."""
_QUANTITY_CHARACTERS = 32


def _is_quantity(value: int | str) -> int | str:
    if isinstance(value, int):
        fits = -(2**63) <= value < 2**63
    else:
        fits = len(value) <= _QUANTITY_CHARACTERS and re.fullmatch(_QUANTITY, value, re.ASCII) is not None
    if not fits:
        raise ValueError("it is no quantity of Kubernetes: write a number such as 2, 500m or 64Gi")
    return value


Quantity = Annotated[
    int | str,
    AfterValidator(_is_quantity),
    Field(
        json_schema_extra={
            "x-kubernetes-int-or-string": True,
            "pattern": _QUANTITY,
            "maxLength": _QUANTITY_CHARACTERS,
            "anyOf": None,
        }
    ),
]


# --- PromptGroup: prompt -----------------------------------------------------------------------------------


class TextSource(ApiModel):
    """Source of a text that is not inline."""

    model_config = rules(
        rule(
            "has(self.configMapKeyRef) != has(self.secretKeyRef)",
            "name exactly one source: configMapKeyRef or secretKeyRef",
            holds=lambda source: (source.config_map_key_ref is None) != (source.secret_key_ref is None),
        )
    )

    config_map_key_ref: KeyRef | None = None
    """A key of a ConfigMap. Editing its value starts a new revision."""
    secret_key_ref: KeyRef | None = None
    """A key of a Secret. Its text stays in Secrets: it never appears in routes, status, events or logs."""


class DeclaredMessage(ApiModel):
    """A message that every conversation of the group begins with, such as one half of an example."""

    role: Annotated[Literal["user", "assistant"], Field(json_schema_extra={"maxLength": len("assistant")})]
    """The role that says it."""
    content: Annotated[str, Field(min_length=1, max_length=MAX_PROMPT)]
    """The text."""


class PromptSpec(ApiModel):
    """The Tier-1 prefix that every request of the group begins with: tools, system prompt, and messages."""

    model_config = rules(
        rule(
            "has(self.system) != has(self.systemFrom)",
            "prompt needs exactly one of system (inline) and systemFrom (a ConfigMap or Secret key)",
            holds=lambda prompt: (prompt.system is None) != (prompt.system_from is None),
        ),
        rule(
            "!(has(self.tools) && size(self.tools) > 0 && has(self.toolsFrom))",
            "prompt takes tools or toolsFrom, not both: remove one",
            holds=lambda prompt: not (prompt.tools and prompt.tools_from is not None),
        ),
        rule(
            "!(has(self.messages) && size(self.messages) > 0 && has(self.messagesFrom))",
            "prompt takes messages or messagesFrom, not both: remove one",
            holds=lambda prompt: not (prompt.messages and prompt.messages_from is not None),
        ),
        rule(
            f"!has(self.messages) || (size(self.messages) % 2 == 0 && {[*range(0, MAX_MESSAGES, 2)]}.all(i, "
            "i >= size(self.messages) || "
            "(self.messages[i].role == 'user' && self.messages[i + 1].role == 'assistant')))",
            "prompt.messages must be pairs of a user's and an assistant's message, in this order",
            ".messages",
            holds=lambda prompt: take_turns([message.role for message in prompt.messages or []]),
        ),
        rule(
            "!has(self.system) || size(self.system) > 0",
            "prompt.system is empty: write the system prompt, or name its ConfigMap or Secret key in systemFrom",
            holds=lambda prompt: prompt.system != "",
        ),
    )

    system: Annotated[str, Field(max_length=MAX_PROMPT)] | None = None
    """The system prompt, byte for byte as clients send it or as the router adds it."""
    system_from: TextSource | None = None
    """The key that holds the system prompt."""
    tools: Annotated[list[FreeForm], Field(max_length=1024)] | None = None
    """OpenAI tool definitions. The order of keys within them does not matter, the order of the list does."""
    tools_from: TextSource | None = None
    """The key that holds the tool definitions, a JSON list."""
    messages: Annotated[list[DeclaredMessage], Field(max_length=MAX_MESSAGES)] | None = None
    """Messages between the system prompt and the conversation, such as examples: pairs of a user's and an assistant's
    text. A request with the same system prompt and other messages does not belong to the group."""
    messages_from: TextSource | None = None
    """The key that holds the messages, a JSON list of objects with role and content."""
    fingerprint: Annotated[Fingerprint, Field(pattern="^[0-9a-f]{32}$")] | None = None
    """Pin: 32 lower-case hex digits, as `promptgroup fingerprint FILE` prints. A prompt with another fingerprint is
    refused."""


# --- PromptGroup: engine -----------------------------------------------------------------------------------


class EngineType(enum.StrEnum):
    """The engine, which decides on arguments, probes and metrics."""

    VLLM = "vLLM"
    SGLANG = "SGLang"
    TENSORRT_LLM = "TensorRTLLM"


class AuthoritySource(TextSource):
    """Source of the authorities that sign engines' certificates, in PEM."""

    config_map_key_ref: KeyRef | None = None
    """A key of a ConfigMap, such as a bundle of trust-manager."""
    secret_key_ref: KeyRef | None = None
    """A key of a Secret. Routers may read the whole Secret: name one without a private key."""


class EngineTlsSpec(ApiModel):
    """TLS towards the engines: operator and routers use https, and verify certificate and name."""

    secret_name: ObjectName | None = None
    """Secret of type kubernetes.io/tls with the engines' certificate. It is mounted; vLLM and SGLang are started with
    it, and read it again when it is renewed. Leave it out where something else in the pod serves TLS on the port."""
    ca_from: AuthoritySource
    """Authorities that must have signed the certificate. They may be replaced at any time."""
    server_name: Annotated[str, Field(pattern="^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$", max_length=253)] | None = None
    """Name that the certificate must have, such as engines.chat.svc. Without it the certificate must have the address
    of its pod."""


class Resources(ApiModel):
    """Resources of the engine container."""

    limits: dict[str, Quantity] | None = None
    """Most that the container may use, as in `nvidia.com/gpu: 1`."""
    requests: dict[str, Quantity] | None = None
    """Resources that the scheduler reserves. The limits, when absent."""


_RANK_FLAGS = ("--data-parallel-size", "--data_parallel_size", "-dp", "--dp-size", "--dp_size", "--dp")
"""Arguments of vLLM and SGLang that set the number of data-parallel ranks."""
MOST_NODES = 64
"""Most nodes of one replica."""


class EngineSpec(ApiModel):
    """The engine that serves the model, and its pods."""

    model_config = rules(
        rule(
            "!(has(self.dataParallelSize) && has(self.args) && self.args.exists(a, "
            + " || ".join(f"a == '{flag}' || a.startsWith('{flag}=')" for flag in _RANK_FLAGS)
            + "))",
            "engine.dataParallelSize and an argument in engine.args both set the data-parallel ranks: remove one",
            ".dataParallelSize",
            holds=lambda engine: (
                engine.data_parallel_size is None
                or not any(arg.partition("=")[0] in _RANK_FLAGS for arg in engine.args)
            ),
        ),
        rule(
            "!(self.type == 'TensorRTLLM' && has(self.dataParallelSize) && self.dataParallelSize > 1)",
            "engine.dataParallelSize is above 1, and TensorRT-LLM lets no router choose a rank: remove it, and have "
            "more replicas",
            ".dataParallelSize",
            holds=lambda engine: engine.type is not EngineType.TENSORRT_LLM or (engine.data_parallel_size or 1) == 1,
        ),
        rule(
            "!(self.type == 'TensorRTLLM' && has(self.adapters))",
            "engine.adapters is set, and adapters are loaded by engines of types vLLM and SGLang only: remove it",
            ".adapters",
            holds=lambda engine: engine.type is not EngineType.TENSORRT_LLM or engine.adapters is None,
        ),
        rule(
            "!(self.type == 'TensorRTLLM' && has(self.nodes) && self.nodes > 1)",
            "engine.nodes is above 1, and TensorRT-LLM starts its other nodes by MPI, which the operator does not set "
            "up: remove it, and have the replica on one node",
            ".nodes",
            holds=lambda engine: engine.type is not EngineType.TENSORRT_LLM or (engine.nodes or 1) == 1,
        ),
        rule(
            "!(has(self.nodes) && self.nodes > 1 && has(self.dataParallelSize) && self.dataParallelSize > 1)",
            "engine.nodes and engine.dataParallelSize are both above 1: ranks on several nodes are not served, so set "
            "one of them, and split the model over the nodes by tensor and pipeline parallelism",
            ".nodes",
            holds=lambda engine: (engine.nodes or 1) == 1 or (engine.data_parallel_size or 1) == 1,
        ),
        rule(
            "!(self.type == 'TensorRTLLM' && has(self.tls) && has(self.tls.secretName))",
            "engine.tls.secretName is set, and TensorRT-LLM serves no TLS by itself: remove it, and have something "
            "else in the pod serve TLS on engine.port",
            ".tls",
            holds=lambda engine: (
                not (
                    engine.type is EngineType.TENSORRT_LLM
                    and engine.tls is not None
                    and engine.tls.secret_name is not None
                )
            ),
        ),
    )

    type: EngineType = EngineType.VLLM
    """The engine: it decides on arguments, probes and metrics."""
    image: Annotated[str, Field(min_length=1, max_length=1024, pattern="^[!-~]+$")]
    """Image of the engine container."""
    args: Annotated[list[str], Field(max_length=256)] = []
    """Arguments added after those that the operator sets (model, port, reporting of cached tokens)."""
    data_parallel_size: Annotated[int, Field(ge=1, le=MOST_RANKS)] | None = None
    """Data-parallel ranks of the engine in one pod. Each has a KV cache of its own: it is warmed and proven by itself,
    and routers choose it for each request. Without this field the ranks are read from the engine's arguments."""
    nodes: Annotated[int, Field(ge=1, le=MOST_NODES)] | None = None
    """Nodes of one replica, for a model that needs the GPUs of several machines. Above 1, a replica is a group of pods
    of a LeaderWorkerSet, whose controller has to be installed: the leader serves, and a lost pod is a lost replica.
    Default: 1."""
    port: Annotated[int, Field(ge=1, le=65535)] = 8000
    """Port on which the engine serves its HTTP API."""
    credential_from: KeyRef | None = None
    """The key of a Secret with the API key that the engine asks for: vLLM and SGLang are started with it, and routers
    and the operator send it as a bearer token. To replace it, name another Secret: an engine reads it when it
    starts."""
    resources: Resources = Resources()
    """Resources of the engine container."""
    tls: EngineTlsSpec | None = None
    """TLS towards the engines. Without it they are reached by plain HTTP."""
    weights: WeightsSpec | None = None
    """Volume with the model's weights. Without it the engine downloads the model."""
    adapters: EngineAdaptersSpec | None = None
    """Room for LoRA adapters. Without it the engines load the group's own adapter at most, and none of guests."""
    template: FreeForm = {}
    """Pod template, merged over the operator's as `kubectl patch --type=strategic` would; the container is `engine`.

    To remove a map or an item of a list, write `$patch: delete` in it; to leave nothing of the operator's in a map,
    write `$patch: replace`. `null` removes a field too, but `kubectl apply` without `--server-side` does not send it.
    """


NO_ENGINE: Final = EngineSpec(image="none")
"""The engine of a spec that has none. A guest's is its host's, which the reader fills in."""
NO_PROMPT: Final = PromptSpec()
"""The prompt of a spec that has none: that of a host which keeps no prompt of its own warm."""
UNSET: Final[JsonDict] = {"default": None}
"""Schema of a field whose default is for Python alone: the API server leaves it out."""


class EngineSource(ApiModel):
    """The PromptGroup whose replicas serve a guest."""

    prompt_group: Annotated[ObjectName, Field(max_length=MAX_NAME)]
    """Name of a PromptGroup of the same namespace with an engine of its own: the host."""


class PlacementSpec(ApiModel):
    """The replicas of the host on which a guest's prompt is kept warm: all of them unless a number is given."""

    model_config = rules(
        rule(
            "!has(self.replicas) || !(has(self.minReplicas) || has(self.maxReplicas))",
            "placement has replicas and bounds: keep replicas for a fixed number, or minReplicas and maxReplicas",
            holds=lambda placement: placement.replicas is None or not placement.has_bounds,
        ),
        rule(
            "has(self.maxReplicas) || !has(self.minReplicas)",
            "placement.minReplicas is set without maxReplicas: set both",
            holds=lambda placement: placement.max_replicas is not None or placement.min_replicas is None,
        ),
        rule(
            "!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
            "placement.minReplicas is above placement.maxReplicas: lower the one or raise the other",
            holds=lambda placement: (placement.min_replicas or 1) <= (placement.max_replicas or 1000),
        ),
    )

    replicas: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Number of the host's replicas that keep the prompt warm and serve it."""
    min_replicas: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Fewest of them, where the number follows the prompt's share of the host's load. Default: 1."""
    max_replicas: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Most of them, where the number follows the load."""

    @property
    def has_bounds(self) -> bool:
        """True if the number follows the load."""
        return self.min_replicas is not None or self.max_replicas is not None


# --- PromptGroup: size -------------------------------------------------------------------------------------


class SizingTargets(ApiModel):
    """Targets that the number of replicas must keep."""

    model_config = rules(
        rule(
            "!has(self.ttft) || self.ttft.matches('[1-9]')",
            "sizing.targets.ttft is zero: give a time such as 300ms, or remove it to size by utilisation alone",
            ".ttft",
            holds=lambda targets: targets.ttft is None or durations.parse(targets.ttft) > timedelta(),
        )
    )

    ttft: Duration | None = None
    """Time to first token that 95 of 100 requests must not exceed, measured at the router. Without it the size follows
    utilisation and the working set alone."""


class PolicyType(enum.StrEnum):
    """Unit of a scaling policy."""

    PODS = "Pods"
    PERCENT = "Percent"


class ScalingPolicy(ApiModel):
    """Largest change of the number of replicas within a period."""

    type: PolicyType
    """Pods counts replicas, Percent the share of the replicas at the beginning of the period."""
    value: Annotated[int, Field(ge=1, le=10_000)]
    """Largest change, in replicas or percent."""
    period_seconds: Annotated[int, Field(ge=1, le=1800)]
    """Length of the period in seconds."""


class SelectPolicy(enum.StrEnum):
    """Choice among several policies."""

    MAX = "Max"
    MIN = "Min"
    DISABLED = "Disabled"


class ScaleUpRules(ApiModel):
    """Rules for adding replicas."""

    stabilization_window_seconds: Annotated[int, Field(ge=0, le=3600)] = 0
    """Seconds. The smallest number recommended within this time is used."""
    select_policy: SelectPolicy = SelectPolicy.MAX
    """Max takes the policy that allows most, Min the one that allows least, Disabled allows no change."""
    policies: Annotated[list[ScalingPolicy], Field(min_length=1, max_length=10)] = [
        ScalingPolicy(type=PolicyType.PERCENT, value=100, period_seconds=60),
        ScalingPolicy(type=PolicyType.PODS, value=4, period_seconds=60),
    ]
    """Default: the number doubles within a minute, or rises by 4. Engines take minutes to start, so the effect of an
    earlier step cannot be seen sooner."""


class ScaleDownRules(ApiModel):
    """Rules for removing replicas."""

    stabilization_window_seconds: Annotated[int, Field(ge=0, le=3600)] = 300
    """Seconds. The largest number recommended within this time is used."""
    select_policy: SelectPolicy = SelectPolicy.MAX
    """Max takes the policy that allows most, Min the one that allows least, Disabled allows no change."""
    policies: Annotated[list[ScalingPolicy], Field(min_length=1, max_length=10)] = [
        ScalingPolicy(type=PolicyType.PODS, value=1, period_seconds=60),
        ScalingPolicy(type=PolicyType.PERCENT, value=10, period_seconds=60),
    ]
    """Default: one replica leaves a minute, or a tenth of them. The other replicas compute its sessions again in their
    next turn."""


class Behavior(ApiModel):
    """Limits on how fast the number of replicas changes, as in `behavior` of HorizontalPodAutoscaler."""

    scale_up: ScaleUpRules = ScaleUpRules()
    """Rules for adding replicas."""
    scale_down: ScaleDownRules = ScaleDownRules()
    """Rules for removing replicas."""


class SizingSpec(ApiModel):
    """Sizing: the number of replicas follows the load, within bounds."""

    model_config = rules(
        rule(
            "self.minReplicas <= self.maxReplicas",
            "sizing.minReplicas is above sizing.maxReplicas: lower the one or raise the other",
            holds=lambda sizing: sizing.min_replicas <= sizing.max_replicas,
        ),
        rule(
            "duration(self.idleAfter) >= duration('1m')",
            "sizing.idleAfter must be 1m or more: an engine takes longer than that to start",
            ".idleAfter",
            holds=lambda sizing: durations.parse(sizing.idle_after) >= timedelta(minutes=1),
        ),
    )

    min_replicas: Annotated[int, Field(ge=0, le=1000)] = 1
    """Fewest replicas of the revision that serves. With 0 the group sleeps: its last replica leaves after `idleAfter`,
    and a request brings one back."""
    idle_after: Duration = "30m"
    """Time without any request after which the last replica leaves, where `minReplicas` is 0."""
    max_replicas: Annotated[int, Field(ge=1, le=1000)]
    """Most replicas of the revision that serves."""
    targets: SizingTargets = SizingTargets()
    """Targets that the number of replicas must keep."""
    behavior: Behavior = Behavior()
    """Limits on how fast the number of replicas changes."""


# --- PromptGroup: routing, rollout, warm-up ----------------------------------------------------------------


def _a_second_or_more(field: str, of: Callable[[Any], str | None]) -> JsonDict:
    """Return the rule of a time limit that routers look at once a second."""
    return rule(
        f"!has(self.{field}) || duration(self.{field}) >= duration('1s')",
        f"routing.{field} must be 1s or more: leave it out for no limit",
        f".{field}",
        holds=lambda routing: durations.parse(of(routing) or "1s") >= timedelta(seconds=1),
    )


HeaderName = Annotated[str, Field(pattern=HEADER_NAME, max_length=64)]
"""Name of a header field in lower case."""


class ResumeSpec(ApiModel):
    """Rules by which a streamed answer goes on on another replica when its own is lost, or must leave."""

    max: Annotated[int, Field(ge=0, le=3)] = 0
    """Most times that one answer goes on; with 0 none does. Only plain text of one choice goes on, from vLLM: no tools,
    formats, stop strings, penalties or seeds. Any other answer ends with an error."""


class RoutingSpec(ApiModel):
    """Rules by which routers place this group's requests."""

    model_config = rules(
        _a_second_or_more("firstTokenTimeout", lambda routing: routing.first_token_timeout),
        _a_second_or_more("idleTimeout", lambda routing: routing.idle_timeout),
        _a_second_or_more("keepAliveInterval", lambda routing: routing.keep_alive_interval),
        _a_second_or_more("wakeTimeout", lambda routing: routing.wake_timeout),
        rule(
            "!(self.isolation == 'Caller' && has(self.allowedEngineFields) && "
            "self.allowedEngineFields.exists(f, f == 'cache_salt' || f == 'extra_key'))",
            "routing.allowedEngineFields has cache_salt or extra_key, which routing.isolation: Caller sets by itself: "
            "remove one of the two",
            ".allowedEngineFields",
            holds=lambda routing: (
                routing.isolation is Isolation.GROUP or SALTS.isdisjoint(routing.allowed_engine_fields)
            ),
        ),
        rule(
            "!has(self.allowedEngineHeaders) || self.allowedEngineHeaders.all(h, "
            f"!(h in {list(UNNAMEABLE_HEADERS)}) && !h.matches('^({'|'.join(UNNAMEABLE_BEGINNINGS)})'))",
            "routing.allowedEngineHeaders has a field that is about a connection, a credential, the router or the "
            "gateway (as host, authorization, x-request-id and x-promptgroup are), which no group can let pass: remove "
            "it",
            ".allowedEngineHeaders",
            holds=lambda routing: all(map(is_nameable, routing.allowed_engine_headers)),
        ),
    )

    policy: Policy = Policy.EXPECTED_TTFT
    """Policy that chooses a request's replica. ExpectedTTFT moves a session from its home when another replica is
    expected to answer sooner, recomputation included; BoundedLoad when the home has more than its share of the load.
    LeastRequest, RoundRobin and PrefixHash exist for comparison."""
    sharing: Sharing = Sharing.POOL
    """With Pool, groups of this namespace with the same model, engine settings, access and rules for callers
    (isolation, reportCachedTokens, allowedEngineFields, allowedEngineHeaders) take each other's overflow. With
    Dedicated, this group's replicas serve it alone, and it uses no others."""
    load_factor_percent: Annotated[int, Field(ge=100, le=10_000)] = 125
    """Bound of BoundedLoad: a replica takes at most this percentage of the mean load, rounded up."""
    session_header: Annotated[str, Field(pattern="^[A-Za-z0-9-]{1,64}$")] = HEADER_SESSION
    """Request header that names the session. Without the header, fields of the body name it, or else the first user
    message."""
    own_instructions: OwnInstructions = OwnInstructions.REFUSE
    """Treatment of a request that names the group and brings instructions of its own: a system message, `system` or
    `instructions`. Refuse answers 400. Append puts them behind the declared system prompt, after an empty line."""
    allowed_engine_fields: Annotated[list[EngineField], Field(max_length=len(EngineField))] = []
    """Fields of engines' own that clients may set. The others are taken out of requests: they choose caches,
    replicas, weights or plugins."""
    allowed_engine_headers: Annotated[list[HeaderName], Field(max_length=MOST_HEADERS)] = []
    """Header fields, in lower case, that pass between clients and engines, both ways, beside those that pass in every
    group: `accept`, `content-type`, `user-agent`, `traceparent` and their like. Engines read others by which a request
    chooses where it runs or what is handed out. Fields of connections, credentials, the router and gateways cannot be
    named."""
    isolation: Isolation = Isolation.GROUP
    """The callers who share what engines have cached. With Group all callers of the group do. With Caller each has a
    cache of its own, of the declared prompt too: the router salts requests by the caller, whom the group's access must
    tell, and refuses APIs on which the engine takes no salt."""
    report_cached_tokens: CachedTokens = CachedTokens.EXACT
    """Precision in which answers tell how many tokens of a prompt were found in a cache. Exact is the engine's number,
    Rounded is rounded down to 1024 tokens, and Hidden leaves it out."""
    first_token_timeout: Duration | None = None
    """Longest time from sending a streamed request to a replica until its first visible token; then another replica
    gets the request. Set it above the prefill of your longest prompts. Without it the router's --request-timeout is the
    only limit."""
    idle_timeout: Duration | None = None
    """Longest pause within a streamed answer; then the router cuts it. Comments and pings of an engine do not end a
    pause. Without it the router's --request-timeout is the only limit."""
    wake_timeout: Duration | None = None
    """Longest time for which routers hold a request while the group has no replica, until one is warm. By default 5m
    where sizing.minReplicas is 0; in other groups requests are not held but refused. The client gets keep-alives of a
    streamed answer meanwhile."""
    keep_alive_interval: Duration | None = None
    """Silence of a streamed answer after which the router sends a keep-alive, and after each further such time: a
    comment, or a `ping` in Anthropic's API. It covers the wait for room and long prefills. The first keep-alive begins
    the answer with status 200, so that an error after it is told in an event. Without it none are sent."""
    resume: ResumeSpec = ResumeSpec()
    """Streamed answers of a replica that is lost, or must leave: whether they go on on another one."""


class StepSpec(ApiModel):
    """A step of a release."""

    weight: Annotated[int, Field(ge=1, le=99)]
    """Percentage of the new sessions that name the group which the new revision gets."""
    pause: Duration = "10m"
    """Shortest time that the step lasts. It also lasts until the analysis passes."""


class JudgeSpec(ApiModel):
    """Analysis of a release: a revision fails that is worse by more than a limit, and significantly so."""

    min_requests: Annotated[int, Field(ge=10, le=1_000_000)] = 50
    """Fewest comparable requests of each revision in a step. With fewer the step continues."""
    confidence_percent: Annotated[int, Field(ge=50, le=99)] = 95
    """Confidence with which a new revision is rolled back, over all comparisons of a step. With 95 an equal revision is
    rolled back in at most 5 of 100 steps."""
    max_error_rise_percent: Annotated[int, Field(ge=0, le=100)] = 1
    """Largest allowed rise of the share of failed requests (5xx, answers cut short), in percentage points."""
    max_ttft_rise_percent: Annotated[int, Field(ge=0, le=10_000)] = 25
    """Largest allowed rise of the median or the 95th percentile of the time to first token, in percent of the old
    revision's."""
    max_hit_rate_drop_percent: Annotated[int, Field(ge=0, le=100)] = 10
    """Largest allowed drop of the share of prompt tokens found in cache, in percentage points."""


class RolloutSpec(ApiModel):
    """Rules by which a new prompt replaces the old one."""

    model_config = rules(
        rule(
            "self.steps.map(s, s.weight).isSorted() && "
            "self.steps.all(s, self.steps.exists_one(t, t.weight == s.weight))",
            "rollout.steps must have increasing weights: each step needs a greater weight than the one before",
            ".steps",
            holds=lambda rollout: _increase([step.weight for step in rollout.steps]),
        ),
        rule(
            "type(self.maxSurge) == int ? self.maxSurge >= 0 : self.maxSurge.matches('^(0|[1-9][0-9]{0,2})%$')",
            "rollout.maxSurge must be a number from 0, or a percentage such as 25%",
            ".maxSurge",
            holds=lambda rollout: _is_surge(rollout.max_surge),
        ),
    )

    steps: Annotated[list[StepSpec], Field(max_length=20)] = []
    """Weights that the new revision goes through. It is compared with the old one at each of them. Without steps it
    takes over as fast as its replicas become warm, without analysis."""
    paused: bool = False
    """Set it to true to stop a release where it is. A revision that proves worse is still rolled back."""
    auto_promote: bool = True
    """With true the new revision takes over by itself after the last step. With false it waits until this is set to
    true."""
    max_surge: IntOrText = 1
    """Replicas that all revisions together may have above the wanted number: a number, or a percentage of it such as
    25%, rounded up. With 0, for clusters without a spare GPU, one replica drains and leaves before another comes."""
    retire_after: Duration = "30m"
    """Time for which a superseded revision stays routable after its last request."""
    retire_deadline: Duration | None = None
    """Longest time for which sessions that do not end keep the replicas of a superseded revision. Then they move to the
    revision that serves. By default four times retireAfter, and at least 5m."""
    drain_timeout: Duration = "5m"
    """Longest wait for the requests of a replica that leaves, in whichever way. Answers that take longer are cut. A
    change replaces no engine: pods that are evicted or deleted keep the time of their Deployment until its engine
    changes."""
    revision_history_limit: Annotated[int, Field(ge=0, le=100)] = 3
    """Number of retired revisions to keep, without replicas. Applying the prompt of one uses it again."""
    judge: JudgeSpec = JudgeSpec()
    """Analysis of a release: when a new revision counts as worse than the old one."""

    @property
    def surges(self) -> bool:
        """True if a replica may come before another one goes."""
        return self.max_surge not in (0, "0%")


class FailurePolicy(enum.StrEnum):
    """Treatment of a replica whose warmth cannot be proven."""

    BLOCK = "Block"
    PROCEED = "Proceed"


class WarmTier(enum.StrEnum):
    """Where a prefix must be found for its replica to be warm."""

    GPU = "GPU"
    ANY = "Any"


class WarmupSpec(ApiModel):
    """The proof of warmth that stands before Ready."""

    failure_policy: FailurePolicy = FailurePolicy.BLOCK
    """Block keeps a replica out of service until its warmth is proven. Proceed lets it serve cold, which the condition
    PrefixWarm reports."""
    tier: WarmTier = WarmTier.GPU
    """With GPU, the probe must find the prefix in the GPU's memory. With Any, a prefix that it copies from a KV tier
    counts, too: for engines whose GPU cannot keep it."""
    timeout: Duration = "5m"
    """Time that the proof may take before the failure policy applies. It applies at once where waiting cannot help."""


def _pool_needs(engine: str, cel: str, message: str, holds: Callable[[Any], bool]) -> JsonDict:
    """Return the rule of a pool for groups of one engine."""
    return rule(
        f"!(has(self.cache) && has(self.cache.pool) && has(self.engine) && self.engine.type == '{engine}') || ({cel})",
        message,
        ".cache.pool",
        holds=lambda spec: (
            spec.cache is None or spec.cache.pool is None or spec.engine.type.value != engine or holds(spec.cache)
        ),
    )


class PromptGroupSpec(ApiModel):
    """The desired state of a PromptGroup."""

    model_config = rules(
        rule(
            "!(has(self.replicas) && has(self.sizing))",
            "replicas (fixed, or set through the scale subresource) and sizing exclude each other: remove one",
            holds=lambda spec: spec.replicas is None or spec.sizing is None,
        ),
        rule(
            "!(has(self.routing) && self.routing.isolation == 'Caller' && has(self.access) && "
            "self.access.type == 'Anonymous')",
            "routing.isolation is Caller, and access.type Anonymous asks nobody who they are: choose another type",
            ".routing.isolation",
            holds=lambda spec: (
                spec.routing.isolation is Isolation.GROUP
                or spec.access is None
                or spec.access.type is not AccessType.ANONYMOUS
            ),
        ),
        rule(
            "!(has(self.routing) && self.routing.ownInstructions == 'Append' && has(self.prompt) && "
            "(has(self.prompt.messagesFrom) || (has(self.prompt.messages) && size(self.prompt.messages) > 0)))",
            "routing.ownInstructions is Append, and a client's instructions would stand before prompt.messages, whose "
            "cache no request would find: remove one of the two",
            ".routing.ownInstructions",
            holds=lambda spec: (
                spec.routing.own_instructions is OwnInstructions.REFUSE
                or not (spec.prompt.messages or spec.prompt.messages_from is not None)
            ),
        ),
        rule(
            "!(has(self.sizing) && has(self.cache) && self.cache.prefixCaching == 'Disabled')",
            "sizing goes by the counters of prefix caches, and cache.prefixCaching is Disabled: set replicas, or have "
            "an autoscaler set them",
            ".sizing",
            holds=lambda spec: spec.sizing is None or not spec.caches_nothing,
        ),
        _pool_needs(
            "vLLM",
            "!has(self.cache.offload)",
            "vLLM has one KV connector, and cache asks for two: remove offload (LMCache's server has its own memory) "
            "or pool",
            lambda cache: cache.offload is None,
        ),
        _pool_needs(
            "SGLang",
            "self.cache.pool.type == 'Mooncake' && has(self.cache.offload) && !has(self.cache.offload.claimName)",
            "SGLang reaches a pool of type Mooncake from its main memory and has one store behind that: give "
            "offload.memory without claimName, or remove pool",
            lambda cache: (
                cache.pool.type is PoolType.MOONCAKE and cache.offload is not None and cache.offload.claim_name is None
            ),
        ),
        _pool_needs("TensorRTLLM", "false", "TensorRT-LLM has no pool: use offload", lambda cache: False),
        rule(
            "!(has(self.cache) && has(self.cache.offload) && has(self.cache.offload.claimName) && "
            "has(self.engine) && self.engine.type == 'TensorRTLLM')",
            "TensorRT-LLM keeps KV in main memory, not on volumes: remove cache.offload.claimName",
            ".cache.offload.claimName",
            holds=lambda spec: (
                spec.engine.type is not EngineType.TENSORRT_LLM
                or spec.cache is None
                or spec.cache.offload is None
                or spec.cache.offload.claim_name is None
            ),
        ),
        rule(
            "!(has(self.routing) && has(self.routing.resume) && self.routing.resume.max > 0 && has(self.engine) && "
            "self.engine.type != 'vLLM')",
            "routing.resume needs the ids of an answer's tokens, which vLLM alone tells: remove it",
            ".routing.resume",
            holds=lambda spec: not spec.routing.resume.max or spec.engine.type is EngineType.VLLM,
        ),
        rule(
            "!(has(self.routing) && has(self.routing.resume) && self.routing.resume.max > 0 && has(self.responses) && "
            "has(self.responses.cache) && self.responses.cache != 'Off')",
            "routing.resume is set, and an answer that responses.cache keeps is one engine's: remove one of the two",
            ".routing.resume",
            holds=lambda spec: not spec.routing.resume.max or spec.responses.cache is ResponseCacheMode.OFF,
        ),
        rule(
            "!(has(self.gateway) && self.gateway.failureMode == 'FailOpen' && has(self.access) && "
            "self.access.type != 'Anonymous')",
            "gateway.failureMode is FailOpen, so that requests bypass access while no picker answers: remove one "
            "of the two",
            ".gateway.failureMode",
            holds=lambda spec: (
                spec.gateway is None
                or spec.gateway.failure_mode is FailureMode.FAIL_CLOSE
                or not asks_callers(spec.access)
            ),
        ),
        rule(
            "!has(self.modelAliases) || self.modelAliases.all(a, (!has(self.model) || a != self.model) && "
            "self.modelAliases.exists_one(b, b == a))",
            "modelAliases has spec.model, or one name twice: remove it",
            ".modelAliases",
            holds=lambda spec: len({spec.model, *spec.model_aliases}) == 1 + len(spec.model_aliases),
        ),
        rule(
            "!(has(self.adapter) && has(self.engine) && self.engine.type == 'TensorRTLLM')",
            "adapter is set, and adapters are served by engines of types vLLM and SGLang only: remove it",
            ".adapter",
            holds=lambda spec: spec.adapter is None or spec.is_guest or spec.engine.type is not EngineType.TENSORRT_LLM,
        ),
        rule(
            "!(has(self.adapter) && has(self.adapter.source.folder) && has(self.engine)) || "
            "(has(self.engine.adapters) && has(self.engine.adapters.claimName))",
            "adapter.source.folder is on a volume, and the engine has none: name its PersistentVolumeClaim in "
            "engine.adapters.claimName",
            ".adapter",
            holds=lambda spec: (
                spec.adapter is None
                or spec.adapter.source.folder is None
                or spec.is_guest
                or (spec.engine.adapters is not None and spec.engine.adapters.claim_name is not None)
            ),
        ),
        rule(
            "!has(self.adapter) || ((!has(self.model) || self.adapter.name != self.model) && "
            "(!has(self.modelAliases) || self.modelAliases.all(a, a != self.adapter.name)))",
            "adapter.name is also spec.model or one of modelAliases: a request that names it could not tell them apart",
            ".adapter.name",
            holds=lambda spec: spec.adapter is None or spec.adapter.name not in {spec.model, *spec.model_aliases},
        ),
        rule(
            "has(self.engine) != has(self.engineFrom)",
            "name exactly one of engine (replicas of the group's own) and engineFrom (another PromptGroup's replicas)",
            holds=lambda spec: ("engine" in spec.model_fields_set) != spec.is_guest,
        ),
        rule(
            "has(self.engineFrom) || has(self.model)",
            "model is missing: name the model that the engine serves",
            holds=lambda spec: spec.is_guest or spec.model != "",
        ),
        rule(
            "!has(self.engineFrom) || has(self.prompt)",
            "a group with engineFrom needs a prompt, which the replicas of the other PromptGroup keep warm",
            holds=lambda spec: not spec.is_guest or spec.has_prompt,
        ),
        rule(
            "!has(self.engineFrom) || "
            "!(has(self.replicas) || has(self.sizing) || has(self.cache) || has(self.gateway))",
            "replicas, sizing, cache and gateway belong to the PromptGroup that engineFrom names: set them there",
            ".engineFrom",
            holds=lambda spec: (
                not spec.is_guest
                or (spec.replicas is None and spec.sizing is None and spec.cache is None and spec.gateway is None)
            ),
        ),
        rule(
            "!has(self.placement) || has(self.engineFrom)",
            "placement says where the replicas of another PromptGroup keep the prompt warm, and engineFrom is not set: "
            "remove placement, or replace engine by engineFrom",
            ".placement",
            holds=lambda spec: spec.placement is None or spec.is_guest,
        ),
        rule_of_change(
            "has(self.model) == has(oldSelf.model) && (!has(self.model) || self.model == oldSelf.model)",
            "spec.model cannot be changed, clients name it: create a group of another name, or delete this one first",
            ".model",
            keeps=lambda spec, old: spec.model == old.model,
        ),
        rule_of_change(
            "has(self.adapter) == has(oldSelf.adapter) && "
            "(!has(self.adapter) || self.adapter.name == oldSelf.adapter.name)",
            "spec.adapter can be neither added nor removed, and its name cannot be changed, clients name it: create a "
            "group of another name, or delete this one first",
            ".adapter",
            keeps=lambda spec, old: (spec.adapter and spec.adapter.name) == (old.adapter and old.adapter.name),
        ),
        rule_of_change(
            "(has(self.engine) && has(self.engine.nodes) && self.engine.nodes > 1) == "
            "(has(oldSelf.engine) && has(oldSelf.engine.nodes) && oldSelf.engine.nodes > 1)",
            "engine.nodes cannot change from one node to several or back, since a Deployment and a LeaderWorkerSet do "
            "not replace each other: create a group of another name with the annotation promptgroup.dev/replaces, and "
            "delete this one when that is Ready",
            ".engine.nodes",
            keeps=lambda spec, old: ((spec.engine.nodes or 1) > 1) == ((old.engine.nodes or 1) > 1),
        ),
        rule_of_change(
            "has(self.engineFrom) == has(oldSelf.engineFrom) && "
            "(!has(self.engineFrom) || self.engineFrom.promptGroup == oldSelf.engineFrom.promptGroup)",
            "engine and engineFrom cannot be exchanged, and engineFrom cannot name another group: create a group of "
            "another name with the annotation promptgroup.dev/replaces, and delete this one when that is Ready",
            ".engineFrom",
            keeps=lambda spec, old: spec.engine_from == old.engine_from,
        ),
    )

    model: Annotated[Printed, Field(json_schema_extra=UNSET)] = ""
    """Name of the model, as clients send it in `model` and as the engine serves it. It cannot be changed. With
    engineFrom it may be left out: it is that of the other PromptGroup."""
    model_aliases: Annotated[list[Printed], Field(max_length=MAX_ALIASES)] = []
    """Other names by which clients may ask for the model, such as one that a program has built in. They hold for the
    model in this namespace, whichever of its groups a request belongs to. Routers ask engines for `model` all the
    same."""
    prompt: Annotated[PromptSpec, Field(json_schema_extra=UNSET)] = NO_PROMPT
    """The Tier-1 prefix. A group without one keeps nothing warm: it serves requests that no group declares, and
    PromptGroups whose engineFrom names it."""
    adapter: AdapterSpec | None = None
    """A LoRA adapter of the model, which the group serves in the place of the model itself. It is part of the prefix: a
    new one is released as a new prompt is."""
    engine: Annotated[EngineSpec, Field(json_schema_extra=UNSET)] = NO_ENGINE
    """The engine and its pods."""
    engine_from: EngineSource | None = None
    """Replicas of another PromptGroup, instead of engine: this group is a guest there. Its prompt is kept warm beside
    others', and released without a pod of its own."""
    placement: PlacementSpec | None = None
    """The replicas of the other PromptGroup that keep the prompt of a guest warm."""
    replicas: Annotated[int, Field(ge=0, le=1000)] | None = None
    """Number of replicas of the revision that serves. Default: 1, when sizing is absent too."""
    sizing: SizingSpec | None = None
    """Bounds and targets of a number of replicas that follows the load, instead of a fixed one."""
    routing: RoutingSpec = RoutingSpec()
    """Rules by which routers place this group's requests."""
    limits: LimitsSpec | None = None
    """Limits on what callers may use, and their shares when replicas are full."""
    access: AccessSpec | None = None
    """Rule by which routers tell who may use the group. Without it the routers' --access-file says it, and without that
    everybody may who reaches a router."""
    rollout: RolloutSpec = RolloutSpec()
    """Rules by which a new prompt replaces the old one."""
    warmup: WarmupSpec = WarmupSpec()
    """The proof of warmth that stands before Ready."""
    cache: CacheSpec | None = None
    """KV tiers behind the engines' GPU memory: main memory, volumes, pools; or engines that cache no prefix."""
    responses: ResponsesSpec = ResponsesSpec()
    """The response cache: a request that was answered before gets the same answer, without an engine."""
    gateway: GatewaySpec | None = None
    """The InferencePool by which gateways reach the group, beside its routers. Without it the operator makes none."""

    @property
    def is_guest(self) -> bool:
        """True if replicas of another group serve this one."""
        return self.engine_from is not None

    @property
    def has_prompt(self) -> bool:
        """True if the group declares a prompt."""
        return "prompt" in self.model_fields_set

    @property
    def caches_nothing(self) -> bool:
        """True if the group asks for engines without prefix caching."""
        return self.cache is not None and self.cache.prefix_caching is PrefixCaching.DISABLED


# --- PromptGroup: status -----------------------------------------------------------------------------------


class StatusCondition(ApiModel):
    """A condition as `metav1.Condition` defines it."""

    type: Annotated[str, Field(max_length=316)]
    """Name of the condition; docs/reference/conditions.md lists all."""
    status: Literal["True", "False", "Unknown"]
    """True if it holds, False if it does not, Unknown while nobody can tell."""
    reason: Annotated[str, Field(max_length=1024)]
    """One word for the cause, which programs can compare."""
    message: Annotated[str, Field(max_length=32768)] = ""
    """A sentence for people: the cause with its figures, and the way out."""
    last_transition_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    """Time at which the status last changed, RFC 3339 in UTC."""
    observed_generation: int | None = None
    """Generation of the spec that the condition speaks of."""


class RevisionStatus(ApiModel):
    """A revision that exists."""

    fingerprint: Fingerprint
    """Hash of its prompt."""
    deployment: str | None = None
    """Name of its Deployment; absent for a guest, which has none."""
    replicas: int
    """Replicas that its Deployment asks for; of a guest those of the host that shall keep its prompt warm."""
    warm: int
    """Replicas whose warmth is proven."""
    ready: int
    """Replicas that take requests."""
    weight: int
    """Percentage of the new sessions that name the group which it gets."""
    phase: str = ""
    """Coming, Canary, Serving, Superseded, RolledBack, Retiring or Retired."""


class PromptGroupStatus(ApiModel):
    """State of the group at the operator's latest pass."""

    observed_generation: int | None = None
    """Generation of the spec that this status describes."""
    fingerprint: Fingerprint | None = None
    """Fingerprint of the prompt that the group serves. While a new one takes over, of the new one."""
    revision: str | None = None
    """First 8 digits of the fingerprint, which are part of the Deployment's name."""
    replicas: int | None = None
    """Replicas of all revisions, with the surge of a release."""
    scale_replicas: int | None = None
    """The same without more than are wanted, as the scale subresource reports them: autoscalers multiply it."""
    ready_replicas: int | None = None
    """Replicas of all revisions that take requests."""
    warm_replicas: int | None = None
    """Warm replicas of the fingerprint."""
    warm: str | None = None
    """Warm replicas of the fingerprint, and the wanted number, as in 3/4."""
    hit_rate: str | None = None
    """Share of clients' prompt tokens found in cache over the last 5 minutes, by the engines' counters. A change of
    less than 5 percentage points is written with the next other change."""
    cache: CacheStatus | None = None
    """The KV tiers of a group that has more than the GPU's memory."""
    starting: str | None = None
    """Replicas that start, by phase, as in `1 Pulling, 2 Loading`; absent while none does."""
    starting_replicas: Annotated[list[StartingReplica], Field(max_length=SHOWN)] | None = None
    """Replicas that start, the least advanced first: at most 8 of them."""
    start: StartStatus | None = None
    """Durations of the latest starts; absent before the first, and for a guest."""
    prefetch: PrefetchStatus | None = None
    """Nodes that pull the weights before a replica starts there; of a group with engine.weights.prefetch."""
    selector: str | None = None
    """Label selector of the pods, for the scale subresource."""
    revisions: list[RevisionStatus] | None = None
    """Every revision that exists, the newest first."""
    conditions: Annotated[
        list[StatusCondition],
        Field(json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
    ] = []
    """Ready, Progressing, Degraded, Accepted, ResolvedRefs, PrefixWarm, RouterProgrammed, ScalingActive;
    of a group whose load is observed CacheEffective and CacheTierUseful, of one with sizing AbleToScale and
    ScalingLimited as well, of one with a gateway GatewayProgrammed and GatewayLimits, of one with a KV pool
    CachePoolReady, of one with aliases of its model AliasesServed, of a host with guests and of them PromptsFit."""


class PromptGroup(ApiModel):
    """A model and a system prompt, served by replicas that hold the prompt's KV cache."""

    model_config = rules(
        rule(
            f"size(self.metadata.name) <= {MAX_NAME}",
            f"metadata.name is longer than {MAX_NAME} characters: the names of its Deployments would not fit a label",
            holds=lambda root: len(root.name) <= MAX_NAME,
        ),
        rule(
            "!has(self.spec.engineFrom) || self.spec.engineFrom.promptGroup != self.metadata.name",
            "spec.engineFrom names the group itself: name a PromptGroup that has an engine",
            ".spec.engineFrom",
            holds=lambda root: not root.spec.is_guest or root.spec.engine_from.prompt_group != root.name,
        ),
        rule(
            "!has(self.spec.model) || self.spec.model != self.metadata.name",
            "spec.model equals metadata.name: a request that names it could not tell the model from the group",
            ".spec.model",
            holds=lambda root: root.spec.model != root.name,
        ),
        rule(
            "!has(self.spec.modelAliases) || self.spec.modelAliases.all(a, a != self.metadata.name)",
            "spec.modelAliases has metadata.name: a request that names it could not tell the model from the group",
            ".spec.modelAliases",
            holds=lambda root: root.name not in root.spec.model_aliases,
        ),
        rule(
            "!has(self.spec.adapter) || self.spec.adapter.name != self.metadata.name",
            "spec.adapter.name equals metadata.name: a request that names it could not tell the adapter from the group",
            ".spec.adapter.name",
            holds=lambda root: root.spec.adapter is None or root.spec.adapter.name != root.name,
        ),
    )

    spec: PromptGroupSpec
    status: PromptGroupStatus = PromptGroupStatus()


def parse_spec(raw: Any) -> PromptGroupSpec:
    """Parse the spec of a PromptGroup.

    Raises:
        pydantic.ValidationError: the object was stored under an older schema and misses what this one asks for.
    """
    return PromptGroupSpec.model_validate(raw)
