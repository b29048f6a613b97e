"""Loads for tests of sizing: what a case does not name is that of agents on engines of an 8B model."""

from dataclasses import replace

from promptgroup_operator.world.load import ClientLoad, EngineLoad, GroupLoad, PromptDrift
from promptgroup_operator.world.samples import Histogram


def histogram(p95: float | None) -> Histogram:
    """First tokens, 95 % of them by then; none at all when None."""
    if p95 is None:
        return Histogram((0.05, 0.1), (0.0, 0.0, 0.0))
    return Histogram((p95 / 2, p95), (500.0, 450.0, 50.0))


def load(
    requests: float = 16,
    *,
    replicas: float = 4,
    hit_rate: float = 0.94,
    usage: float = 0.15,
    sessions: float = 120,
    history: float = 2000,
    p95: float | None = 0.2,
    drift: PromptDrift | None = None,
    stale: str = "",
    **fields: object,
) -> GroupLoad:
    """A window of a minute: prompts of 10,000 tokens, 8,000 of them declared.

    Args:
        requests: per second.
        replicas: that served them.
        hit_rate: share of prompt tokens found.
        usage: share of the KV cache that running requests held.
        sessions: that are live.
        history: tokens of each beyond the declared ones.
        p95: 95th percentile of the first token in seconds.
        drift: where prompts leave the declared one.
        stale: why nothing newer is known.
        fields: further ones of Engines or of Clients.
    """
    engines = EngineLoad(
        replicas=replicas,
        coverage=1.0,
        requests=requests,
        queries=requests * 10_000,
        hits=requests * 10_000 * hit_rate,
        generated=requests * 150,
        computed=None,
        prefill_busy=None,
        decode_busy=None,
        queue_busy=None,
        running=1.5 * requests,
        waiting=0.0,
        usage=usage,
        preemptions=0.0,
        first_token=histogram(p95),
        kv_tokens=400_000,
        prefill_rate=10_000.0,
    )
    clients = ClientLoad(
        requests=requests,
        errors=0.0,
        prompt_tokens=requests * 10_000,
        sessions=sessions,
        session_tokens=sessions * history,
        declared_tokens=8000,
        first_token=histogram(p95),
        opening=0.1,
    )
    theirs = {name: value for name, value in fields.items() if name in ClientLoad.__slots__}
    rest = {name: value for name, value in fields.items() if name not in ClientLoad.__slots__}
    return GroupLoad(60.0, replace(engines, **rest), replace(clients, **theirs), drift, stale)
