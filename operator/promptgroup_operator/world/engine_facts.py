"""Measurements of an engine process, which are stored in an annotation of its pod and published to routers.

They are written together with the proof of warmth, so they belong to the container that the proof names. A number is 0
where it is unknown. Routers distribute requests by these numbers: too low a rate costs little, too high a one overloads
a replica, so an uncertain number is rounded down, or left unknown.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

MIN_UNCACHED = 256
"""Minimum number of computed tokens for a measurement of prefill: below it, most of the time is request overhead."""
MIN_COPIED = 256
"""Minimum number of copied tokens for a measurement of copies, for the same reason."""
MAX_CACHED_SHARE = 0.1
"""Largest share of a cold request's prompt that may come from cache; beyond it the engine was not cold."""
MAX_NUMBER = 10**12
"""Maximum of a valid number, above any real engine: a larger one was not measured, and some readers cannot store it."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Numbers of one engine, or of several of a revision; 0 is unknown."""

    kv_tokens: int = 0
    """Capacity of the replica's KV cache in tokens; for an engine with data-parallel ranks, that of one rank."""
    prefill_rate: int = 0
    """Prefill rate in prompt tokens per second at the start of a context, likewise per rank."""
    prefix_tokens: int = 0
    """Length of the Tier-1 prefix."""
    copy_rate: int = 0
    """Tokens per second loaded from a KV tier, measured when a warm-up's Tier-1 prefix was cached there."""


UNKNOWN: Final = Measured()
"""The value without any measurement."""


def prefill_rate(prompt_tokens: int, cached_tokens: int | None, seconds: float) -> int:
    """Return the prefill rate from one request to an idle engine, rounded down to two digits; 0 if unknown.

    The time is measured by the client: it includes connection, template, tokenizer and the one output token.

    Args:
        prompt_tokens: tokens of the prompt.
        cached_tokens: tokens of it served from cache; None when the engine does not report it.
        seconds: from the first byte sent to the last one received.
    """
    if cached_tokens is None or seconds <= 0 or cached_tokens > MAX_CACHED_SHARE * prompt_tokens:
        return 0
    computed = prompt_tokens - cached_tokens
    if computed < MIN_UNCACHED:
        return 0
    return _rounded(computed / seconds)


def copy_rate(copied_tokens: int, seconds: float) -> int:
    """Return the tokens per second that a KV tier loaded for one request, rounded down to two digits; 0 if unknown.

    The time includes latency and all other waiting of the request.

    Args:
        copied_tokens: tokens of the prompt that were loaded from the tier.
        seconds: from the first byte sent to the last one received.
    """
    return _rounded(copied_tokens / seconds) if seconds > 0 and copied_tokens >= MIN_COPIED else 0


def _rounded(rate: float) -> int:
    whole = int(min(rate, MAX_NUMBER))
    unit = int("1".ljust(len(str(whole)) - 1, "0"))
    return whole // unit * unit


def completed(fresh: Measured, earlier: Measured) -> Measured:
    """Return `fresh`, with unknown numbers filled from an earlier measurement of the same process."""
    return Measured(
        fresh.kv_tokens or earlier.kv_tokens,
        fresh.prefill_rate or earlier.prefill_rate,
        fresh.prefix_tokens or earlier.prefix_tokens,
        fresh.copy_rate or earlier.copy_rate,
    )


def together(result: Iterable[Measured]) -> Measured:
    """Combine measurements of a revision's engines: the lowest capacity and rates, the longest prefix; 0 is ignored."""
    item = tuple(result)
    return Measured(
        kv_tokens=min((one.kv_tokens for one in item if one.kv_tokens), default=0),
        prefill_rate=min((one.prefill_rate for one in item if one.prefill_rate), default=0),
        prefix_tokens=max((one.prefix_tokens for one in item), default=0),
        copy_rate=min((one.copy_rate for one in item if one.copy_rate), default=0),
    )


def of_replica(rank: Measured, ranks: int) -> Measured:
    """Return the measurements of a whole engine with data-parallel ranks from those of one rank."""
    return replace(rank, kv_tokens=rank.kv_tokens * ranks, prefill_rate=rank.prefill_rate * ranks)


def encode(measured: Measured) -> str:
    """Encode the annotation: compact JSON of the measured numbers."""
    fields = {
        "kvTokens": measured.kv_tokens,
        "prefillTokensPerSecond": measured.prefill_rate,
        "prefixTokens": measured.prefix_tokens,
        "copyTokensPerSecond": measured.copy_rate,
    }
    return json.dumps({key: value for key, value in fields.items() if value}, separators=(",", ":"))


def decode(annotation: str) -> Measured:
    """Decode a pod's annotation. One that cannot be parsed counts as absent."""
    try:
        data = json.loads(annotation)
    except (ValueError, RecursionError):
        return UNKNOWN
    if not isinstance(data, dict):
        return UNKNOWN
    return Measured(
        kv_tokens=_number(data, "kvTokens"),
        prefill_rate=_number(data, "prefillTokensPerSecond"),
        prefix_tokens=_number(data, "prefixTokens"),
        copy_rate=_number(data, "copyTokensPerSecond"),
    )


def _number(data: Mapping[str, Any], key: str) -> int:
    value = data.get(key)
    return value if type(value) is int and 0 <= value <= MAX_NUMBER else 0
