"""Names whoever sends a request, as far as the router knows."""

from typing import NamedTuple

MAX_NAME = 128
"""Most characters of a caller's name."""


class Caller(NamedTuple):
    """The sender of a request, as the access of its group told it."""

    name: str
    """A name of 1 to MAX_NAME printable ASCII characters, the same on each request; empty for a caller who is not
    known. Within a namespace one name is one caller, however it was told. It is no secret, unlike the credential."""


ANONYMOUS = Caller("")
"""Everybody, where nobody is asked who they are."""
