"""Times as Kubernetes writes them (RFC 3339, in UTC, to the second)."""

from datetime import UTC, datetime

FIRST, LAST = datetime(2000, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
"""The range of accepted times: any duration of the API can be added to them and subtracted from them."""


def parse_time(text: str | None) -> datetime | None:
    """Parse a time as Kubernetes writes it; None without a time, or if it is malformed or not from FIRST to LAST."""
    if not text:
        return None
    try:
        at = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return at if FIRST <= at <= LAST else None


def rfc3339(at: datetime) -> str:
    """Format a time in UTC as Kubernetes writes it, to the second."""
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"
