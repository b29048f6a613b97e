"""Tells what a request computed anew although an engine of the group had computed it before, and why.

What repeats is the declared prefix, and the history that the session's last turn left in a cache. Of a session that no
record is kept of, only the declared prefix counts: nobody knows that its history was ever computed.

| cause      | when                                                                                     |
|------------|------------------------------------------------------------------------------------------|
| `moved`    | another slot served the session last                                                     |
| `replaced` | the slot's process is another one than at the session's last turn: its cache began empty  |
| `cold`     | the replica was not known to hold the declared prefix: it is lent, or has just begun      |
| `evicted`  | the same process held it: blocks were evicted, or the client changed what it had sent     |

What was evicted has a distance: the tokens that other requests used on its replica since. A memory of that many tokens
would hold it still. Of these tokens some were written since, which is known, and others were found, which are no more
than the cache holds: so the distance is at most what was written and one cache.
"""

import math
from typing import Final, NamedTuple

from promptgroup_contract import names
from promptgroup_router.apis.usage import Usage
from promptgroup_router.policy.balancer import Pick

MOVED: Final = "moved"
REPLACED: Final = "replaced"
COLD: Final = "cold"
EVICTED: Final = "evicted"

UNLIKELY = 0.1
"""Share of a cache below which so little was written that nothing can have been evicted for it: rather the client has
changed what it had sent."""
SLACK_TOKENS = 64
"""Tokens that may be missing without a cause: hits end with a whole block, and four blocks of 16 are usual."""
SLACK_SHARE = 0.05
"""Share of what repeats that may be missing without a cause: lengths are estimates, and answers are tokenized anew."""


class Miss(NamedTuple):
    """Tokens of a prompt that were computed anew."""

    tokens: float
    seconds: float
    """Seconds of prefill that they took, by the replica's measured rate."""
    cause: str
    within: str
    """One of EVICTED_WITHIN; what has another cause than EVICTED, and what nobody knows, is in the last."""


def find_miss(pick: Pick, usage: Usage) -> Miss | None:
    """Return what a request missed; None if it found what repeats, or its engine does not tell what it found."""
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
    """Return the tokens of a request's prompt that its group's engines had computed before, as far as is known."""
    demand, before = pick.demand, pick.before
    repeats = float(demand.tier1)
    if before is not None and demand.prompt:
        history = demand.history * usage.prompt_tokens / demand.prompt
        repeats = max(repeats, min(history, before.tokens))
    return min(repeats, float(usage.prompt_tokens))


def expect_miss(pick: Pick) -> Miss | None:
    """Return what a request is expected to miss on its replica; None if that should hold all that repeats."""
    demand, before = pick.demand, pick.before
    repeats = float(max(demand.tier1, min(demand.history, before.tokens) if before is not None else 0))
    lost = repeats - pick.cached
    if not demand.recorded or lost <= SLACK_TOKENS + SLACK_SHARE * repeats:
        return None
    return Miss(lost, pick.replica.costs.prefill(pick.cached, repeats), *_cause(pick))


def miss_cause(pick: Pick) -> str:
    """Return the cause for which a replica does not find what repeats, as far as it is known."""
    return _cause(pick)[0]


def seconds_saved(pick: Pick, usage: Usage) -> float:
    """Return the seconds of prefill that the tokens found in cache would have taken, by the replica's measured rate."""
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
    """Return the band of what was used last before so many tokens were written, in caches of so many."""
    if math.isinf(cache) or written < UNLIKELY * cache:
        return names.EVICTED_WITHIN[-1]
    caches = 1 + written / cache
    return next((band for band in names.EVICTED_WITHIN[:-1] if caches <= float(band)), names.EVICTED_WITHIN[-1])
