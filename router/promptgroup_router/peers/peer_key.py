"""Reads the key that routers share from a file that may appear late and may change: a mounted Secret."""

from pathlib import Path

MIN_BYTES = 16
"""Bytes of the shortest key: a shorter one could be guessed."""
MAX_BYTES = 4096
"""Bytes of the longest key: a larger file is no key."""


class BadKeyError(Exception):
    """The key cannot be used. The message names the file and what is wrong with it, never its content."""


def read_key(path: Path) -> bytes:
    """Return the key, byte for byte.

    Raises:
        BadKeyError: the file is missing, too short or too long.
    """
    try:
        with path.open("rb") as file:
            secret = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise BadKeyError(f"{path} cannot be read: {error.strerror}") from None
    if not MIN_BYTES <= len(secret) <= MAX_BYTES:
        size = f"more than {MAX_BYTES}" if len(secret) > MAX_BYTES else len(secret)
        raise BadKeyError(f"{path} has {size} bytes, expected {MIN_BYTES} to {MAX_BYTES}")
    return secret
