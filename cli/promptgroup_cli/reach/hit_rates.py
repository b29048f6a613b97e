"""Describes the hit rate in the status of a group, with its window."""

from promptgroup_contract.names import HIT_RATE_SECONDS

WINDOW_WORDS = f"{HIT_RATE_SECONDS // 60} min"


def status_hit_rate(share: float | None) -> str:
    """Return the sentence on a hit rate of 0 to 1; None where it is unknown."""
    if share is None:
        return "not known yet"
    return f"{share:.0%} of the prompt tokens of the last {WINDOW_WORDS}"


def share_of(percent: str) -> float | None:
    """Return the share of 0 to 1 that a status writes as in 93%; None for an empty text."""
    return int(percent.removesuffix("%")) / 100 if percent else None
