"""Names whoever sends a request, as far as the router knows. Does no I/O and reads no clock."""

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

MOST_LABELS = 500
"""Most callers that metrics tell apart."""
OTHERS = "-others"
"""The label of callers beyond those; no caller has this name."""


class CallerLabels:
    """The callers that metrics tell apart: the first ones, so that no issuer of tokens fills Prometheus."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def of(self, caller: Caller) -> str:
        """Return the label of a caller; empty for one who is not known."""
        name = caller.name
        if name not in self._known and name:
            if len(self._known) >= MOST_LABELS:
                return OTHERS
            self._known.add(name)
        return name
