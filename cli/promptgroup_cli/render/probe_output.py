"""The answers of `promptgroup probe` as text. Does no I/O."""

import json
import math

from promptgroup_cli.forecast.measured import ReplicaFigures
from promptgroup_cli.render.columns import fact

UNSURE = 0.25
"""Distance from the line, as a share of a request's time, from which on it is no line."""


def table(found: ReplicaFigures, busy: float) -> str:
    """Return the figures for people.

    Args:
        found: the figures.
        busy: requests that the replica worked on before.
    """
    lines = [
        *fact("Prefill", f"{found.rate:,.0f} tokens/s, after {found.start * 1000:,.1f} ms of each request"),
        *fact("KV cache", f"{found.kv_tokens:,} tokens" if found.kv_tokens else "not told by the engine"),
    ]
    if found.tier is not None:
        pays = (
            "never pays" if math.isinf(found.tier.break_even) else f"pays from {found.tier.break_even:,.0f} tokens on"
        )
        text = f"{found.tier.rate:,.0f} tokens/s, {found.tier.latency * 1000:,.1f} ms before the first; a copy {pays}"
        lines += fact("KV tier", text)
    errors = [found.error, *([found.tier.error] if found.tier is not None else [])]
    doubt = ", too far from it to rely on: use longer --tokens, more --repeat" if max(errors) > UNSURE else ""
    lines += fact("Fit", f"the fastest request of each length is within {max(errors):.0%} of the line{doubt}")
    if busy:
        lines += fact("Mind", f"{busy:.0f} requests were running: these are the figures of a busy replica")
    return "\n".join(lines)


def document(found: ReplicaFigures, busy: float) -> str:
    """Return the figures for programs; `promptgroup size --measured` reads them."""
    tier = found.tier
    told = {
        "prefillTokensPerSecond": round(found.rate, 1),
        "startSeconds": round(found.start, 6),
        "kvTokens": found.kv_tokens,
        "error": round(found.error, 3),
        "requestsRunning": busy,
        "tier": None
        if tier is None
        else {
            "tokensPerSecond": round(tier.rate, 1),
            "latencySeconds": round(tier.latency, 6),
            "error": round(tier.error, 3),
            "breakEvenTokens": None if math.isinf(tier.break_even) else round(tier.break_even),
        },
    }
    return json.dumps(told, indent=2)
