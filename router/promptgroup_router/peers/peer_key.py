"""The key that routers share, in a file that may come late and may change: a mounted Secret."""

from pathlib import Path

MIN_BYTES = 16
"""A shorter secret could be guessed."""
MAX_BYTES = 4096
"""A larger file is no key."""


class BadKeyError(Exception):
    """There is no key that can be used: the message names the file and what is wrong with it, never what it holds."""


def read_key(path: Path) -> bytes:
    """The secret, byte for byte.

    Raises:
        BadKeyError: it is missing, too short or too long.
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
