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
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict

from promptgroup_operator.base import durations
from promptgroup_router.contract.fingerprint import Fingerprint
from promptgroup_router.contract.names import HEADER_SESSION
from promptgroup_router.contract.table import OwnInstructions, Policy, Sharing, SlotState

MAX_NAME = 50
"""Longest name of a group: `<group>-<8 hex digits>` must fit a label value (63), as Deployments' names do."""

MAX_PROMPT = 900_000
"""Most bytes of system text and tools together: an object must fit etcd's 1.5 MiB. The schema, which counts characters,
refuses longer texts at once; the operator counts bytes."""


MAX_MESSAGES = 32
"""Most messages of a prompt."""

HOLDS: dict[str, Callable[[Any], bool]] = {}
"""CEL rule → its twin: True if a model keeps it. A rule of the whole object gets a value with `name` and `spec`."""
KEEPS: dict[str, Callable[[Any, Any], bool]] = {}
"""CEL rule about a change → its twin: True if the change, given as (new, old), keeps it."""


def _rule(cel: str, message: str, field: str = "", *, holds: Callable[[Any], bool]) -> JsonDict:
    """Return a validation rule. `holds` says the same of a model with defaults: `has(self.x)` is `x is not None`."""
    HOLDS[cel] = holds
    rule: JsonDict = {"rule": cel, "message": message}
    return rule | ({"fieldPath": field} if field else {})


def _rule_of_change(cel: str, message: str, field: str, *, keeps: Callable[[Any, Any], bool]) -> JsonDict:
    """Return a transition rule, which uses `oldSelf`."""
    KEEPS[cel] = keeps
    return {"rule": cel, "message": message, "fieldPath": field}


_SURGE = re.compile(r"[1-9][0-9]{0,2}%", re.ASCII)


def _is_surge(value: int | str) -> bool:
    return value >= 1 if isinstance(value, int) else _SURGE.fullmatch(value) is not None


def take_turns(roles: list[str]) -> bool:
    """Return True if the roles are pairs of user and assistant, as every chat template renders them."""
    return roles == ["user", "assistant"] * (len(roles) // 2)


def _increase(weights: list[int]) -> bool:
    return weights == sorted(set(weights))


class _Model(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        extra="ignore",
        use_attribute_docstrings=True,
    )


def _rules(*rules: JsonDict) -> ConfigDict:
    return ConfigDict(json_schema_extra={"x-kubernetes-validations": [*rules]})


Duration = Annotated[str, Field(pattern=durations.PATTERN, max_length=32)]
"""A span of time; its description in the CRD says how one is written."""
FreeForm = Annotated[
    dict[str, JsonValue],
    Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True, "additionalProperties": None}),
]
Quantity = Annotated[int | str, Field(json_schema_extra={"x-kubernetes-int-or-string": True, "anyOf": None})]


# --- PromptGroup: prompt -----------------------------------------------------------------------------------


class KeyRef(_Model):
    """A key of a ConfigMap or Secret in the group's namespace."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    """Name of the object."""
    key: Annotated[str, Field(min_length=1, max_length=253)]
    """Key whose value is the text."""


class TextSource(_Model):
    """Source of a text that is not inline."""

    model_config = _rules(
        _rule(
            "has(self.configMapKeyRef) != has(self.secretKeyRef)",
            "name exactly one source: configMapKeyRef or secretKeyRef",
            holds=lambda source: (source.config_map_key_ref is None) != (source.secret_key_ref is None),
        )
    )

    config_map_key_ref: KeyRef | None = None
    """A key of a ConfigMap. Editing its value starts a new revision."""
    secret_key_ref: KeyRef | None = None
    """A key of a Secret. Its text stays in Secrets: it never appears in routes, status, events or logs."""


class DeclaredMessage(_Model):
    """A message that every conversation of the group begins with, such as one half of an example."""

    role: Annotated[Literal["user", "assistant"], Field(json_schema_extra={"maxLength": len("assistant")})]
    """Who says it."""
    content: Annotated[str, Field(min_length=1, max_length=MAX_PROMPT)]
    """The text."""


class PromptSpec(_Model):
    """The Tier-1 prefix that every request of the group begins with: tools, system prompt, and messages."""

    model_config = _rules(
        _rule(
            "has(self.system) != has(self.systemFrom)",
            "prompt needs exactly one of system (inline) and systemFrom (a ConfigMap or Secret key)",
            holds=lambda prompt: (prompt.system is None) != (prompt.system_from is None),
        ),
        _rule(
            "!(has(self.tools) && size(self.tools) > 0 && has(self.toolsFrom))",
            "prompt takes tools or toolsFrom, not both: remove one",
            holds=lambda prompt: not (prompt.tools and prompt.tools_from is not None),
        ),
        _rule(
            "!(has(self.messages) && size(self.messages) > 0 && has(self.messagesFrom))",
            "prompt takes messages or messagesFrom, not both: remove one",
            holds=lambda prompt: not (prompt.messages and prompt.messages_from is not None),
        ),
        _rule(
            f"!has(self.messages) || (size(self.messages) % 2 == 0 && {[*range(0, MAX_MESSAGES, 2)]}.all(i, "
            "i >= size(self.messages) || "
            "(self.messages[i].role == 'user' && self.messages[i + 1].role == 'assistant')))",
            "prompt.messages must be pairs of a user's and an assistant's message, in this order",
            ".messages",
            holds=lambda prompt: take_turns([message.role for message in prompt.messages or []]),
        ),
        _rule(
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


class Resources(_Model):
    """Resources of the engine container."""

    limits: dict[str, Quantity] | None = None
    """Most that the container may use, as in `nvidia.com/gpu: 1`."""
    requests: dict[str, Quantity] | None = None
    """Resources that the scheduler reserves. The limits, when absent."""


class EngineSpec(_Model):
    """The engine that serves the model, and its pods."""

    type: EngineType = EngineType.VLLM
    """The engine: it decides on arguments, probes and metrics."""
    image: Annotated[str, Field(min_length=1, max_length=1024)]
    """Image of the engine container."""
    args: Annotated[list[str], Field(max_length=256)] = []
    """Arguments added after those that the operator sets (model, port, reporting of cached tokens)."""
    port: Annotated[int, Field(ge=1, le=65535)] = 8000
    """Port on which the engine serves its HTTP API."""
    resources: Resources = Resources()
    """Resources of the engine container."""
    template: FreeForm = {}
    """Pod template, merged over the operator's as `kubectl patch --type=strategic` would; the container is `engine`."""


# --- PromptGroup: size -------------------------------------------------------------------------------------


class SizingTargets(_Model):
    """Targets that the number of replicas must keep."""

    model_config = _rules(
        _rule(
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


class ScalingPolicy(_Model):
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


class ScaleUpRules(_Model):
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


class ScaleDownRules(_Model):
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


class Behavior(_Model):
    """Limits on how fast the number of replicas changes, as in `behavior` of HorizontalPodAutoscaler."""

    scale_up: ScaleUpRules = ScaleUpRules()
    """Rules for adding replicas."""
    scale_down: ScaleDownRules = ScaleDownRules()
    """Rules for removing replicas."""


class SizingSpec(_Model):
    """Sizing: the number of replicas follows the load, within bounds."""

    model_config = _rules(
        _rule(
            "self.minReplicas <= self.maxReplicas",
            "sizing.minReplicas is above sizing.maxReplicas: lower the one or raise the other",
            holds=lambda sizing: sizing.min_replicas <= sizing.max_replicas,
        )
    )

    min_replicas: Annotated[int, Field(ge=1, le=1000)] = 1
    """Fewest replicas of the revision that serves."""
    max_replicas: Annotated[int, Field(ge=1, le=1000)]
    """Most replicas of the revision that serves."""
    targets: SizingTargets = SizingTargets()
    """Targets that the number of replicas must keep."""
    behavior: Behavior = Behavior()
    """Limits on how fast the number of replicas changes."""


# --- PromptGroup: routing, rollout, warm-up ----------------------------------------------------------------


def _a_second_or_more(field: str, of: Callable[[Any], str | None]) -> JsonDict:
    """Return the rule of a time limit that routers look at once a second."""
    return _rule(
        f"!has(self.{field}) || duration(self.{field}) >= duration('1s')",
        f"routing.{field} must be 1s or more: leave it out for no limit",
        f".{field}",
        holds=lambda routing: durations.parse(of(routing) or "1s") >= timedelta(seconds=1),
    )


class RoutingSpec(_Model):
    """Rules by which routers place this group's requests."""

    model_config = _rules(
        _a_second_or_more("firstTokenTimeout", lambda routing: routing.first_token_timeout),
        _a_second_or_more("idleTimeout", lambda routing: routing.idle_timeout),
    )

    policy: Policy = Policy.EXPECTED_TTFT
    """Policy that chooses a request's replica. ExpectedTTFT moves a session from its home when another replica is
    expected to answer sooner, recomputation included; BoundedLoad when the home has more than its share of the load.
    LeastRequest, RoundRobin and PrefixHash exist for comparison."""
    sharing: Sharing = Sharing.POOL
    """With Pool, groups of this namespace with the same model and engine settings take each other's overflow. With
    Dedicated, this group's replicas serve it alone, and it uses no others."""
    load_factor_percent: Annotated[int, Field(ge=100, le=10_000)] = 125
    """Bound of BoundedLoad: a replica takes at most this percentage of the mean load, rounded up."""
    session_header: Annotated[str, Field(pattern="^[A-Za-z0-9-]{1,64}$")] = HEADER_SESSION
    """Request header that names the session. Without the header, fields of the body name it, or else the first user
    message."""
    own_instructions: OwnInstructions = OwnInstructions.REFUSE
    """Treatment of a request that names the group and brings instructions of its own: a system message, `system` or
    `instructions`. Refuse answers 400. Append puts them behind the declared system prompt, after an empty line."""
    first_token_timeout: Duration | None = None
    """Longest time from sending a streamed request to a replica until its first visible token; then another replica
    gets the request. Set it above the prefill of your longest prompts. Without it the router's --request-timeout is the
    only limit."""
    idle_timeout: Duration | None = None
    """Longest pause within a streamed answer; then the router cuts it. Without it the router's --request-timeout is the
    only limit."""


class StepSpec(_Model):
    """A step of a release."""

    weight: Annotated[int, Field(ge=1, le=99)]
    """Percentage of the new sessions that name the group which the new revision gets."""
    pause: Duration = "10m"
    """Shortest time that the step lasts. It also lasts until the analysis passes."""


class JudgeSpec(_Model):
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


class RolloutSpec(_Model):
    """Rules by which a new prompt replaces the old one."""

    model_config = _rules(
        _rule(
            "self.steps.map(s, s.weight).isSorted() && "
            "self.steps.all(s, self.steps.exists_one(t, t.weight == s.weight))",
            "rollout.steps must have increasing weights: each step needs a greater weight than the one before",
            ".steps",
            holds=lambda rollout: _increase([step.weight for step in rollout.steps]),
        ),
        _rule(
            "type(self.maxSurge) == int ? self.maxSurge >= 1 : self.maxSurge.matches('^[1-9][0-9]{0,2}%$')",
            "rollout.maxSurge must be a number from 1, or a percentage from 1% such as 25%",
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
    max_surge: Quantity = 1
    """Replicas that all revisions together may have above the wanted number: a number, or a percentage of it such as
    25%, rounded up."""
    retire_after: Duration = "30m"
    """Time for which a superseded revision stays routable after its last request."""
    drain_timeout: Duration = "5m"
    """Longest wait for the requests of a replica that leaves. Answers that take longer are cut."""
    revision_history_limit: Annotated[int, Field(ge=0, le=100)] = 3
    """Number of retired revisions to keep, without replicas. Applying the prompt of one uses it again."""
    judge: JudgeSpec = JudgeSpec()
    """Analysis of a release: when a new revision counts as worse than the old one."""


class FailurePolicy(enum.StrEnum):
    """Treatment of a replica whose warmth cannot be proven."""

    BLOCK = "Block"
    PROCEED = "Proceed"


class WarmupSpec(_Model):
    """The proof of warmth that stands before Ready."""

    failure_policy: FailurePolicy = FailurePolicy.BLOCK
    """Block keeps a replica out of service until its warmth is proven. Proceed lets it serve cold, which the condition
    PrefixWarm reports."""
    timeout: Duration = "5m"
    """Time that the proof may take before the failure policy applies. It applies at once where waiting cannot help."""


class PromptGroupSpec(_Model):
    """The desired state of a PromptGroup."""

    model_config = _rules(
        _rule(
            "!(has(self.replicas) && has(self.sizing))",
            "replicas (fixed, or set through the scale subresource) and sizing exclude each other: remove one",
            holds=lambda spec: spec.replicas is None or spec.sizing is None,
        ),
        _rule(
            "!(has(self.routing) && self.routing.ownInstructions == 'Append' && (has(self.prompt.messagesFrom) || "
            "(has(self.prompt.messages) && size(self.prompt.messages) > 0)))",
            "routing.ownInstructions is Append, and a client's instructions would stand before prompt.messages, whose "
            "cache no request would find: remove one of the two",
            ".routing.ownInstructions",
            holds=lambda spec: (
                spec.routing.own_instructions is OwnInstructions.REFUSE
                or not (spec.prompt.messages or spec.prompt.messages_from is not None)
            ),
        ),
        _rule_of_change(
            "self.model == oldSelf.model",
            "spec.model cannot be changed, clients name it: create a group of another name, or delete this one first",
            ".model",
            keeps=lambda spec, old: spec.model == old.model,
        ),
    )

    model: Annotated[str, Field(min_length=1, max_length=253)]
    """Name of the model, as clients send it in `model` and as the engine serves it. It cannot be changed."""
    prompt: PromptSpec
    """The Tier-1 prefix."""
    engine: EngineSpec
    """The engine and its pods."""
    replicas: Annotated[int, Field(ge=0, le=1000)] | None = None
    """Number of replicas of the revision that serves. Default: 1, when sizing is absent too."""
    sizing: SizingSpec | None = None
    """Bounds and targets of a number of replicas that follows the load, instead of a fixed one."""
    routing: RoutingSpec = RoutingSpec()
    """Rules by which routers place this group's requests."""
    rollout: RolloutSpec = RolloutSpec()
    """Rules by which a new prompt replaces the old one."""
    warmup: WarmupSpec = WarmupSpec()
    """The proof of warmth that stands before Ready."""


# --- PromptGroup: status -----------------------------------------------------------------------------------


class StatusCondition(_Model):
    """A condition as `metav1.Condition` defines it."""

    type: Annotated[str, Field(max_length=316)]
    status: Literal["True", "False", "Unknown"]
    reason: Annotated[str, Field(max_length=1024)]
    message: Annotated[str, Field(max_length=32768)] = ""
    last_transition_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    observed_generation: int | None = None


class RevisionStatus(_Model):
    """A revision that exists."""

    fingerprint: Fingerprint
    """Hash of its prompt."""
    deployment: str
    """Name of its Deployment."""
    replicas: int
    """Replicas that its Deployment asks for."""
    warm: int
    """Replicas whose warmth is proven."""
    ready: int
    """Replicas that take requests."""
    weight: int
    """Percentage of the new sessions that name the group which it gets."""
    phase: str = ""
    """Coming, Canary, Serving, Superseded, RolledBack, Retiring or Retired."""


class PromptGroupStatus(_Model):
    """State of the group at the operator's latest pass."""

    observed_generation: int | None = None
    """Generation of the spec that this status describes."""
    fingerprint: Fingerprint | None = None
    """Fingerprint of the prompt that the group serves. While a new one takes over, of the new one."""
    revision: str | None = None
    """First 8 digits of the fingerprint, which are part of the Deployment's name."""
    replicas: int | None = None
    """Replicas of all revisions, as the scale subresource reports them."""
    warm: str | None = None
    """Warm replicas of the fingerprint, and the wanted number, as in 3/4."""
    hit_rate: str | None = None
    """Share of prompt tokens found in cache over the last minutes, by the engines' counters."""
    selector: str | None = None
    """Label selector of the pods, for the scale subresource."""
    revisions: list[RevisionStatus] | None = None
    """Every revision that exists, the newest first."""
    conditions: Annotated[
        list[StatusCondition],
        Field(json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
    ] = []
    """Ready, Progressing, Degraded, Accepted, ResolvedRefs, PrefixWarm, RouterProgrammed, ScalingActive;
    of a group with sizing AbleToScale, ScalingLimited and CacheEffective as well."""


class PromptGroup(_Model):
    """A model and a system prompt, served by replicas that hold the prompt's KV cache."""

    model_config = _rules(
        _rule(
            f"size(self.metadata.name) <= {MAX_NAME}",
            f"metadata.name is longer than {MAX_NAME} characters: the names of its Deployments would not fit a label",
            holds=lambda root: len(root.name) <= MAX_NAME,
        ),
        _rule(
            "self.spec.model != self.metadata.name",
            "spec.model equals metadata.name: a request that names it could not tell the model from the group",
            ".spec.model",
            holds=lambda root: root.spec.model != root.name,
        ),
    )

    spec: PromptGroupSpec
    status: PromptGroupStatus = PromptGroupStatus()


# --- PromptRoute -------------------------------------------------------------------------------------------


class RouteSlot(_Model):
    """A place on a revision's ring and the pod that holds it."""

    slot: Annotated[int, Field(ge=0)]
    state: SlotState
    address: str | None = None
    """host:port of the engine."""
    pod: str | None = None
    incarnation: str | None = None
    """Changes when another engine process stands behind the slot."""


class RoutePromptRef(_Model):
    """The immutable object that holds a revision's text."""

    kind: Literal["ConfigMap", "Secret"]
    name: str


class RouteEngine(_Model):
    """Facts about the engines of a revision. A fact that is unknown is absent."""

    settings: str | None = None
    """Digest of the engine settings. Revisions with the same digest may lend each other replicas."""
    kv_tokens: Annotated[int, Field(ge=0)] | None = None
    """Tokens of KV cache that one replica has."""
    prefill_tokens_per_second: Annotated[int, Field(ge=0)] | None = None
    """Prompt tokens that one replica computes in a second, as measured cold; a lower bound."""
    step_tokens: Annotated[int, Field(ge=0)] | None = None
    """Largest number of tokens that one step of the engine computes."""


class RouteRevision(_Model):
    """One fingerprint of the group and the replicas that are warm for it."""

    fingerprint: Annotated[Fingerprint, Field(pattern="^[0-9a-f]{32}$")]
    system_bytes: Annotated[int, Field(ge=0)]
    """Length of the system text in UTF-8."""
    tools: bool = False
    """True if the prefix has tools."""
    messages: Annotated[int, Field(ge=0, le=MAX_MESSAGES)] | None = None
    """Number of messages of the prefix, behind the system text."""
    weight: Annotated[int, Field(ge=0, le=100)]
    """Percentage of the new sessions that name the group which it gets."""
    tokens: Annotated[int, Field(ge=0)] | None = None
    """Length of the prefix in tokens, as an engine counted it."""
    engine: RouteEngine | None = None
    lends: bool | None = None
    """False where its replicas take no requests of other revisions: only those of the revision that serves do."""
    prompt_from: RoutePromptRef | None = None
    slots: list[RouteSlot] = []


class PromptRouteSpec(_Model):
    """A PromptGroup as routers see it; written by the operator."""

    format: Literal[1]
    """Version of the encoding, see contract/encoding.py."""
    model: str
    created: str
    """Creation time of the group. Of two groups that claim one prefix the older keeps it."""
    policy: Policy
    sharing: Sharing = Sharing.POOL
    load_factor_percent: int
    session_header: str
    own_instructions: OwnInstructions | None = None
    """Treatment of instructions that a request by name brings; they are refused when this is absent."""
    first_token_seconds: Annotated[int, Field(ge=1)] | None = None
    """Seconds from sending a streamed request to its first visible token, then another replica gets it; absent for no
    limit."""
    idle_seconds: Annotated[int, Field(ge=1)] | None = None
    """Longest pause within a streamed answer in seconds, then it is cut; absent for no limit."""
    revisions: list[RouteRevision]


class PromptRoute(_Model):
    """The object by which the operator programs routers: revisions, weights and slots."""

    spec: PromptRouteSpec


def parse_spec(raw: Any) -> PromptGroupSpec:
    """Parse the spec of a PromptGroup. An object that the API server accepted always parses.

    Raises:
        pydantic.ValidationError: the object was stored under an older schema and misses what this one asks for.
    """
    return PromptGroupSpec.model_validate(raw)
