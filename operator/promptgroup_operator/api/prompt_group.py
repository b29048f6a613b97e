"""What users write and read: PromptGroup and PromptRoute as pydantic models.

The CRDs under crds/ are generated from these models (`promptgroup-operator crd`); docstrings become the fields'
descriptions in `kubectl explain`. Rules that need more than one field are CEL (KEP-2876), so that the API server
refuses a bad object before anything is created from it.
"""

import enum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict

from promptgroup_operator.base import durations
from promptgroup_router.contract.names import HEADER_SESSION
from promptgroup_router.contract.table import Policy, Sharing, SlotState

MAX_NAME = 50
"""Longest name of a group: `<group>-<8 hex digits>` must fit a label value (63), as Deployments' names do."""

MAX_PROMPT = 900_000
"""Longest system text in characters: an object must fit etcd's 1.5 MiB, and the text is stored twice at most."""


def _rule(rule: str, message: str, field: str = "") -> JsonDict:
    rule_and_message: JsonDict = {"rule": rule, "message": message}
    return rule_and_message | ({"fieldPath": field} if field else {})


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
    """Where a text stands, when not inline."""

    model_config = _rules(
        _rule(
            "has(self.configMapKeyRef) != has(self.secretKeyRef)",
            "name exactly one source: configMapKeyRef or secretKeyRef",
        )
    )

    config_map_key_ref: KeyRef | None = None
    """A key of a ConfigMap. An edit of it is a new revision."""
    secret_key_ref: KeyRef | None = None
    """A key of a Secret. Its text stays in Secrets: routes, status, events and logs never carry it."""


class PromptSpec(_Model):
    """The Tier-1 prefix: what every request of the group begins with."""

    model_config = _rules(
        _rule(
            "has(self.system) != has(self.systemFrom)",
            "prompt needs exactly one of system (inline) and systemFrom (a ConfigMap or Secret key)",
        ),
        _rule(
            "!(has(self.tools) && size(self.tools) > 0 && has(self.toolsFrom))",
            "prompt takes tools or toolsFrom, not both: remove one",
        ),
        _rule(
            "!has(self.system) || size(self.system) > 0",
            "prompt.system is empty: write the system prompt, or name its ConfigMap or Secret key in systemFrom",
        ),
    )

    system: Annotated[str, Field(max_length=MAX_PROMPT)] | None = None
    """The system prompt, byte for byte as clients send it or as the router puts it in front."""
    system_from: TextSource | None = None
    """The key that holds the system prompt."""
    tools: Annotated[list[FreeForm], Field(max_length=1024)] | None = None
    """OpenAI tool definitions. Key order within them does not matter, the order of the list does."""
    tools_from: TextSource | None = None
    """The key that holds the tool definitions, a JSON list."""
    fingerprint: Annotated[str, Field(pattern="^[0-9a-f]{32}$")] | None = None
    """Pin: the prompt is refused when it does not hash to this (`promptgroup fingerprint FILE`)."""


# --- PromptGroup: engine -----------------------------------------------------------------------------------


class EngineType(enum.StrEnum):
    """The engine's dialect: its arguments, probes, metrics."""

    VLLM = "vLLM"
    SGLANG = "SGLang"
    TENSORRT_LLM = "TensorRTLLM"


class Resources(_Model):
    """Resources of the engine container."""

    limits: dict[str, Quantity] | None = None
    """Most that the container may take, as in `nvidia.com/gpu: 1`."""
    requests: dict[str, Quantity] | None = None
    """What the scheduler sets aside; the limits when absent."""


class EngineSpec(_Model):
    """The engine that serves the model, and its pods."""

    type: EngineType = EngineType.VLLM
    """The engine's dialect."""
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
    """What the size must keep."""

    model_config = _rules(
        _rule(
            "!has(self.ttft) || self.ttft.matches('[1-9]')",
            "sizing.targets.ttft is zero: give a time such as 300ms, or remove it to size by utilisation alone",
            ".ttft",
        )
    )

    ttft: Duration | None = None
    """Time to first token that 95 of 100 requests shall get, from the router's view. Without it the size follows
    utilisation and the working set alone."""


class PolicyType(enum.StrEnum):
    """What a scaling policy counts."""

    PODS = "Pods"
    PERCENT = "Percent"


class ScalingPolicy(_Model):
    """Most by which the number of replicas may change within a period."""

    type: PolicyType
    """Pods: replicas. Percent: of those that there were when the period began."""
    value: Annotated[int, Field(ge=1, le=10_000)]
    """How many, or how much."""
    period_seconds: Annotated[int, Field(ge=1, le=1800)]
    """Length of the period."""


class SelectPolicy(enum.StrEnum):
    """Which of several policies holds."""

    MAX = "Max"
    MIN = "Min"
    DISABLED = "Disabled"


class ScaleUpRules(_Model):
    """How the number of replicas may rise."""

    stabilization_window_seconds: Annotated[int, Field(ge=0, le=3600)] = 0
    """The least number recommended within this time is taken."""
    select_policy: SelectPolicy = SelectPolicy.MAX
    """Max takes the policy that allows most, Min the one that allows least, Disabled allows no change."""
    policies: Annotated[list[ScalingPolicy], Field(min_length=1, max_length=10)] = [
        ScalingPolicy(type=PolicyType.PERCENT, value=100, period_seconds=60),
        ScalingPolicy(type=PolicyType.PODS, value=4, period_seconds=60),
    ]
    """By default the number doubles in a minute, or rises by 4: engines take minutes to start, so what a step of
    fifteen seconds ago brought cannot be seen yet."""


class ScaleDownRules(_Model):
    """How the number of replicas may fall."""

    stabilization_window_seconds: Annotated[int, Field(ge=0, le=3600)] = 300
    """The greatest number recommended within this time is taken."""
    select_policy: SelectPolicy = SelectPolicy.MAX
    """Max takes the policy that allows most, Min the one that allows least, Disabled allows no change."""
    policies: Annotated[list[ScalingPolicy], Field(min_length=1, max_length=10)] = [
        ScalingPolicy(type=PolicyType.PODS, value=1, period_seconds=60),
        ScalingPolicy(type=PolicyType.PERCENT, value=10, period_seconds=60),
    ]
    """By default one replica a minute leaves, or a tenth: its sessions are computed anew elsewhere within their next
    turn, which the others must bear."""


class Behavior(_Model):
    """How fast the number of replicas may change, as `behavior` of HorizontalPodAutoscaler has it."""

    scale_up: ScaleUpRules = ScaleUpRules()
    """How the number of replicas may rise."""
    scale_down: ScaleDownRules = ScaleDownRules()
    """How the number of replicas may fall."""


class SizingSpec(_Model):
    """The number of replicas follows what engines and routers did; it stays within bounds."""

    model_config = _rules(
        _rule(
            "self.minReplicas <= self.maxReplicas",
            "sizing.minReplicas is above sizing.maxReplicas: lower the one or raise the other",
        )
    )

    min_replicas: Annotated[int, Field(ge=1, le=1000)] = 1
    """Fewest replicas of the revision that serves."""
    max_replicas: Annotated[int, Field(ge=1, le=1000)]
    """Most replicas of the revision that serves."""
    targets: SizingTargets = SizingTargets()
    """What the size must keep."""
    behavior: Behavior = Behavior()
    """How fast the number of replicas may change."""


# --- PromptGroup: routing, rollout, warm-up ----------------------------------------------------------------


class RoutingSpec(_Model):
    """How routers place this group's requests."""

    policy: Policy = Policy.EXPECTED_TTFT
    """How a request's replica is chosen. ExpectedTTFT leaves a session's home where another replica answers sooner by
    more than the price of recomputation; BoundedLoad where it takes more than its share; LeastRequest, RoundRobin and
    PrefixHash are there to compare with."""
    sharing: Sharing = Sharing.POOL
    """Pool: groups of this namespace with the same model and engine settings take each other's overflow. Dedicated:
    this group's replicas serve it alone, and it uses no others."""
    load_factor_percent: Annotated[int, Field(ge=100, le=10_000)] = 125
    """BoundedLoad: a replica takes at most this percentage of the mean load, rounded up."""
    session_header: Annotated[str, Field(pattern="^[A-Za-z0-9-]{1,64}$")] = HEADER_SESSION
    """Request header that names the session; without it the body's fields, then the first user message do."""


class StepSpec(_Model):
    """A step of a release."""

    weight: Annotated[int, Field(ge=1, le=99)]
    """Share of the new sessions that name the group, in percent, which the new revision gets."""
    pause: Duration = "10m"
    """How long the step lasts at least; it also takes the judge's consent."""


class JudgeSpec(_Model):
    """When a new revision counts as worse than the old one: significantly so, and by more than it may be."""

    min_requests: Annotated[int, Field(ge=10, le=1_000_000)] = 50
    """Fewest requests of each revision in a step that can be judged; with fewer the step goes on."""
    confidence_percent: Annotated[int, Field(ge=50, le=99)] = 95
    """How sure a verdict against the new revision must be, over all looks of a step and all that is compared."""
    max_error_rise_percent: Annotated[int, Field(ge=0, le=100)] = 1
    """Most percentage points by which the share of failed requests (5xx, answers cut short) may rise."""
    max_ttft_rise_percent: Annotated[int, Field(ge=0, le=10_000)] = 25
    """Most by which the median or the 95th percentile of the time to first token may rise, of the old revision's."""
    max_hit_rate_drop_percent: Annotated[int, Field(ge=0, le=100)] = 10
    """Most percentage points by which the share of prompt tokens found in cache may drop."""


class RolloutSpec(_Model):
    """How a new prompt replaces the old one."""

    model_config = _rules(
        _rule(
            "self.steps.map(s, s.weight).isSorted() && "
            "self.steps.all(s, self.steps.exists_one(t, t.weight == s.weight))",
            "rollout.steps must have increasing weights: each step needs a greater weight than the one before",
            ".steps",
        ),
        _rule(
            "type(self.maxSurge) == int ? self.maxSurge >= 1 : self.maxSurge.matches('^[1-9][0-9]{0,2}%$')",
            "rollout.maxSurge must be a number from 1, or a percentage from 1% such as 25%",
            ".maxSurge",
        ),
    )

    steps: Annotated[list[StepSpec], Field(max_length=20)] = []
    """Weights that the new revision goes through, judged against the old one at each; without any it takes over as
    fast as its replicas get warm, unjudged."""
    paused: bool = False
    """Holds a release where it is. A revision that proves worse is rolled back all the same."""
    auto_promote: bool = True
    """Whether the new revision takes over by itself after the last step; if not, when this is set to true."""
    max_surge: Quantity = 1
    """Replicas of all revisions together above those wanted, as a number or a percentage of them, rounded up."""
    retire_after: Duration = "30m"
    """How long the old revision stays routable after the new one took over, and after its last request."""
    drain_timeout: Duration = "5m"
    """Longest wait for the requests of a replica that leaves; an answer that takes longer is cut."""
    revision_history_limit: Annotated[int, Field(ge=0, le=100)] = 3
    """Retired revisions to keep, without replicas: applying their prompt again finds them."""
    judge: JudgeSpec = JudgeSpec()
    """When a new revision counts as worse than the old one."""


class FailurePolicy(enum.StrEnum):
    """What becomes of a replica whose warmth cannot be proven."""

    BLOCK = "Block"
    PROCEED = "Proceed"


class WarmupSpec(_Model):
    """The proof of warmth that stands before Ready."""

    failure_policy: FailurePolicy = FailurePolicy.BLOCK
    """Block keeps a replica out of service until its warmth is proven; Proceed lets it serve cold, and says so."""
    timeout: Duration = "5m"
    """How long the proof may take before the failure policy applies; a cause that time cannot mend does at once."""


class PromptGroupSpec(_Model):
    """The wanted state of a PromptGroup."""

    model_config = _rules(
        _rule(
            "!(has(self.replicas) && has(self.sizing))",
            "replicas (fixed, or set through the scale subresource) and sizing exclude each other: remove one",
        ),
        _rule(
            "self.model == oldSelf.model",
            "spec.model cannot be changed, clients name it: create a group of another name, or delete this one first",
            ".model",
        ),
    )

    model: Annotated[str, Field(min_length=1, max_length=253)]
    """The model's name: what clients send as `model` and what the engine serves."""
    prompt: PromptSpec
    """The Tier-1 prefix."""
    engine: EngineSpec
    """The engine and its pods."""
    replicas: Annotated[int, Field(ge=0, le=1000)] | None = None
    """Number of replicas of the revision that serves. One, when neither this nor sizing is given."""
    sizing: SizingSpec | None = None
    """The number of replicas follows the load, instead of a fixed one."""
    routing: RoutingSpec = RoutingSpec()
    """How routers place this group's requests."""
    rollout: RolloutSpec = RolloutSpec()
    """How a new prompt replaces the old one."""
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

    fingerprint: str
    """Hash of its prompt."""
    deployment: str
    """Name of its Deployment."""
    replicas: int
    """Replicas wanted of it."""
    warm: int
    """Replicas whose warmth is proven."""
    ready: int
    """Replicas that take requests."""
    weight: int
    """Its share of the new sessions that name the group."""
    phase: str = ""
    """Coming, Canary, Serving, Superseded, RolledBack, Retiring or Retired."""


class PromptGroupStatus(_Model):
    """What the operator saw last."""

    observed_generation: int | None = None
    """Generation of the spec that this status speaks of."""
    fingerprint: str | None = None
    """Hash of the prompt that the group serves or is about to."""
    revision: str | None = None
    """First digits of the fingerprint: they name the Deployment."""
    replicas: int | None = None
    """Replicas that exist, of all revisions: what the scale subresource reports."""
    warm: str | None = None
    """Warm replicas of those wanted, as in 3/4."""
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
        ),
        _rule(
            "self.spec.model != self.metadata.name",
            "spec.model equals metadata.name: a request that names it could not tell the model from the group",
            ".spec.model",
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
    """What is known of the engines of a revision; what is not there nobody knows."""

    settings: str | None = None
    """Digest: revisions that have the same one may lend each other replicas."""
    kv_tokens: Annotated[int, Field(ge=0)] | None = None
    """Tokens of KV cache that one replica has."""
    prefill_tokens_per_second: Annotated[int, Field(ge=0)] | None = None
    """Prompt tokens that one replica computes in a second, as measured cold; a lower bound."""
    step_tokens: Annotated[int, Field(ge=0)] | None = None
    """Most tokens that one step of the engine computes."""


class RouteRevision(_Model):
    """One fingerprint of the group and the replicas that are warm for it."""

    fingerprint: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    system_bytes: Annotated[int, Field(ge=0)]
    """Length of the system text in UTF-8."""
    tools: bool = False
    """Whether the prefix has tools."""
    weight: Annotated[int, Field(ge=0, le=100)]
    """Share of the new sessions that name the group."""
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
    """When the group was created: of two that claim one prefix, the older keeps it."""
    policy: Policy
    sharing: Sharing = Sharing.POOL
    load_factor_percent: int
    session_header: str
    revisions: list[RouteRevision]


class PromptRoute(_Model):
    """What the operator programs and the routers read: revisions, weights, slots."""

    spec: PromptRouteSpec


def parse_spec(raw: Any) -> PromptGroupSpec:
    """The spec of a PromptGroup. An object that the API server accepted always parses.

    Raises:
        pydantic.ValidationError: the object was stored under an older schema and misses what this one asks for.
    """
    return PromptGroupSpec.model_validate(raw)
