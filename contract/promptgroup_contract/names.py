"""Names that operator, router, users and dashboards share. Changing one is a breaking change."""

import re
from typing import Final

API_GROUP: Final = "promptgroup.dev"
API_VERSION: Final = "v1alpha1"
GROUP_PLURAL: Final = "promptgroups"
ROUTE_PLURAL: Final = "promptroutes"
INFERENCE_GROUP: Final = "inference.networking.k8s.io"
"""API group of InferencePools, which belongs to Gateway API's Inference Extension."""

# --- Names of objects ----------------------------------------------------------------------------------------
OBJECT_NAME: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
"""Pattern of the names that objects can have (DNS subdomains, RFC 1123), which schemas carry, too."""
LONGEST_NAME: Final = 253
"""Most characters of a name."""
_OBJECT_NAME: Final = re.compile(OBJECT_NAME, re.ASCII)


def is_object_name(text: str) -> bool:
    """Return True if an object or a namespace can have this name.

    A name that stands in another object is what somebody wrote there, and a slash or `..` in a path would lead to
    another object than the one that is meant: so every path asks this of every name.
    """
    return len(text) <= LONGEST_NAME and _OBJECT_NAME.fullmatch(text) is not None


# --- Labels on what the operator creates -------------------------------------------------------------------
LABEL_GROUP: Final = "promptgroup.dev/group"
"""Name of the PromptGroup that owns the object."""
LABEL_REVISION: Final = "promptgroup.dev/revision"
"""First eight hex digits of the revision's fingerprint."""
LABEL_SLOT: Final = "promptgroup.dev/slot"
"""A pod's place on the ring: a decimal number, assigned once the pod is warm and freed when it terminates."""

LABEL_WORKER: Final = "promptgroup.dev/worker"
"""Name of the PromptGroup, on the pods of a replica with several nodes that serve no requests themselves."""

LABEL_WEIGHTS: Final = "promptgroup.dev/weights"
"""Name of the PromptGroup for which a node has the weights, on the pods that have the node pull them."""

LABEL_INFERENCE_POOL: Final = "promptgroup.dev/inference-pool"
"""Name of the InferencePool that a pod is in: on replicas that hold a slot and do not drain."""

LABEL_KV_POOL: Final = "promptgroup.dev/kv-pool"
"""Any value, on the pods of a KV pool: the operator may connect to them. Whoever runs the pool sets it."""

# --- Annotations on what the operator creates --------------------------------------------------------------
ANNOTATION_FINGERPRINT: Final = "promptgroup.dev/fingerprint"
"""The full fingerprint of the revision."""
ANNOTATION_PROMPT: Final = "promptgroup.dev/prompt-from"
"""On a Deployment: kind of the object that holds the revision's prompt; its name is the Deployment's."""
ANNOTATION_DRAINING: Final = "promptgroup.dev/draining-since"
"""Annotation of a pod: time at which its slot was taken off the ring."""
ANNOTATION_APPLIED: Final = "promptgroup.dev/applied"
"""Hash of the manifest as it was last applied: an unchanged object is not written again."""
ANNOTATION_WARMED: Final = "promptgroup.dev/warmed-container"
"""Container id whose cache was proven to hold the Tier-1 prefix. Another id means a cold cache."""
ANNOTATION_ENGINE: Final = "promptgroup.dev/engine"
"""JSON of what was measured of that container's engine (`kvTokens`, `prefillTokensPerSecond`, `prefixTokens`)."""
ANNOTATION_REPLACES: Final = "promptgroup.dev/replaces"
"""Annotation of a PromptGroup: the name of the group that it takes over from. Both may then declare one prompt."""
ANNOTATION_SETTINGS: Final = "promptgroup.dev/engine-settings"
"""Digest of the template that the pod was made from. Pods with the same digest differ in nothing but their prompt."""
ANNOTATION_CREDENTIAL: Final = "promptgroup.dev/credential"
"""Secret and key (`name/key`) of the credential that the pod's engine asks for; absent where it asks for none."""
ANNOTATION_ENGINE_TLS: Final = "promptgroup.dev/engine-tls"
"""Authorities and server name by which the pod's engine is verified (`ConfigMap/name/key/server-name`), absent where it
serves plain HTTP."""

# --- Pod condition -----------------------------------------------------------------------------------------
CONDITION_PREFIX_WARM: Final = "promptgroup.dev/prefix-warm"
"""Readiness gate: the engine of this pod holds the Tier-1 prefix."""

ROUTER: Final = "promptgroup-router"
"""Value of `app.kubernetes.io/name` on routers' pods; their admin port is named `admin`."""
PICKER: Final = "promptgroup-picker"
"""The same on pickers' pods."""

# --- What the routers of a namespace share ------------------------------------------------------------------
ROLE_ROUTER_SECRETS: Final = "promptgroup-router-secrets"
ROLE_PICKER_SECRETS: Final = "promptgroup-picker-secrets"
"""Roles of a namespace that let its routers and pickers read Secrets; the operator writes which."""
SECRET_PEERS: Final = "promptgroup-router-peers"  # noqa: S105 - an object's name
"""Secret of a namespace whose key authenticates the messages between the namespace's routers."""
KEY_PEERS: Final = "key"
"""Key in that Secret: 32 random bytes."""

ADMIN_SECRET: Final = "promptgroup-router-admin"  # noqa: S105 - an object's name
"""Secret of a namespace whose key `token` its routers' and pickers' admin ports ask for before they change state."""
ADMIN_KEY: Final = "token"
"""Key in that Secret."""

# --- Request headers (lower case, as compared) -------------------------------------------------------------
HEADER_SESSION: Final = "x-session-id"
"""Default session header; a group may name another."""
HEADER_GROUP: Final = "x-promptgroup"
"""Names the group (`name` or `namespace/name`) when the body's `model` does not."""
HEADER_NAMESPACE: Final = "x-promptgroup-namespace"
"""Names the namespace whose groups count for the request, where the router serves several."""
HEADER_WARMUP: Final = "x-promptgroup-warmup"
"""Sent with the operator's warm-up requests, so that engines and proxies can leave them out of hit rates."""
HEADER_DIAGNOSTICS: Final = "x-promptgroup-diagnostics"
"""Asks why the prompt was not found in cache: the id of an earlier answer, or nothing to be remembered for the next."""
HEADER_USAGE: Final = "x-promptgroup-usage"
"""With `true`, asks what the request used. The answer has it in a header of the same name, a stream in a comment."""

HEADER_CLIENT: Final = "sec-promptgroup-client"
"""Sent to admin ports by programs that are no browser; browsers let no page set a header of such a name."""
HEADER_ADMIN_TOKEN: Final = "x-promptgroup-admin-token"  # noqa: S105 - a header's name
"""Sent to admin ports with what changes state. The API server's proxy passes it on, and `authorization` not."""

HEADER_RANK: Final = "x-data-parallel-rank"
"""Names the data-parallel rank of an engine that a request runs on; vLLM and SGLang read it."""

# --- Response headers --------------------------------------------------------------------------------------
HEADER_SERVED_BY: Final = "x-promptgroup-served-by"
"""`namespace/group/revision/slot` of the replica that answered, and `.rank` where its engine has data-parallel ranks;
group `-` when nothing matched."""
HEADER_REVISION: Final = "x-promptgroup-revision"
"""Short fingerprint of the request's own revision, which a replica of another revision may have served."""
HEADER_CACHE_MISS: Final = "x-promptgroup-cache-miss"
"""Answers that question: `none`, or what changed or why it is gone, with the tokens that are lost by it."""
HEADER_CACHE_KEY: Final = "x-promptgroup-cache-key"
"""Key under which an answer is cached, by which it can be purged."""

# --- Metrics of the router by which releases are judged and groups are sized -------------------------------
METRIC_REVISION: Final = "promptgroup_router_revision_"
"""Common prefix of the metrics below. Labels: group (`namespace/name`), revision (short fingerprint), turn (first,
later, other)."""
METRIC_REVISION_REQUESTS: Final = METRIC_REVISION + "requests_total"
"""Requests that ended, by how they were matched (`how`) and by their result (`outcome`)."""
METRIC_REVISION_FIRST_TOKEN: Final = METRIC_REVISION + "first_token_seconds"
"""Histogram of the seconds from the whole request to the first token of a streamed answer."""
METRIC_REVISION_CACHED: Final = METRIC_REVISION + "cached_ratio"
"""Histogram of the share of a prompt's tokens that repeat, of the declared prompt and the session's history, which the
engine had cached."""
METRIC_REVISION_OWN_TOKENS: Final = METRIC_REVISION + "own_tokens_total"
METRIC_REVISION_SHARED_TOKENS: Final = METRIC_REVISION + "shared_tokens_total"
"""Tokens that requests brought and no request before them had, of those whose first byte was timed."""
METRIC_REVISION_PROMPT_TOKENS: Final = METRIC_REVISION + "prompt_tokens_total"
"""Prompt tokens that engines reported. This and the next four have the labels group and revision only."""
METRIC_REVISION_ANSWER_TOKENS: Final = METRIC_REVISION + "answer_tokens_total"
"""Tokens of answers that engines reported."""
METRIC_REVISION_SESSIONS: Final = METRIC_REVISION + "sessions"
"""Gauge of the sessions that have come back and were served lately, by this router last."""
METRIC_REVISION_SESSION_TOKENS: Final = METRIC_REVISION + "session_tokens"
"""Gauge of their tokens beyond the declared prompt."""
METRIC_REVISION_WAITING: Final = METRIC_REVISION + "waiting"
"""Gauge of the requests that wait in the router for room."""
METRIC_REVISION_EVICTED: Final = METRIC_REVISION + "evicted_tokens_total"
"""Prompt tokens that a replica had evicted and computed again. Labels: group, revision and `within`."""
EVICTED_WITHIN: Final = ("2", "4", "8", "16", "more")
"""Values of `within`: a memory of so many times the replica's KV cache would have held the tokens still."""
METRIC_INFLIGHT: Final = "promptgroup_router_inflight"
"""Gauge of the router's requests that a slot is working on. This and the next two have the labels group, revision and
slot, by which the operator chooses the slots that leave."""
METRIC_SLOT: Final = "promptgroup_router_slot_"
"""Common prefix of the next four."""
METRIC_SLOT_PROMPT_TOKENS: Final = METRIC_SLOT + "prompt_tokens_total"
"""Prompt tokens of answers that report their cached tokens. This and the next one are counted for the slot that
answered: of a replica that is lent, its own group's."""
METRIC_SLOT_CACHED_TOKENS: Final = METRIC_SLOT + "cached_tokens_total"
"""The cached ones of these tokens."""
METRIC_SLOT_SESSIONS: Final = METRIC_SLOT + "sessions"
"""Gauge of the sessions of METRIC_REVISION_SESSIONS, of any revision, that the slot served last."""
METRIC_SLOT_SESSION_TOKENS: Final = METRIC_SLOT + "session_tokens"
"""Gauge of their tokens beyond the declared prompt: what is computed again if the slot leaves."""
METRIC_NEAR_MISSES: Final = "promptgroup_router_near_miss_requests_total"
"""Requests that match no group but nearly match one's prompt, by group."""
METRIC_NEAR_MISS_OFFSET: Final = "promptgroup_router_near_miss_offset_bytes"
"""Gauge of the median offset at which such requests lately left the declared prompt, by group."""
METRIC_WAKE: Final = "promptgroup_router_wake_"
"""Common prefix of the next two, which have the label group."""
METRIC_WAKE_REQUESTS: Final = METRIC_WAKE + "requests_total"
"""Requests that arrived while their group had scaled to zero."""
METRIC_WAKE_AT: Final = METRIC_WAKE + "last_request_timestamp_seconds"
"""Gauge of the time of the latest of them, in seconds since 1970: it tells of one that has given up since, also to an
operator that has just started."""
HOW_NAME: Final = "name"
"""Value of `how` for a client that named the group, so that the weights of its revisions decided."""
STREAMED: Final = "true"
WHOLE: Final = "false"
"""Values of `streamed`: true if the first byte of an answer is that of its first token."""
TURN_FIRST: Final = "first"
TURN_LATER: Final = "later"
TURN_OTHER: Final = "other"
"""Values of `turn`: first if the request begins a session; later if it comes back to the process that served its last
turn; other where nobody may compare it: a lent replica or another one than before had it, or its time is that of a
queue or of several tries."""
UNMATCHED: Final = "-"
"""Value of `group` for requests that match none."""
OUTCOME_OK: Final = "ok"
OUTCOME_FAILED: Final = "failed"
"""Values of `outcome`. A request failed if no replica answered, one answered 5xx, or one cut its answer short."""

# --- Ports -------------------------------------------------------------------------------------------------
PORT_ROUTER: Final = 8080
PORT_ROUTER_ADMIN: Final = 9090
PORT_OPERATOR_HEALTH: Final = 8081
PORT_OPERATOR_METRICS: Final = 8082
PORT_PICKER: Final = 9002
PORT_PICKER_HEALTH: Final = 9003
PORT_ENGINE: Final = 8000

HIT_RATE_SECONDS = 300
"""The window of the hit rate in a group's status."""
