"""Facts measured of an engine process, which are kept on its pod and published to routers.

It is written with the proof of warmth, so it speaks of the container that the proof names. A number is 0 where nobody
knows it. Routers share out work by these numbers: too low a rate costs little, too high a one overloads a replica, so
every doubt makes a number smaller, or unknown.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

MIN_UNCACHED = 256
"""Fewest computed tokens whose time says something of prefill: under it, a request's overhead is most of it."""
MIN_COPIED = 256
"""Fewest copied tokens whose time says something of copies, for the same reason."""
MAX_CACHED_SHARE = 0.1
"""Largest share of a cold request's prompt that may come from cache; beyond it the engine was not cold."""
MAX_NUMBER = 10**12
"""Beyond any engine: a larger number on a pod was not measured, and would not fit every reader of a route."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Numbers of one engine, or of several of a revision; 0 is unknown."""

    kv_tokens: int = 0
    """Tokens of KV cache that the replica has; of an engine with data-parallel ranks, that a rank has."""
    prefill_rate: int = 0
    """Prompt tokens a second at the start of a context, of a rank likewise."""
    prefix_tokens: int = 0
    """Length of the Tier-1 prefix."""
    copy_rate: int = 0
    """Tokens a second that a KV tier brought, when a warm-up found the Tier-1 prefix there."""


UNKNOWN: Final = Measured()
"""Nothing."""


def prefill_rate(prompt_tokens: int, cached_tokens: int | None, seconds: float) -> int:
    """Return tokens per second of a request that an idle engine computed, rounded down to two digits; 0 if unknown.

    The time is the client's: connection, template, tokenizer and the one output token count against the rate.

    Args:
        prompt_tokens: tokens of the prompt.
        cached_tokens: tokens of it found in cache; None when the engine does not say.
        seconds: from the first byte sent to the last one received.
    """
    if cached_tokens is None or seconds <= 0 or cached_tokens > MAX_CACHED_SHARE * prompt_tokens:
        return 0
    computed = prompt_tokens - cached_tokens
    if computed < MIN_UNCACHED:
        return 0
    return _rounded(computed / seconds)


def copy_rate(copied_tokens: int, seconds: float) -> int:
    """Return tokens per second of a request that a KV tier answered, rounded down to two digits; 0 if unknown.

    Latency and all else that the request waited for count against the rate.

    Args:
        copied_tokens: tokens of the prompt that the tier brought.
        seconds: from the first byte sent to the last one received.
    """
    return _rounded(copied_tokens / seconds) if seconds > 0 and copied_tokens >= MIN_COPIED else 0


def _rounded(rate: float) -> int:
    whole = int(min(rate, MAX_NUMBER))
    unit = int("1".ljust(len(str(whole)) - 1, "0"))
    return whole // unit * unit


def completed(fresh: Measured, known: Measured) -> Measured:
    """Return `fresh`, and where that knows nothing what was known of the same process before."""
    return Measured(
        fresh.kv_tokens or known.kv_tokens,
        fresh.prefill_rate or known.prefill_rate,
        fresh.prefix_tokens or known.prefix_tokens,
        fresh.copy_rate or known.copy_rate,
    )


def together(result: Iterable[Measured]) -> Measured:
    """Return what holds for every engine of a revision: the least capacity, the longest count; 0 is left out."""
    item = tuple(result)
    return Measured(
        kv_tokens=min((one.kv_tokens for one in item if one.kv_tokens), default=0),
        prefill_rate=min((one.prefill_rate for one in item if one.prefill_rate), default=0),
        prefix_tokens=max((one.prefix_tokens for one in item), default=0),
        copy_rate=min((one.copy_rate for one in item if one.copy_rate), default=0),
    )


def of_replica(rank: Measured, ranks: int) -> Measured:
    """Return the measurements of an engine with so many data-parallel ranks from those of one of them."""
    return replace(rank, kv_tokens=rank.kv_tokens * ranks, prefill_rate=rank.prefill_rate * ranks)


def encode(measured: Measured) -> str:
    """Encode the annotation: compact JSON of what is known."""
    fields = {
        "kvTokens": measured.kv_tokens,
        "prefillTokensPerSecond": measured.prefill_rate,
        "prefixTokens": measured.prefix_tokens,
        "copyTokensPerSecond": measured.copy_rate,
    }
    return json.dumps({key: value for key, value in fields.items() if value}, separators=(",", ":"))


def decode(annotation: str) -> Measured:
    """Decode a pod's annotation. One that cannot be read is as good as absent."""
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
