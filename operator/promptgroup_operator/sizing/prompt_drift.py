"""Finds prompts that differ from the declared prefix, which no number of replicas can mend."""

from dataclasses import replace

from promptgroup_operator.sizing.max_hit_rate import expected
from promptgroup_operator.sizing.model import credited
from promptgroup_operator.world.load import GroupLoad, PromptDrift

SHARE = 0.1
"""Share of the requests from which prompt drift is reported: below it, it is an old client here and there."""
BYTES_A_TOKEN = 4
"""Bytes of English text in a token, as makers of tokenizers give it; for estimates that people read."""
LEAST_TOKENS = 64
"""Tokens of a prefix whose loss nobody notices: a few cache blocks."""


def find_drift(load: GroupLoad) -> PromptDrift | None:
    """Return where prompts leave the declared prefix, if enough of them lose enough of it; else None."""
    prompt_drift = _drifts(load)
    return prompt_drift if prompt_drift is not None and prompt_drift.share >= SHARE else None


def _drifts(load: GroupLoad) -> PromptDrift | None:
    drift = load.drift
    return drift if drift is not None and (drift.length - drift.at) / BYTES_A_TOKEN >= LEAST_TOKENS else None


def without_drift(load: GroupLoad) -> GroupLoad:
    """Return the load as if those prompts began with the declared prefix: what replicas are answerable for.

    Of a prompt that departs all is lost that comes after, the history too; and what waited, waited behind that, unless
    they are few: a drift that begins must add no replica before there is enough of it to speak of. Whether the sessions
    fit shows in hits, and these say nothing of it any more.
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
