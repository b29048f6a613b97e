"""An immutable snapshot of the state that a pass observes for one group: the only input of its decisions."""

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
from promptgroup_operator.world.pod_start import UNOBSERVED, PodStart
from promptgroup_operator.world.samples import NO_CALLS, Calls, Histogram, SlotUse, Traffic
from promptgroup_operator.world.sizing_history import NEW, History

Manifest = Mapping[str, Any]
"""A Kubernetes object as JSON."""

LEADER_WORKER_SET: Final = "LeaderWorkerSet"
"""Kind of the workload of replicas with several nodes (sigs.k8s.io/lws)."""
WORKLOADS: Final = frozenset({"Deployment", LEADER_WORKER_SET})
"""Kinds of workloads: the object that makes a revision's pods, and is the record of it."""
CONTAINER: Final = "engine"
"""Name of the engine container, into which spec.engine.template is merged."""

ContainerId = NewType("ContainerId", str)
"""Id of a running container, as the kubelet reports it: `containerd://3e5f...`. Unlike a pod's name it identifies one
process: a restarted container has another id and an empty KV cache."""
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
    derived: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Results that follow from the group alone, computed once for this object; `dataclasses.replace` begins anew."""


@dataclass(frozen=True, slots=True)
class Problem:
    """The reason why a step is not possible, as reason and message of a condition."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class PromptText:
    """The group's prompt, resolved."""

    prompt: Prompt
    fingerprint: Fingerprint
    secret: bool
    """True if a part of the prompt came from a Secret: then it is stored in a Secret."""


@dataclass(frozen=True, slots=True)
class PodCondition:
    """The current condition of a pod's readiness gate."""

    status: str
    reason: str
    message: str
    since: datetime | None


@dataclass(frozen=True, slots=True)
class Reading:
    """An engine's counters at one moment; they start at zero with each engine process."""

    queries: float
    """Prompt tokens looked up in the prefix cache."""
    hits: float
    """Prompt tokens served from the prefix cache, or from a KV tier beyond the GPU's memory."""
    generated: float
    """Tokens of answers."""
    usage: float
    """Share of the KV cache that running requests hold, 0 to 1."""
    step: int
    """Granularity of a cache hit in tokens."""
    caching: bool | None
    """True if prefix caching is on; None when the engine does not report it."""
    kv_tokens: int
    """Capacity of the KV cache in tokens, summed over all ranks; 0 when the engine does not report it."""
    running: float = 0.0
    """Requests in the batch."""
    waiting: float = 0.0
    """Requests in the queue."""
    tiered: float = 0.0
    """Those of `hits` that came from a KV tier."""
    sources: Mapping[str, float] = field(default_factory=dict)
    """Source (memory, volume, peer, pool) → tokens loaded from KV tiers there; empty where the engine reports none."""
    memory_usage: float | None = None
    """Share of the main memory for KV that is filled, 0 to 1; None without such memory or if it is not reported."""
    requests: float = 0.0
    """Requests that ended."""
    computed: float | None = None
    """Prompt tokens that were computed. This and the next fields are None when the engine does not report them."""
    prefill_seconds: float | None = None
    """Seconds that requests spent in prefill."""
    decode_seconds: float | None = None
    """Seconds that requests spent in decode."""
    queue_seconds: float | None = None
    """Seconds that requests waited in the queue."""
    preemptions: float | None = None
    """Running requests that were preempted and lost their KV blocks."""
    evicted: float | None = None
    """Tokens whose KV was evicted from the GPU's memory."""
    active: float = 0.0
    """Requests that were received and have no complete response yet, where the engine counts them."""
    first_token: Histogram = field(default_factory=Histogram)
    """Seconds from arrival to the first token."""
    own_queries: float = 0.0
    """Those of `queries` that the operator's own requests added, as far as it is counted."""
    ranks: int = 0
    """Data-parallel ranks that have separate metrics; 0 where the metrics name none."""
    by_rank: tuple[float, ...] = ()
    """Tokens that each data-parallel rank looked up and generated, in rank order; empty for a single rank."""

    @property
    def busy(self) -> int:
        """Requests that run or wait; an engine may count a request as `active` before it appears in other metrics."""
        return int(max(self.running + self.waiting, self.active))


@dataclass(frozen=True, slots=True)
class Spent:
    """The operator's own requests, each with one output token: a part of an engine's counters, not of clients' load."""

    queries: int
    hits: int | None
    """None when the engine does not report cached tokens."""
    requests: int = 0
    tiered: int = 0
    """Upper bound of those `hits` that came from a KV tier."""


@dataclass(frozen=True, slots=True)
class LastSeen:
    """The last time at which a warm engine's prefix was verified in cache, and the engine's counters since then."""

    at: datetime
    """Time of the refresh that verified or recomputed the prefix; before the first refresh, of the first reading."""
    then: Reading
    last: Reading
    """The latest reading."""
    lost: datetime | None = None
    """Time of the latest refresh for which the prefix had been evicted."""
    rewarmed_in: float | None = None
    """Seconds in which that refresh recomputed the prefix; None where this process has performed none."""


@dataclass(frozen=True, slots=True)
class Pod:
    """One replica: its pod, or the leader of its pods."""

    name: str
    uid: str
    fingerprint: Fingerprint
    created: str
    deleting: bool
    """True if it terminates, has ended, or is about to be terminated (its condition DisruptionTarget is True): a node
    that shuts down ends its pods before anybody deletes them."""
    address: str
    """host:port of the engine; empty while the pod has no address."""
    containers_ready: bool
    containers_ready_since: datetime | None
    container_id: ContainerId
    """The engine's container; NO_CONTAINER while it does not run."""
    slot: int | None
    warmed: ContainerId
    """The container whose warmth was proven, or accepted without proof under the failure policy `Proceed`."""
    warm: PodCondition | None
    draining_since: datetime | None
    measured: Measured = UNKNOWN
    """Measurements of the container in `warmed`."""
    own_measured: Measured = UNKNOWN
    """Those measurements that a guest's own warm-up made, for a host's pod in the guest's view."""
    settings: str = ""
    """Digest of the template that the pod was created from."""
    inference_pool: str = ""
    """The InferencePool that its label assigns it to; empty for none."""
    trouble: str = ""
    """The reason why the pod does not start, as Kubernetes reports it, or empty."""
    replica_set: str = ""
    """The ReplicaSet that owns it; empty for none."""
    credential: str = ""
    """Secret and key (`name/key`) of the API key that its engine requires; empty for none."""
    tls: str = ""
    """The rule by which its engine's certificate is verified, as text of an EngineTls; empty for plain HTTP."""
    ordinal: int | None = None
    """Its ordinal in a StatefulSet, which removes the highest first; None for the pod of a ReplicaSet."""
    ranks: int = 1
    """Data-parallel ranks of its engine, each with its own KV cache, according to the pod's template."""
    in_flight: int | None = None
    """Requests that the engine has queued or running; read for draining pods only."""
    crowd: int = 0
    """Tokens of all prefixes that are warm on the pod; 0 where it has only the group's own."""
    last_seen: LastSeen | None = None
    """State of the prefix in the engine that runs; None before its first reading."""
    ready_since: datetime | None = None
    """Time since which the kubelet reports the pod as Ready; None while it is not."""
    start: PodStart = UNOBSERVED
    """The times of its start."""
    node_taint: str = ""
    """Key of the taint that announces the end of its node; empty without one."""
    evacuated: bool = False
    """True if the pod drains because its node is about to go. Decided by a pass, not observed."""
    settling: bool = False
    """True if the pod is warm but not offered yet, since gateways may not know it. Decided by a pass, not observed."""

    @property
    def is_warm(self) -> bool:
        """True if the running engine process was proven warm, or accepted without proof, and its condition says so."""
        return (
            not self.deleting
            and self.containers_ready
            and self.container_id != NO_CONTAINER
            and self.warmed == self.container_id
            and self.warm is not None
            and self.warm.status == "True"
        )


def holders(pods: Iterable[Pod]) -> dict[int, Pod]:
    """Return slot → the pod that holds it; of two pods that claim one slot, the warm one, then the older one.

    Args:
        pods: the pods of one revision.
    """
    result: dict[int, Pod] = {}
    for pod in by_claim(pods):
        if pod.slot is not None:
            result.setdefault(pod.slot, pod)
    return result


def by_claim(pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods that may claim slots, warm ones first, then the oldest: none terminates or is evacuated."""
    staying = (pod for pod in pods if not pod.deleting and not pod.evacuated)
    return sorted(staying, key=lambda pod: (not pod.is_warm, pod.created, pod.name))


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a revision under release."""

    weight: int
    """Percent: the weight of the last step that was written to the route, or that may be, since the step before it is
    complete; 0 before the first. A release continues from here when its steps are edited."""
    since: datetime | None
    """Time at which that weight was in the route; None while it is not."""
    grows: datetime | None = None
    """Time at which the revision had its first weight on the way to it; None before that, and after the step is
    complete."""


@dataclass(frozen=True, slots=True)
class RolledBack:
    """The record of a revision's rollback."""

    at: datetime
    settings: str
    """Digest of the engine settings that it was analysed with: with other settings it may be released again."""
    why: Problem


@dataclass(frozen=True, slots=True)
class RevisionState:
    """One fingerprint of the group that has a Deployment, or a LeaderWorkerSet in its place."""

    fingerprint: Fingerprint
    deployment: str
    created: str
    replicas: int
    """Replicas in the spec of its Deployment."""
    superseded_at: datetime | None
    """Time at which another revision replaced it."""
    prompt_from: PromptRef
    prompt: Prompt | None
    """None when the object that stores it does not exist, or holds the text of another prompt."""
    pods: tuple[Pod, ...]
    weight: int = 0
    """Its weight in the current PromptRoute."""
    quiet_since: datetime | None = None
    """Time since which its engines received no prompt of a client; None when unknown."""
    slots: Mapping[int, SlotState] = field(default_factory=dict)
    """Slots that the current PromptRoute lists."""
    use: Mapping[int, SlotUse] = field(default_factory=dict)
    """Slot → its requests and sessions, as routers report them; empty when unknown."""
    progress: Progress | None = None
    """Set from its creation until it takes over, which requires a warm replica: None means that it has served."""
    rolled_back: RolledBack | None = None
    size: int | None = None
    """Replicas that the group wanted when the Deployment was last written; set where the operator decides it."""
    failure: str = ""
    """The reason why its Deployment cannot create pods, or empty."""
    workload: str = "Deployment"
    """Kind of its workload."""
    warm_template: Manifest | None = None
    """Pod template of its warm replicas, if the Deployment's own template differs and has no warm replica yet."""

    @property
    def alive(self) -> int:
        """Number of replicas that it has or that its Deployment specifies, without terminating pods."""
        return max(self.replicas, sum(not pod.deleting for pod in self.pods))

    @property
    def routed(self) -> frozenset[int]:
        """Slots that are Ready in the current PromptRoute."""
        return frozenset(slot for slot, state in self.slots.items() if state is SlotState.READY)

    @property
    def serving(self) -> frozenset[int]:
        """Slots that are Ready in the PromptRoute and held by a warm replica."""
        return self.routed & {pod.slot for pod in self.pods if pod.is_warm and pod.slot is not None}

    @property
    def ready(self) -> int:
        """Number of slots held by a warm replica that may be offered to routers."""
        return len({pod.slot for pod in self.pods if pod.is_warm and not pod.settling and pod.slot is not None})


@dataclass(frozen=True, slots=True)
class Sibling:
    """Another PromptGroup of the namespace with the same model and, if its prompt has been read, the same prompt."""

    name: str
    created: str
    fingerprint: Fingerprint
    """Fingerprint from its status, or from a pass before the status was written; empty until a pass read its prompt."""
    observed: bool = True
    """False until a pass has read its prompt for the first time."""


@dataclass(frozen=True, slots=True)
class OtherGroup:
    """Another PromptGroup of the namespace with any model: the names by which clients address it."""

    name: str
    created: str
    model: str
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Host:
    """The PromptGroup whose replicas serve a guest, as observed by a pass over the guest."""

    name: str
    pods: tuple[Pod, ...] = ()
    """Its replicas on which prompts of guests may be warm."""
    leaving: tuple[Pod, ...] = ()
    """Its replicas that terminate or drain."""
    problem: Problem | None = None
    """The reason why it can serve no guest."""
    sleep: Sleep | None = None
    """The treatment of its requests while it has no replica by design; None where it always has one."""
    gateway: FailureMode | None = None
    """The failure mode for gateways while no picker responds; None where no gateway is in front of its replicas."""


class GuestSubject(NamedTuple):
    """A revision of a guest, whose clients are part of its host's load."""

    key: Key
    revision: ShortFingerprint
    tokens: int
    """Length of its prefix; 0 if unknown."""


@dataclass(frozen=True, slots=True)
class SeenPools:
    """The InferencePools that are relevant to a group: the one with its own name, and the one that its spec names."""

    by_name: Mapping[str, Manifest] = field(default_factory=dict)
    """Name → current object."""
    problem: Problem | None = None
    """The reason why none can be read, or why the API server rejected the group's own."""


NO_POOLS: Final = SeenPools()


@dataclass(frozen=True, slots=True)
class PoolAnswers:
    """Answers of the servers of a KV pool."""

    servers: int
    """Number of servers that were queried; 0 when the name resolves to none."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Address of each unreachable server → reason."""
    stuck: tuple[str, ...] = ()
    """Addresses of the servers that accept blocks but cannot store them in their backend."""
    capacity: int = 0
    """Memory for KV in bytes, summed over the servers; 0 while one of them does not report it, or is empty."""


@dataclass(frozen=True, slots=True)
class World:
    """The complete state that one pass observed."""

    group: GroupObject
    prompt: PromptText | Problem
    revisions: tuple[RevisionState, ...]
    siblings: tuple[Sibling, ...]
    live: Mapping[tuple[str, str], Manifest]
    """(kind, name) → current object, for the objects that the operator would apply."""
    traffic: Traffic | None = None
    """Counts of the routers; None when no router could be read, or none was needed."""
    hit_rate: float | None = None
    """Share of prompt tokens served from cache within HIT_RATE_WINDOW; None when unknown."""
    peers_key: bool = True
    """True if the Secret exists with which the namespace's routers authenticate each other."""
    refresh_every: timedelta = timedelta(minutes=5)
    """Longest time between two refreshes of a warm replica."""
    load: GroupLoad | None = None
    """Load of the engines and routers; None before a revision serves, or when the number of replicas is fixed."""
    pool: tuple[PoolMember, ...] = ()
    """The other groups of the pool, whose replicas lend to this group."""
    inference_pools: SeenPools = NO_POOLS
    """The InferencePools that are relevant to the group."""
    sizing: History = NEW
    """State that sizing stores between passes."""
    others: tuple[OtherGroup, ...] = ()
    """The other groups of the namespace; empty where the group's model has no aliases."""
    tier_hit_rate: float | None = None
    """Share of prompt tokens that were loaded from KV tiers, a part of `hit_rate`; None when unknown."""
    tier_hit_rates: Mapping[str, float] = field(default_factory=dict)
    """`tier_hit_rate` divided by source, as in Reading.sources; empty when no engine reports sources."""
    pool_answers: PoolAnswers | None = None
    """Answers of the servers of the group's KV pool; None where they are not queried."""
    host: Host | None = None
    """The PromptGroup whose replicas serve the group; None for a group with an engine of its own. The group's spec has
    the host's model and engine, its revisions have views of the host's pods."""
    prompts: Mapping[str, int] = field(default_factory=dict)
    """Group → tokens of its prompts on one replica, for a host that has guests and for these guests; else empty."""
    guests_routed: frozenset[str] = frozenset()
    """Pods of the group that are routable in the PromptRoutes of its guests."""
    adapters: frozenset[str] = frozenset()
    """The models that requests to the group's engines name for the adapters of its own revisions and of its guests'."""
    unread: Problem | None = None
    """Report of the objects that could not be read: the pass uses their last state, or treats them as absent."""
    calls: Calls = NO_CALLS
    """Requests for the group, or a guest of it, while it had no replica by design."""
    first_seen: datetime | None = None
    """Time of this process's first pass over the group; None when unknown."""
