"""Judges each header field that a supported engine reads, by name.

`headerreads` finds them in the sources of vLLM 0.32 and 0.33 and SGLang 0.5.23. The main branch of TensorRT-LLM, as of
November 2026, and the servers that are compiled (vLLM's `vllm-rs`, SGLang's `_server`) were read beside them. A test of
real engines fails on a field that is not here.
"""

from typing import NamedTuple


class Judged(NamedTuple):
    """What becomes of a field that clients send."""

    passes: bool
    """True if engines get the client's."""
    why: str


JUDGED = {
    "accept": Judged(True, "says which form of answer the client reads"),
    "content-type": Judged(True, "says what the body is: JSON or a form"),
    "traceparent": Judged(True, "names the client's trace, unless the router records a span of its own"),
    "tracestate": Judged(True, "belongs to it"),
    "accept-encoding": Judged(True, "says what the client can decode, unless the answer is rewritten on its way"),
    "user-agent": Judged(True, "names the client's program in logs"),
    "authorization": Judged(False, "is a credential: engines get it where access.passCredentials says so"),
    "x-api-key": Judged(False, "is a credential, too"),
    "x-request-id": Judged(
        False, "vLLM, all: the id of the request within the engine, of which the router sends its own"
    ),
    "content-length": Judged(False, "is the router's own, of the body that it sends"),
    "x-body-compressed": Judged(False, "SGLang: another body than the router has read"),
    "x-data-parallel-rank": Judged(False, "vLLM, SGLang: the rank that serves the request"),
    "x-vllm-priority": Judged(False, "vLLM: who goes first"),
    "x-session-id": Judged(False, "vLLM, TensorRT-LLM: the session of the engine's events and ranks"),
    "x-correlation-id": Judged(False, "TensorRT-LLM: the conversation by which a rank is chosen"),
    "x-session-affinity": Judged(False, "TensorRT-LLM: the same"),
    "x-multi-turn-session-id": Judged(False, "TensorRT-LLM: the same"),
    "x-trtllm-disagg-auth": Judged(False, "TensorRT-LLM: signs where a cache is fetched from"),
    "x-trtllm-rl-control-auth": Judged(False, "TensorRT-LLM: signs orders to free memory or replace weights"),
    "x-trtllm-runtime-control-auth": Judged(False, "TensorRT-LLM: the same of the memory at run time"),
    "x-trtllm-runtime-control-nonce": Judged(False, "TensorRT-LLM: belongs to it"),
    "x-trtllm-runtime-control-timestamp": Judged(False, "TensorRT-LLM: belongs to it"),
    "x-trtllm-snapshot-validation": Judged(False, "TensorRT-LLM: the token of who checks a snapshot"),
    "endpoint-load-metrics-format": Judged(False, "vLLM: use of the cache and the queue, which groups share"),
    "x-smg-routing-key": Judged(False, "SGLang: a key of its router, which is logged and labels metrics"),
    "x-custom-labels": Judged(False, "SGLang: labels of metrics"),
    "x-sglext-return-input-ids": Judged(False, "SGLang: the tokens of the whole prompt, of a secret one, too"),
    "x-sglext-return-output-ids": Judged(False, "SGLang: the tokens of the answer"),
    "x-sglext-ids-framed": Judged(False, "SGLang: the form in which it hands out tokens"),
    "x-override-rid": Judged(False, "SGLang: the id by which a request can be aborted"),
    "x-override-bootstrap-host": Judged(False, "SGLang: an address that the engine connects to"),
    "x-override-bootstrap-port": Judged(False, "SGLang: its port"),
    "x-override-bootstrap-room": Judged(False, "SGLang: the cache that is fetched from there"),
    "x-override-conversation-id": Judged(False, "SGLang: the conversation that the request is counted to"),
    "x-override-routed-dp-rank": Judged(False, "SGLang: the rank that serves the request"),
    "x-override-disagg-prefill-dp-rank": Judged(False, "SGLang: the rank that computes its prompt"),
    "x-override-priority": Judged(False, "SGLang: who goes first"),
}
"""Name, in lower case → the judgement."""
NOT_OF_REQUESTS = frozenset(
    (
        "location",  # SGLang, of an answer that it has fetched
        "metadata",  # vLLM, the header of a tensor file
        "x-anthropic-billing-header",  # vLLM, a line of a system prompt
        "x-exa-integration",  # SGLang, of its requests to a search engine
    )
)
"""Names that stand in the sources and are of no request that an engine gets."""
FROM_ENGINES = (
    *("endpoint-load-metrics", "server", "x-sglext-ids", "set-cookie", "x-process-time"),
    *("server-timing", "x-trtllm-step-metrics", "x-trtllm-server-state"),
)
"""Fields that engines and what stands in front of them put on answers, and that no client gets."""
