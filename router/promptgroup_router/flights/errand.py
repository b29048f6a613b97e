"""Gets the answer of a flight: from the key's home router, from the shared store, or from an engine."""

from collections.abc import Callable
from copy import copy
from functools import partial
from typing import NamedTuple, Protocol

from promptgroup_contract.caller_rules import CachedTokens
from promptgroup_contract.table import ResponseCaching
from promptgroup_router.apis.request import ApiKind
from promptgroup_router.base.errors import ApiError
from promptgroup_router.base.metrics import Metrics
from promptgroup_router.flights.answer_store import AnswerName, AnswerStore
from promptgroup_router.flights.flight import CACHE_STATUS, Flight, Receiver
from promptgroup_router.flights.follower import Follower
from promptgroup_router.flights.home_fetch import HomeFetch
from promptgroup_router.flights.source import source_of
from promptgroup_router.http11.http1 import Headers, ResponseHead, pairs
from promptgroup_router.http11.reader import HttpRequest
from promptgroup_router.proxy.api_handler import Begin
from promptgroup_router.proxy.upstream import EngineConnections
from promptgroup_router.response_cache import cache_status
from promptgroup_router.response_cache.answer import KeptAnswer
from promptgroup_router.response_cache.canonical import CacheKey
from promptgroup_router.response_cache.directives import Directives
from promptgroup_router.response_cache.points import ObservedRequest
from promptgroup_router.routing.route import Route

PATIENCE_SECONDS = 60.0
"""Time after which an answer that the home router did not deliver is not computed here: its clients waited too long."""


class WantedAnswer(NamedTuple):
    """A request whose answer may be shared."""

    key: CacheKey
    route: Route
    caching: ResponseCaching
    directives: Directives
    request: HttpRequest
    kind: ApiKind
    begin: Begin
    """Sends the request to an engine."""
    observed: ObservedRequest | None = None
    """The part of a feature in it; None if none observes it."""


class Depot(Protocol):
    """The parts of the router's response cache that an errand needs."""

    metrics: Metrics
    connections: EngineConnections
    store: AnswerStore | None

    def cached(self, key: CacheKey, wanted: WantedAnswer) -> KeptAnswer | None:
        """Return the answer in memory that may be served to a request; None if there is none."""

    def lives(self, address: str) -> bool:
        """Return True if the router at an address is a live peer."""

    def shun(self, address: str) -> None:
        """Send no requests to the router at an address for a while."""

    def wall(self) -> float:
        """Return the seconds since the epoch."""

    def given(self, cached_answer: KeptAnswer, wanted: WantedAnswer) -> KeptAnswer | None:
        """Return a cached answer as it may be served to a request; None if it may not."""

    def landed(self, errand: "Errand") -> None:
        """Cache the answer of a flight that has ended, if it is cacheable."""


class Errand:
    """The retrieval of one answer, for one or more clients."""

    def __init__(self, wanted: WantedAnswer, depot: Depot) -> None:
        self.wanted = wanted
        hidden = wanted.route.candidates.rules.cached_tokens is not CachedTokens.EXACT
        self.flight = Flight(None if hidden else wanted.kind, self)
        self.first: Follower | None = None
        """The earliest client that is still connected when an engine is asked: the answer is computed for this client,
        and shared with the others."""
        self.born = depot.wall()
        """Time at which the answer was requested, in seconds since the epoch."""
        self.fetched = False
        """True if the answer comes from the key's home router, which also writes it to the store."""
        self.cached_answer: KeptAnswer | None = None
        """The answer from the store; None if it comes from elsewhere."""
        self.observed = wanted.observed
        """The part of a feature in the request that began this."""
        self._waiting: dict[Follower, WantedAnswer] | None = {}
        """The clients and their requests, in order of arrival; None once an engine is asked."""
        self._home: str | None = None
        self._depot = depot

    def join(self, follower: Follower, wanted: WantedAnswer) -> None:
        """Serve a client, too.

        Args:
            follower: the client.
            wanted: its request, for which the answer is computed if all earlier clients have left.
        """
        if self._waiting is not None:
            self._waiting[follower] = wanted
        self.flight.follow(follower)

    def go(self, home: str | None) -> None:
        """Get the answer.

        Args:
            home: `host:port` of the key's home router; None if it is this one.
        """
        if self.observed is not None:
            self.observed.missed(partial(self._depot.cached, wanted=self.wanted))
        if home is None:
            self._get_here()
            return
        self._home, self.fetched = home, True
        self._note("forwarded", counted=True)
        fetch = HomeFetch(self, self.wanted.key, address=home, lives=self._depot.lives, here=self._turned_away)
        self.flight.depart(fetch)
        fetch.send(self.wanted.request, self._depot.connections)

    def landed(self) -> None:
        """Pass the answer to the response cache."""
        self._depot.landed(self)

    # --- From the key's home router --------------------------------------------------------------------------------

    def answer_began(self, head: ResponseHead) -> None:
        """Process the head of the home router's answer, which contains the answer's age."""
        result = pairs(field for field in head.headers if field.name in CACHE_STATUS)
        age = next((value for name, value in result if name == b"age"), b"")
        self.born -= int(age[:9]) if age.isdigit() else 0
        if self.first is not None:
            self.first.computed = True  # unchanged: the home router has marked what was not computed for this request
            _tell(self.first, result)
        self.flight.answer_began(head)

    def answer_data(self, data: bytes) -> None:
        """Process bytes of the home router's answer."""
        self.flight.answer_data(data)

    def answer_ended(self) -> None:
        """Process the end of the home router's answer."""
        self.flight.answer_ended()

    def cut(self, *, visibly: bool) -> None:
        """End the answer, which the home router did not complete."""
        if self.first is not None:
            self.first.counted = False
        self.flight.cut(visibly=visibly)

    def _turned_away(self, unreached: bool) -> None:
        if unreached and self._home is not None:
            self._depot.shun(self._home)
        if self._depot.wall() - self.born > PATIENCE_SECONDS:
            error = ApiError(504, "the router that computes this answer gave none in time: retry", code="timeout")
            self.flight.answer(error.status, error.headers(), error.body())
            return
        self._get_here()

    # --- From the store, or from an engine ---------------------------------------------------------------------------

    def _get_here(self) -> None:
        self.fetched = False
        store, desired = self._depot.store, self.wanted
        if store is None or desired.directives.no_cache:
            self._compute()
            return
        name = AnswerName(desired.route.group, desired.route.revision, desired.key)
        call_off = store.get(name, self._looked_up)
        if call_off is None:
            self._compute()
        else:
            self.flight.depart(_Lookup(call_off))

    def _looked_up(self, cached_answer: KeptAnswer | None) -> None:
        answer = self._depot.given(cached_answer, self.wanted) if cached_answer is not None else None
        if answer is None:
            self._compute()
            return
        self.cached_answer = answer
        self._note("hit_store", counted=False)
        if self.first is not None:
            _tell(self.first, cache_status.of_hit(answer, self._depot.wall()))
        self.flight.land(source_of(answer))

    def _compute(self) -> None:
        self._replace_first()
        desired, first = self.wanted, self.first
        self._note("miss" if first is not None else "revalidated", counted=True)
        if first is not None:
            first.computed = True
            _tell(first, cache_status.of_miss(desired.key, reload=desired.directives.no_cache))
        head = desired.request.head
        # the answer is shared with clients that may not support the first one's content codings
        plain = copy(head)
        plain.headers = [field for field in head.headers if field.name != b"accept-encoding"]
        plain.minor, plain.keep_alive = 1, True
        origin = desired.begin(self.flight, HttpRequest(plain, desired.request.body), desired.route, [])
        self.flight.depart(origin)

    def _replace_first(self) -> None:
        """Replace the first client by the next one, if it has left.

        Its tokens were refunded when it left, so that an answer computed for it would be charged to no caller.
        """
        waiting, self._waiting = self._waiting or {}, None
        if self.first is None or self.first in self.flight.followers:
            return
        for follower, desired in waiting.items():
            if follower in self.flight.followers:
                self.first, self.wanted = follower, desired
                return

    def _note(self, result: str, *, counted: bool) -> None:
        self._depot.metrics.responses.add(self.wanted.route.group, result)
        if self.first is not None:
            self.first.counted = counted


def _tell(follower: Receiver, headers: Headers) -> None:
    """Replace the header fields that report the result of the cache to a client."""
    follower.fields = [*headers, *(field for field in follower.fields if field[0] not in CACHE_STATUS)]


class _Lookup:
    """A read from the store, which ends by itself."""

    def __init__(self, call_off: Callable[[], None]) -> None:
        self._call_off = call_off

    def client_left(self) -> None:
        """Cancel the read."""
        self._call_off()

    def pause(self) -> None:
        """Do nothing: a stored answer arrives as a whole."""

    def resume(self) -> None:
        """Do nothing: a stored answer arrives as a whole."""

    def tick(self, now: float) -> None:
        """Do nothing: the store has its own time limit."""
