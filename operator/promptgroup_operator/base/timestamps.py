"""Times as Kubernetes writes them (RFC 3339, in UTC, to the second)."""

from datetime import UTC, datetime


def parse_time(text: str | None) -> datetime | None:
    """Parse a time as Kubernetes writes it; None where there is none, or none that can be read."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        return None


def rfc3339(at: datetime) -> str:
    """Format a time in UTC as Kubernetes writes it, to the second."""
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"
