"""Detects prompts that differ from the declared prefix, a problem that more replicas cannot solve."""

from dataclasses import replace

from promptgroup_operator.sizing.max_hit_rate import expected
from promptgroup_operator.sizing.model import credited
from promptgroup_operator.world.load import GroupLoad, PromptDrift

SHARE = 0.1
"""Minimum share of the requests for which prompt drift is reported: a smaller share is a few outdated clients."""
BYTES_A_TOKEN = 4
"""Bytes of English text per token, as tokenizer vendors document it; for estimates in messages."""
LEAST_TOKENS = 64
"""Minimum number of lost tokens of the prefix that counts as drift: fewer are a few cache blocks."""


def find_drift(load: GroupLoad) -> PromptDrift | None:
    """Return where prompts differ from the declared prefix, if enough prompts lose enough of it; else None."""
    prompt_drift = _drifts(load)
    return prompt_drift if prompt_drift is not None and prompt_drift.share >= SHARE else None


def _drifts(load: GroupLoad) -> PromptDrift | None:
    drift = load.drift
    return drift if drift is not None and (drift.length - drift.at) / BYTES_A_TOKEN >= LEAST_TOKENS else None


def without_drift(load: GroupLoad) -> GroupLoad:
    """Return the load as if all prompts began with the declared prefix, that is, without the load that drift causes.

    A prompt that differs misses the cache for all that follows, including the history. Waiting requests are attributed
    to drift and removed, unless the drift is below SHARE: then only hits are added, so that a beginning drift adds no
    replica. The size of the sessions is removed as well, since hits do not show any more if the sessions fit.
    """
    prompt_drift, engines, share = _drifts(load), load.engines, expected(load)
    if prompt_drift is None or engines is None or share is None:
        return load
    most = share * engines.queries
    hits = min(most, engines.hits + prompt_drift.share * most)
    if find_drift(load) is None:
        return replace(load, engines=replace(engines, hits=max(hits, engines.hits)))
    group_load = credited(load, hits)
    if group_load is load or group_load.engines is None:
        return load
    clients = replace(group_load.clients, held=0.0, session_tokens=None) if group_load.clients is not None else None
    return replace(group_load, engines=replace(group_load.engines, waiting=0.0), clients=clients)
