"""The answers of `promptgroup probe` as text. Does no I/O."""

import json
import math

from promptgroup_cli.forecast.measured import Between, ReplicaFigures, is_sure
from promptgroup_cli.render.columns import fact


def table(found: ReplicaFigures, busy: float) -> str:
    """Return the figures for people.

    Args:
        found: the figures.
        busy: requests that the replica worked on before.
    """
    lines = [
        *fact("Prefill", f"{_rate(found.rate, found.between)}, after {found.start * 1000:,.1f} ms of each request"),
        *fact("KV cache", f"{found.kv_tokens:,} tokens" if found.kv_tokens else "not told by the engine"),
    ]
    if found.tier is not None:
        pays = (
            "never pays" if math.isinf(found.tier.break_even) else f"pays from {found.tier.break_even:,.0f} tokens on"
        )
        latency = f"{found.tier.latency * 1000:,.1f} ms before the first"
        lines += fact("KV tier", f"{_rate(found.tier.rate, found.tier.between)}, {latency}; a copy {pays}")
    fits = [(found.error, found.between), *([(found.tier.error, found.tier.between)] if found.tier is not None else [])]
    far = max(error for error, _ in fits)
    doubt = "" if all(is_sure(*each) for each in fits) else "; do not rely on it: use longer --tokens, more --repeat"
    near = f"the fastest request of each length is within {far:.0%} of the line"
    lines += fact("Fit", f"{near}; the rates in brackets leave one length out{doubt}")
    if busy:
        lines += fact("Mind", f"{busy:.0f} requests were running: these are the figures of a busy replica")
    return "\n".join(lines)


def span(between: Between) -> str:
    """Return the lowest and the highest rate for people."""
    low, high = between
    return f"at least {low:,.0f}" if math.isinf(high) else f"{low:,.0f} to {high:,.0f}"


def bounds(between: Between) -> list[float | None]:
    """Return the lowest and the highest rate for programs; None for a highest without bound."""
    return [None if math.isinf(each) else round(each, 1) for each in between]


def _rate(rate: float, between: Between) -> str:
    return f"{rate:,.0f} tokens/s ({span(between)})"


def document(found: ReplicaFigures, busy: float) -> str:
    """Return the figures for programs; `promptgroup size --measured` reads them."""
    tier = found.tier
    told = {
        "prefillTokensPerSecond": round(found.rate, 1),
        "prefillBetween": bounds(found.between),
        "startSeconds": round(found.start, 6),
        "kvTokens": found.kv_tokens,
        "error": round(found.error, 3),
        "requestsRunning": busy,
        "tier": None
        if tier is None
        else {
            "tokensPerSecond": round(tier.rate, 1),
            "between": bounds(tier.between),
            "latencySeconds": round(tier.latency, 6),
            "error": round(tier.error, 3),
            "breakEvenTokens": None if math.isinf(tier.break_even) else round(tier.break_even),
        },
    }
    return json.dumps(told, indent=2)
