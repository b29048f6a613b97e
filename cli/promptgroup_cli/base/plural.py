"""Counts things in words."""


def counted(count: int, thing: str) -> str:
    """Return a count with its noun, as in `1 pod` and `1,200 pods`."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"
