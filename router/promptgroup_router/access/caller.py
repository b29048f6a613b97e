"""The caller: the identity of the sender of a request."""

from typing import NamedTuple

MAX_NAME = 128
"""Most characters of a caller's name."""


class Caller(NamedTuple):
    """The sender of a request, identified by the access rules of its group."""

    name: str
    """A name of 1 to MAX_NAME printable ASCII characters, the same on each request; empty for an anonymous caller.
    Within a namespace one name is one caller, by whatever credential it was identified. Unlike the credential it is not
    secret."""


ANONYMOUS = Caller("")
"""The caller of every request to a group that does not authenticate its callers."""
