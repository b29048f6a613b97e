"""Gives requests ids that no other request has: a random start of this router's own, and a number."""

import os
from collections.abc import Mapping

from promptgroup_router.http11.reader import HttpRequest
from promptgroup_router.proxy.response import REQUEST_ID

RANDOM_BYTES = 10
"""Random bytes of an id: two of a million routers have the same ones in one of 10^12 cases."""
MOST_BYTES = 256
"""Most bytes of a client's id: it is part of each answer and each line of the log."""


class RequestIds:
    """The ids of one router, made without a system call."""

    def __init__(self) -> None:
        self._start = f"req-{os.urandom(RANDOM_BYTES).hex()}-".encode()
        self._number = 0

    def new(self) -> bytes:
        """Return an id that no other request has."""
        self._number += 1
        return self._start + str(self._number).encode()

    def of(self, request: HttpRequest) -> bytes:
        """Return the client's id of a request, or a new one where it sent none or one that is too long."""
        return self.among(request.head.fields)

    def among(self, fields: Mapping[bytes, bytes]) -> bytes:
        """Return the id that is among the header fields of a request, or a new one as `of` does."""
        sent = fields.get(REQUEST_ID)
        return sent if sent and len(sent) <= MOST_BYTES else self.new()
