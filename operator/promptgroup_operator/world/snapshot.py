"""A frozen snapshot of one group's world: what a pass saw, and all that a decision may look at."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, NewType

from promptgroup_contract.fingerprint import Fingerprint, ShortFingerprint
from promptgroup_contract.table import Prompt, PromptRef, Sleep, SlotState
from promptgroup_operator.api.gateway import FailureMode
from promptgroup_operator.api.prompt_group import PromptGroupSpec
from promptgroup_operator.world.engine_facts import UNKNOWN, Measured
from promptgroup_operator.world.load import GroupLoad, PoolMember
from promptgroup_operator.world.samples import NO_CALLS, Calls, Histogram, SlotUse, Traffic
from promptgroup_operator.world.sizing_history import NEW, History

Manifest = Mapping[str, Any]
"""A Kubernetes object as JSON."""

CONTAINER: Final = "engine"
"""Name of the engine container: what spec.engine.template merges into."""

ContainerId = NewType("ContainerId", str)
"""Id of a running container, as the kubelet reports it: `containerd://3e5f...`. It names one process, which a pod's
name does not: a restarted container has another id, and nothing in its cache."""
NO_CONTAINER: Final = ContainerId("")
"""The container of a pod in which the engine does not run."""


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """Names a PromptGroup."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class GroupObject:
    """The PromptGroup itself."""

    key: Key
    uid: str
    generation: int
    created: str
    """As the API server wrote it, RFC 3339."""
    spec: PromptGroupSpec
    status: Mapping[str, Any]
    """The status as last written."""
    replaces: str = ""
    """Name of the group that this one takes over from, from its annotation `promptgroup.dev/replaces`; or empty."""


@dataclass(frozen=True, slots=True)
class Problem:
    """The reason why something cannot go on, in the words of a condition."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class PromptText:
    """The group's prompt, resolved."""

    prompt: Prompt
    fingerprint: Fingerprint
    secret: bool
    """True if a part of it came from a Secret: then it is stored in one."""


@dataclass(frozen=True, slots=True)
class PodCondition:
    """The readiness gate's condition as it stands on a pod."""

    status: str
    reason: str
    message: str
    since: datetime | None


@dataclass(frozen=True, slots=True)
class Reading:
    """An engine's counters at one moment; they begin at zero with each of its processes."""

    queries: float
    """Prompt tokens looked up in the prefix cache."""
    hits: float
    """Prompt tokens found there, or in a KV tier beyond the GPU's memory."""
    generated: float
    """Tokens of answers."""
    usage: float
    """Share of the KV cache that running requests hold, 0 to 1."""
    step: int
    """Granularity of a cache hit in tokens."""
    caching: bool | None
    """True if prefix caching is on; None when the engine does not say."""
    kv_tokens: int
    """Tokens of KV cache, of all ranks together; 0 when the engine does not say."""
    running: float = 0.0
    """Requests in the batch."""
    waiting: float = 0.0
    """Requests in the queue."""
    tiered: float = 0.0
    """Those of `hits` that came from a KV tier."""
    sources: Mapping[str, float] = field(default_factory=dict)
    """Tokens that KV tiers brought, by where they were: memory, volume, peer, pool; empty where nobody says."""
    memory_usage: float | None = None
    """Share of the main memory for KV that is filled, 0 to 1; None when there is none or the engine does not say."""
    requests: float = 0.0
    """Requests that ended."""
    computed: float | None = None
    """Prompt tokens that were computed; of this and what follows, None when the engine does not say."""
    prefill_seconds: float | None = None
    """Seconds that requests spent in prefill."""
    decode_seconds: float | None = None
    """Seconds that requests spent in decode."""
    queue_seconds: float | None = None
    """Seconds that requests waited."""
    preemptions: float | None = None
    """Running requests that gave their blocks back."""
    evicted: float | None = None
    """Tokens whose KV made room for others in the GPU's memory."""
    active: float = 0.0
    """Requests that clients have sent and that have no whole answer yet, where the engine counts them."""
    first_token: Histogram = field(default_factory=Histogram)
    """Seconds from arrival to the first token."""
    own_queries: float = 0.0
    """Those of `queries` that the operator's own requests are known to have added."""
    ranks: int = 0
    """Data-parallel ranks that have figures of their own; 0 where none is named."""
    by_rank: tuple[float, ...] = ()
    """Tokens that each data-parallel rank looked up and generated, in the order of the ranks; empty of a single one."""

    @property
    def busy(self) -> int:
        """Requests that run or wait: an engine may tell of a prompt only once it is computed, but knows its sender."""
        return int(max(self.running + self.waiting, self.active))


@dataclass(frozen=True, slots=True)
class Spent:
    """The operator's own requests, of one token of answer each: part of an engine's counters, and no client's."""

    queries: int
    hits: int | None
    """None when the engine does not say."""
    requests: int = 0
    tiered: int = 0
    """Those of `hits` that came from a KV tier, at most."""


@dataclass(frozen=True, slots=True)
class LastSeen:
    """Time at which a warm engine's prefix was last known to be in cache, and what the engine did since."""

    at: datetime
    """Time of the refresh that found or computed it; before the first refresh, of the first reading."""
    then: Reading
    last: Reading
    """The latest reading."""
    lost: datetime | None = None
    """Time of the latest refresh that found it evicted."""
    rewarmed_in: float | None = None
    """Seconds that this refresh took, which computed the prefix again; None where this process has seen none."""


@dataclass(frozen=True, slots=True)
class Pod:
    """One replica."""

    name: str
    uid: str
    fingerprint: Fingerprint
    created: str
    deleting: bool
    address: str
    """host:port of the engine; empty while the pod has no address."""
    containers_ready: bool
    containers_ready_since: datetime | None
    container_id: ContainerId
    """The engine's container; NO_CONTAINER while it does not run."""
    slot: int | None
    warmed: ContainerId
    """The container whose warmth was proven, or accepted without proof after `Proceed`."""
    warm: PodCondition | None
    draining_since: datetime | None
    measured: Measured = UNKNOWN
    """Facts measured of the container in `warmed`."""
    own_measured: Measured = UNKNOWN
    """Those of them that a guest's own warm-up measured, of a host's pod as a guest sees it."""
    settings: str = ""
    """Digest of the template that the pod was made from."""
    inference_pool: str = ""
    """The InferencePool that its label puts it in; empty for none."""
    trouble: str = ""
    """The reason why the pod does not start, in Kubernetes' words, or empty."""
    replica_set: str = ""
    """The ReplicaSet that owns it; empty for none."""
    credential: str = ""
    """Secret and key (`name/key`) of what its engine asks for; empty for nothing."""
    tls: str = ""
    """The rule by which its engine is verified, as text of an EngineTls; empty for plain HTTP."""
    ranks: int = 1
    """Data-parallel ranks of its engine, each with a KV cache of its own, as its own template says."""
    in_flight: int | None = None
    """Requests that the engine has queued or running; looked up for draining pods only."""
    crowd: int = 0
    """Tokens of all prefixes that are kept warm on it; 0 where it has only its own."""
    last_seen: LastSeen | None = None
    """State of the prefix in the engine that runs; None before its first reading."""
    ready_since: datetime | None = None
    """Since when the kubelet says that the pod is Ready; None while it is not."""
    settling: bool = False
    """Decided, not seen: it is warm, and not offered yet, since gateways may not know of it."""

    @property
    def is_warm(self) -> bool:
        """The engine process that runs now was proven warm (or let through) and says so."""
        return (
            not self.deleting
            and self.containers_ready
            and self.container_id != NO_CONTAINER
            and self.warmed == self.container_id
            and self.warm is not None
            and self.warm.status == "True"
        )


def holders(pods: Iterable[Pod]) -> dict[int, Pod]:
    """Return slot → the pod that holds it: of two that claim one slot the warm one, then the older.

    Args:
        pods: the pods of one revision.
    """
    result: dict[int, Pod] = {}
    for pod in by_claim(pods):
        if pod.slot is not None:
            result.setdefault(pod.slot, pod)
    return result


def by_claim(pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods that do not terminate in the order in which they may claim slots: warm ones, then the oldest."""
    return sorted((pod for pod in pods if not pod.deleting), key=lambda pod: (not pod.is_warm, pod.created, pod.name))


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a revision under release."""

    weight: int
    """Percent: the weight of the last step that stood in the route, or that may since the one before was passed; 0
    before the first. A release goes on from here when its steps are edited."""
    since: datetime | None
    """Time at which that weight stood in the route; None while it does not yet."""
    grows: datetime | None = None
    """Time at which the revision had its first weight on the way to it; None before, and once it is passed."""


@dataclass(frozen=True, slots=True)
class RolledBack:
    """The reason why a revision was taken back."""

    at: datetime
    settings: str
    """Digest of the engine settings that it was judged with: with others it may be tried again."""
    why: Problem


@dataclass(frozen=True, slots=True)
class RevisionState:
    """One fingerprint of the group that has a Deployment."""

    fingerprint: Fingerprint
    deployment: str
    created: str
    replicas: int
    """Replicas that its Deployment asks for."""
    superseded_at: datetime | None
    """Time at which another revision took its place."""
    prompt_from: PromptRef
    prompt: Prompt | None
    """None when the object that holds it is gone, or holds the text of another."""
    pods: tuple[Pod, ...]
    weight: int = 0
    """Its weight in the PromptRoute as it stands."""
    quiet_since: datetime | None = None
    """Since when its engines computed no client's prompt; None when that is not known."""
    slots: Mapping[int, SlotState] = field(default_factory=dict)
    """Slots that the PromptRoute, as it stands, lists."""
    use: Mapping[int, SlotUse] = field(default_factory=dict)
    """Slot → what routers say that it works on and holds; empty when nothing is known."""
    progress: Progress | None = None
    """Set from its creation until it takes over, which takes a warm replica: None says that it served once."""
    rolled_back: RolledBack | None = None
    size: int | None = None
    """Replicas that the group wanted when the Deployment was last written; known where the operator decides it."""
    failure: str = ""
    """The reason why its Deployment cannot create pods, or empty."""
    warm_template: Manifest | None = None
    """Pod template that its warm replicas run, where its Deployment has another one that never became warm."""

    @property
    def alive(self) -> int:
        """Replicas that it has or has asked for; pods that terminate aside."""
        return max(self.replicas, sum(not pod.deleting for pod in self.pods))

    @property
    def routed(self) -> frozenset[int]:
        """Slots that the PromptRoute, as it stands, has Ready."""
        return frozenset(slot for slot, state in self.slots.items() if state is SlotState.READY)

    @property
    def serving(self) -> frozenset[int]:
        """Slots that routers send to and a warm replica holds."""
        return self.routed & {pod.slot for pod in self.pods if pod.is_warm and pod.slot is not None}

    @property
    def ready(self) -> int:
        """Slots that a warm replica holds which may be offered."""
        return len({pod.slot for pod in self.pods if pod.is_warm and not pod.settling and pod.slot is not None})


@dataclass(frozen=True, slots=True)
class Sibling:
    """Another PromptGroup of the namespace that serves the same model, with the same prompt as far as is known."""

    name: str
    created: str
    fingerprint: Fingerprint
    """Fingerprint that its status reports, or that a pass read before that; empty before a pass found its prompt."""
    observed: bool = True
    """False until a pass has read its prompt for the first time."""


@dataclass(frozen=True, slots=True)
class OtherGroup:
    """Another PromptGroup of the namespace, whatever it serves: the names that clients know it by."""

    name: str
    created: str
    model: str
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Host:
    """The PromptGroup whose replicas serve a guest, as a pass over the guest saw it."""

    name: str
    pods: tuple[Pod, ...] = ()
    """Its replicas on which prompts of guests may be kept warm."""
    leaving: tuple[Pod, ...] = ()
    """Its replicas that terminate or drain."""
    problem: Problem | None = None
    """The reason why it can serve no guest."""
    sleep: Sleep | None = None
    """The treatment of its requests while it has no replica on purpose; None where it always has some."""
    gateway: FailureMode | None = None
    """The rule for gateways while no picker answers; None where its replicas are behind none."""


class GuestSubject(NamedTuple):
    """A revision of a guest, whose clients are a host's load as well."""

    key: Key
    revision: ShortFingerprint
    tokens: int
    """Length of its prefix; 0 if unknown."""


@dataclass(frozen=True, slots=True)
class SeenPools:
    """The InferencePools that matter to a group: of its own name, and the one that its spec names."""

    found: Mapping[str, Manifest] = field(default_factory=dict)
    """Name → object as it stands."""
    problem: Problem | None = None
    """The reason why none can be seen, or why the API server refused the group's own."""


NO_POOLS: Final = SeenPools()


@dataclass(frozen=True, slots=True)
class PoolAnswers:
    """Answers of the servers of a KV pool."""

    servers: int
    """Servers that were asked; 0 when the name leads to none."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Address of each that is away → why."""
    stuck: tuple[str, ...] = ()
    """Addresses of those that accept blocks and cannot store them in what is behind them."""
    capacity: int = 0
    """Bytes of the servers' own memory for KV, of all together; 0 while one does not say, or is empty."""


@dataclass(frozen=True, slots=True)
class World:
    """Everything that one pass saw."""

    group: GroupObject
    prompt: PromptText | Problem
    revisions: tuple[RevisionState, ...]
    siblings: tuple[Sibling, ...]
    live: Mapping[tuple[str, str], Manifest]
    """(kind, name) → object as it stands, for what the operator would apply."""
    traffic: Traffic | None = None
    """Counts of the routers; None when none could be read, or none had to be."""
    hit_rate: float | None = None
    """Share of prompt tokens found in cache lately; None when nothing is known."""
    peers_key: bool = True
    """True if the Secret exists with which the namespace's routers authenticate each other."""
    refresh_every: timedelta = timedelta(minutes=5)
    """Longest time between two refreshes of a warm replica."""
    load: GroupLoad | None = None
    """Load of the engines and routers; None before a revision serves, or when the number of replicas is fixed."""
    pool: tuple[PoolMember, ...] = ()
    """The other groups whose replicas lend to this one's."""
    inference_pools: SeenPools = NO_POOLS
    """The InferencePools that matter to the group."""
    sizing: History = NEW
    """State that sizing keeps between passes."""
    others: tuple[OtherGroup, ...] = ()
    """The other groups of the namespace; empty where the group's model has no aliases."""
    tier_hit_rate: float | None = None
    """Share of prompt tokens that KV tiers brought lately, which is part of the hit rate; None like that."""
    tier_hit_rates: Mapping[str, float] = field(default_factory=dict)
    """The parts of it by where the tokens were, as in Reading.sources; empty when no engine says."""
    pool_answers: PoolAnswers | None = None
    """Answers of the servers of the group's KV pool; None where nobody looks."""
    host: Host | None = None
    """The PromptGroup whose replicas serve the group; None for a group with an engine of its own. The group's spec has
    the host's model and engine, its revisions have views of the host's pods."""
    prompts: Mapping[str, int] = field(default_factory=dict)
    """Group → tokens of its prompts on one replica, of a host that has guests and of them; else empty."""
    guests_routed: frozenset[str] = frozenset()
    """Pods of the group that routes of its guests let routers send to."""
    unread: Problem | None = None
    """The objects that could not be read: each is seen as it was read last, or as if it were not there."""
    calls: Calls = NO_CALLS
    """Requests that found the group, or a guest of it, without any replica on purpose."""
    first_seen: datetime | None = None
    """Time of this process's first pass over the group; None where nobody knows."""
