"""Shows addresses to people."""

from urllib.parse import urlsplit


def redacted_url(url: str) -> str:
    """Return the address as people may see it: without user, password and query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")
