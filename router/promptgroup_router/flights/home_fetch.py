"""Requests an answer from its key's home router, to which all other routers send equal requests."""

from collections.abc import Callable
from typing import Protocol

from promptgroup_contract.names import HEADER_CACHE_KEY
from promptgroup_router.base.errors import Failure
from promptgroup_router.flights.peer_port import PEER
from promptgroup_router.http11 import http1
from promptgroup_router.http11.http1 import ResponseHead
from promptgroup_router.http11.reader import HttpRequest
from promptgroup_router.proxy.upstream import EngineConnection, EngineConnections
from promptgroup_router.response_cache.canonical import CacheKey

_KEY = HEADER_CACHE_KEY.encode()
_NOT_FORWARDED = http1.HOP_BY_HOP | {b"host", b"content-length", b"expect"}


class Fetched(Protocol):
    """The receiver of an answer from another router."""

    def answer_began(self, head: ResponseHead) -> None:
        """Process the head."""

    def answer_data(self, data: bytes) -> None:
        """Process bytes of the body."""

    def answer_ended(self) -> None:
        """Finish: the answer is complete."""

    def cut(self, *, visibly: bool) -> None:
        """End an answer that will not be completed."""


class HomeFetch:
    """A request to the home router of its key.

    Unless the home router answers for the same key, this router computes the answer: the home router may be gone, be
    about to terminate, or have another routing table.
    """

    __slots__ = ("_address", "_begun", "_connection", "_done", "_here", "_key", "_lives", "_to")

    def __init__(
        self,
        to: Fetched,
        key: CacheKey,
        *,
        address: str,
        lives: Callable[[str], bool],
        here: Callable[[bool], None],
    ) -> None:
        """Begin with nothing sent.

        Args:
            to: the receiver.
            key: of the answer.
            address: `host:port` of the home router.
            lives: whether the router at an address is a live peer.
            here: computes the answer here instead; called at most once, and never after the answer began, with True if
                the home router could not be reached.
        """
        self._to = to
        self._key = key
        self._address = address
        self._lives = lives
        self._here = here
        self._begun = self._done = False
        self._connection: EngineConnection | None = None

    def send(self, request: HttpRequest, connections: EngineConnections) -> None:
        """Send the request as the client sent it: the home router parses and matches it by itself."""
        head = request.head
        lines = http1.forwarded_but(head, _NOT_FORWARDED)
        lines += [b"host: " + self._address.encode(), b"content-length: %d" % len(request.body)]
        target = head.path + b"?" + head.query if head.query else head.path
        connection = self._connection = connections.acquire(self._address, fresh=False, verification=PEER)
        connection.send(http1.encode(b"POST " + target + b" HTTP/1.1", lines), request.body, self)

    # --- Events of the connection ----------------------------------------------------------------------------------

    def interim_answer(self, head: ResponseHead) -> None:
        """Do nothing: the answer follows."""

    def answer_began(self, head: ResponseHead) -> None:
        """Pass on the head if it belongs to the requested key; compute the answer here otherwise."""
        if (_KEY, self._key.hex().encode()) not in http1.pairs(head.headers):
            self._drop()
            self._compute_here(unreached=False)
            return
        self._begun = True
        self._to.answer_began(head)

    def answer_data(self, data: bytes) -> None:
        """Pass on bytes of the body."""
        self._to.answer_data(data)

    def answer_ended(self) -> None:
        """Pass on the end."""
        self._connection = None
        self._to.answer_ended()

    def failed(self, failure: Failure) -> None:
        """Compute the answer here, or cut it."""
        self._connection = None
        if self._begun:
            self._to.cut(visibly=True)
        else:
            self._compute_here(unreached=failure is not Failure.STALE)

    # --- Events of the clients -------------------------------------------------------------------------------------

    def client_left(self) -> None:
        """Close the connection: no client waits for the answer."""
        self._drop()

    def pause(self) -> None:
        """Pause reading."""
        if self._connection is not None:
            self._connection.pause()

    def resume(self) -> None:
        """Resume reading."""
        if self._connection is not None:
            self._connection.resume()

    def tick(self, now: float) -> None:
        """Stop waiting for a home router that is no live peer any more."""
        if not self._begun and not self._done and not self._lives(self._address):
            self._drop()
            self._compute_here(unreached=True)

    def _compute_here(self, *, unreached: bool) -> None:
        if not self._done:
            self._done = True
            self._here(unreached)

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()
