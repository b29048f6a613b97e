"""Computes the cache misses of a request: tokens computed anew that an engine of the group had computed before.

The repeated tokens are the declared prefix, and the history that the session's last turn left in a cache. For a session
without a record only the declared prefix counts, because its history may never have been computed.

| cause      | when                                                                                     |
|------------|------------------------------------------------------------------------------------------|
| `moved`    | another slot served the session last                                                     |
| `replaced` | the slot has another process than at the session's last turn: its cache began empty      |
| `cold`     | the replica was not known to cache the declared prefix: it is lent, or has just started  |
| `evicted`  | the same process had cached it: blocks were evicted, or the client changed the prompt    |

Evicted tokens have a reuse distance: the tokens that other requests have used on the replica since. A cache of that
many tokens would still hold them. Some of these tokens were written since, and their number is recorded. The others
were cache hits, and they are no more than the cache holds: so the distance is at most the written tokens plus one
cache.
"""

import math
from typing import Final, NamedTuple

from promptgroup_contract import names
from promptgroup_router.apis.usage import Usage
from promptgroup_router.placement.pick import Pick

MOVED: Final = "moved"
REPLACED: Final = "replaced"
COLD: Final = "cold"
EVICTED: Final = "evicted"

UNLIKELY = 0.1
"""Share of a cache below which so little was written that it cannot have caused an eviction: it is more likely that
the client has changed the prompt."""
SLACK_TOKENS = 64
"""Tokens that may be missing without a cause: hits end with a whole block, and four blocks of 16 are usual."""
SLACK_SHARE = 0.05
"""Share of the repeated tokens that may be missing without a cause: lengths are estimates, and answers are tokenized
anew."""


class Miss(NamedTuple):
    """Tokens of a prompt that were computed anew."""

    tokens: float
    seconds: float
    """Predicted seconds of prefill for them, by the replica's learned rate."""
    cause: str
    within: str
    """One of EVICTED_WITHIN; the last if the cause is not EVICTED or the distance is unknown."""


def find_miss(pick: Pick, usage: Usage) -> Miss | None:
    """Return the miss of a request; None if its repeated tokens were hits, or its engine does not report hits."""
    demand = pick.demand
    if usage.cached_tokens is None or not demand.recorded or not demand.prompt:
        return None
    repeats = repeated(pick, usage)
    cached = float(usage.cached_tokens)
    lost = repeats - cached
    if lost <= SLACK_TOKENS + SLACK_SHARE * repeats:
        return None
    return Miss(lost, pick.replica.costs.prefill(cached, cached + lost), *_cause(pick))


def repeated(pick: Pick, usage: Usage) -> float:
    """Return the tokens of a request's prompt that its group's engines have computed before, as far as recorded."""
    demand, before = pick.demand, pick.before
    repeats = float(demand.tier1)
    if before is not None and demand.prompt:
        history = demand.history * usage.prompt_tokens / demand.prompt
        repeats = max(repeats, min(history, before.tokens))
    return min(repeats, float(usage.prompt_tokens))


def expect_miss(pick: Pick) -> Miss | None:
    """Return the miss that is predicted for a request on its replica; None if all repeated tokens should be hits."""
    demand, before = pick.demand, pick.before
    repeats = float(max(demand.tier1, min(demand.history, before.tokens) if before is not None else 0))
    lost = repeats - pick.cached
    if not demand.recorded or lost <= SLACK_TOKENS + SLACK_SHARE * repeats:
        return None
    return Miss(lost, pick.replica.costs.prefill(pick.cached, repeats), *_cause(pick))


def miss_cause(pick: Pick) -> str:
    """Return the cause of a miss on the replica of a request, as far as it is recorded."""
    return _cause(pick)[0]


def seconds_saved(pick: Pick, usage: Usage) -> float:
    """Return the seconds of prefill that the cached tokens have saved, by the replica's learned rate."""
    costs, prompt = pick.replica.costs, float(usage.prompt_tokens)
    return costs.prefill(0.0, prompt) - costs.prefill(float(usage.cached_tokens or 0), prompt)


def _cause(pick: Pick) -> tuple[str, str]:
    before, unknown = pick.before, names.EVICTED_WITHIN[-1]
    if before is not None and before.member != pick.member.id:
        return MOVED, unknown
    if before is not None and before.seen <= pick.replica.inherited:
        return REPLACED, unknown
    if pick.cached < pick.demand.tier1:
        return COLD, unknown
    return EVICTED, _within(pick.written - before.written, pick.replica.costs.cache_tokens) if before else unknown


def _within(written: float, cache: float) -> str:
    """Return the band of a reuse distance of `written` tokens plus one cache of `cache` tokens."""
    if math.isinf(cache) or written < UNLIKELY * cache:
        return names.EVICTED_WITHIN[-1]
    caches = 1 + written / cache
    return next((band for band in names.EVICTED_WITHIN[:-1] if caches <= float(band)), names.EVICTED_WITHIN[-1])
