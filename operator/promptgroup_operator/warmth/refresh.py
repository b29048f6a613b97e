"""Decides which warm replicas to refresh, and evaluates the responses to refreshes.

A refresh repeats the probe of the proof: tools, system text, one output token. An engine with the prefix in its cache
computes a few tokens for it and marks the prefix as most recently used; otherwise it recomputes the prefix. Engines
report neither an eviction nor a reset, but their counters limit the tokens that can have been evicted.

Caches evict the least recently used block that no request uses. After a refresh the prefix is the last of the `free`
blocks, so it is evicted only after all the others. A block leaves that queue for a request: to be filled with a
computed prompt token or an output token, or because of a cache hit. Hence

    (queries + generated) since the refresh < free - prefix        →  the prefix is in cache

with `free = kv_tokens * (1 - usage)` at the refresh. If a replica keeps several prefixes warm, the refresh of one moves
it behind the others and writes nothing new: so refreshes are excluded from the queries, and `prefix` is the sum of all
prefixes. The refresh is due at MARGIN of the bound: if readings are more frequent than the turnover of the cache, the
prefix is never evicted. The bound does not cover a reset of the cache; a slow regular refresh detects it.

An engine with data-parallel ranks has a cache per rank. All are refreshed when the busiest one requires it: the bound
is that of one cache, and `queries` and `generated` are those of its rank.

counters since the last refresh           refresh
were reset (another process)              at once
MARGIN of the bound is reached            at once
otherwise, or the size is not known       `every` after it, less up to SPREAD of that by the container's id

A pass also runs what is due within EARLY of `every` after it. So the refreshes of a group are run by the passes that it
has at rest in any case, where each of them would need one of its own.
"""

import zlib
from datetime import datetime, timedelta

from promptgroup_contract.table import Prompt
from promptgroup_operator.adapters import identity
from promptgroup_operator.api.prompt_group import PromptGroupSpec, WarmTier
from promptgroup_operator.world.snapshot import LastSeen, Pod, Reading
from promptgroup_operator.world.warming import Outcome, Refresh, RefreshAnswer, WarmReason

MARGIN = 0.5
"""Share of the bound at which a prefix is refreshed: blocks are filled in part, and a reading is seconds old."""
SPREAD = 0.3
"""Share of the regular interval by which the refreshes of containers differ: those that were proven together are not
refreshed together."""
EARLY = 0.2
"""Share of the regular interval by which a refresh may run before it is due. Of the default, 300 seconds, it is as much
as lies between two passes at rest; with SPREAD it is half of the interval."""
REMEMBERED = timedelta(hours=1)
"""Time for which a loss is reported. Two losses within it mean that the cache is too small."""

TOUCHED = frozenset({WarmReason.PROVEN, WarmReason.EVICTED, WarmReason.PRESSED})
"""Reasons of a warm replica whose prefix can be verified: not one accepted without proof, or with a short prefix."""


def due_refresh(pod: Pod, prompt: Prompt, spec: PromptGroupSpec, every: timedelta, now: datetime) -> Refresh | None:
    """Return the refresh that the replica needs, if it is due."""
    due = due_at(pod, every)
    if due is None or due > now + EARLY * every or pod.last_seen is None or pod.warm is None:
        return None
    adapter = identity.decode(prompt.adapter)
    return Refresh(
        pod=pod.name,
        uid=pod.uid,
        container_id=pod.container_id,
        address=pod.address,
        engine=spec.engine.type,
        model=spec.model,
        prompt=prompt,
        prefix=pod.measured.prefix_tokens,
        needed=_needed(pod.measured.prefix_tokens, pod.last_seen.last.step),
        any_tier=spec.warmup.tier is WarmTier.ANY,
        condition=pod.warm,
        last_seen=pod.last_seen,
        fingerprint=pod.fingerprint,
        shared=spec.is_guest,
        crowd=pod.crowd,
        ranks=pod.ranks,
        adapter=adapter,
        loads=adapter if spec.is_guest else None,
    )


def due_at(pod: Pod, every: timedelta) -> datetime | None:
    """Return the time at which a refresh is due; None for a replica that is cold, drains, or has no such prefix."""
    if not pod.is_warm or pod.draining_since is not None or pod.warm is None or pod.warm.reason not in TOUCHED:
        return None
    seen = pod.last_seen
    if seen is None or _needed(pod.measured.prefix_tokens, seen.last.step) == 0:
        return None
    if _began_anew(seen.then, seen.last):
        return seen.at
    # Prefixes that evict each other would cause each other's refreshes.
    outgrown = 2 * pod.crowd > seen.then.kv_tokens / pod.ranks > 0
    if not outgrown and pressed(seen.then, seen.last, max(pod.crowd, pod.measured.prefix_tokens)):
        return seen.at
    return seen.at + _interval(pod, every)


def next_at(pod: Pod, every: timedelta, now: datetime) -> datetime | None:
    """Return the time at which a replica needs a pass for its next refresh, beside one that this pass runs."""
    due = due_at(pod, every)
    if due is None or due > now + EARLY * every:
        return due
    return now + _interval(pod, every)


def _interval(pod: Pod, every: timedelta) -> timedelta:
    return every * (1 - SPREAD * zlib.crc32(pod.container_id.encode()) / 2**32)


def pressed(then: Reading, last: Reading, prefix: int) -> bool:
    """Return True if the engine wrote so much since `then` that the prefix may be evicted, or soon will be."""
    own = last.own_queries - then.own_queries
    ranks = max(1, len(then.by_rank))
    if ranks > 1 and len(last.by_rank) == ranks:
        # the busiest rank; each of the operator's own requests went to each of them
        taken = max(now - before for before, now in zip(then.by_rank, last.by_rank, strict=True)) - own / ranks
    else:
        taken = last.queries - then.queries - own + last.generated - then.generated
    if not then.kv_tokens or taken <= 0:
        return False
    return taken >= MARGIN * (then.kv_tokens / ranks * (1 - then.usage) - prefix)


def judge_answer(refresh: Refresh, refresh_answer: RefreshAnswer, now: datetime) -> Outcome | None:
    """Return the replica's condition after the refresh; None if it does not change. The replica stays in service.

    cached tokens       recent loss   pressed   at the end     condition
    not reported        -             -         -              unchanged
    sufficient          yes           -         -              unchanged
    sufficient          no            -         -              PrefixCached
    less                any           any       evicted again  PrefixEvictedUnderPressure
    less                yes           yes       cached         PrefixEvictedUnderPressure
    less                otherwise               cached         PrefixEvicted
    """
    if refresh_answer.cached is None or refresh_answer.then is None:
        return None
    lost = _lost_lately(refresh, now)
    if refresh_answer.cached >= refresh.needed:
        if lost or refresh.condition.reason == WarmReason.PROVEN:
            return None
        return Outcome(WarmReason.PROVEN, f"{refresh_answer.cached} of {refresh.prefix} prefix tokens are in cache")
    gone = f"{refresh_answer.cached} of {refresh.prefix} prefix tokens were left in cache"
    again = (
        f"copied from a KV tier ({refresh_answer.copied} tokens) or computed again"
        if refresh_answer.copied
        else "computed again"
    )
    if refresh_answer.then < refresh.needed:
        return Outcome(
            WarmReason.PRESSED,
            f"{gone}; the rest was {again} and evicted at once: the KV cache is too small for what runs",
        )
    if not refresh_answer.reading.kv_tokens:
        return Outcome(
            WarmReason.EVICTED, f"{gone}; the rest was {again}. The engine does not report the size of its cache"
        )
    if not pressed(refresh.last_seen.then, refresh_answer.reading, max(refresh.crowd, refresh.prefix)):
        return Outcome(
            WarmReason.EVICTED,
            f"{gone} without pressure (the cache was reset); the rest was {again}",
        )
    if not lost:
        return Outcome(WarmReason.EVICTED, f"{gone}: other requests evicted the rest, which was {again}")
    return Outcome(
        WarmReason.PRESSED,
        f"{gone}, for the second time within an hour; the rest was {again}. The KV cache is too small for the "
        "live sessions: add replicas, or give the cache more memory",
    )


def seen_after(refresh: Refresh, refresh_answer: RefreshAnswer, took: timedelta, now: datetime) -> LastSeen:
    """Return the state of the prefix after the refresh, which took the time `took`."""
    if _is_lost(refresh, refresh_answer):
        return LastSeen(now, refresh_answer.reading, refresh_answer.reading, now, took.total_seconds())
    return LastSeen(
        now, refresh_answer.reading, refresh_answer.reading, refresh.last_seen.lost, refresh.last_seen.rewarmed_in
    )


def first_seen(pod: Pod, reading: Reading, now: datetime) -> LastSeen:
    """Return the state of the prefix of a replica that was proven warm, before this process has refreshed it."""
    is_gone = pod.warm is not None and pod.warm.reason in (WarmReason.EVICTED, WarmReason.PRESSED)
    return LastSeen(now, reading, reading, now if is_gone else None)


def _is_lost(refresh: Refresh, refresh_answer: RefreshAnswer) -> bool:
    return refresh_answer.cached is not None and refresh_answer.cached < refresh.needed


def _lost_lately(refresh: Refresh, now: datetime) -> bool:
    return refresh.last_seen.lost is not None and now - refresh.last_seen.lost < REMEMBERED


def _needed(prefix: int, step: int) -> int:
    return prefix // step * step


def _began_anew(then: Reading, last: Reading) -> bool:
    return last.queries < then.queries or last.generated < then.generated
