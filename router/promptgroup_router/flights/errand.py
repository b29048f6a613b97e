"""Gets the answer of a flight: from the key's home, from a store, or from an engine."""

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
from promptgroup_router.flights.source import kept_source
from promptgroup_router.http11.http1 import Headers, ResponseHead, pairs
from promptgroup_router.http11.reader import HttpRequest
from promptgroup_router.proxy.api_handler import Begin
from promptgroup_router.proxy.upstream import EngineConnections
from promptgroup_router.response_cache import cache_status
from promptgroup_router.response_cache.answer import KeptAnswer
from promptgroup_router.response_cache.canonical import CacheKey
from promptgroup_router.response_cache.directives import Directives
from promptgroup_router.routing.route import Route
from promptgroup_router.semantic.question import Question
from promptgroup_router.semantic.similar_answers import Search, SimilarAnswers

PATIENCE_SECONDS = 60.0
"""Time after which an answer that the home did not give is not computed here: its clients have waited for long."""


class WantedAnswer(NamedTuple):
    """A request whose answer may be shared."""

    key: CacheKey
    route: Route
    caching: ResponseCaching
    asked: Directives
    request: HttpRequest
    kind: ApiKind
    begin: Begin
    """Asks an engine."""
    question: Question | None = None
    """Question for the semantic cache; None for none."""


class Depot(Protocol):
    """The parts of the router's response cache that an errand needs."""

    metrics: Metrics
    connections: EngineConnections
    store: AnswerStore | None
    similar: SimilarAnswers | None

    def kept(self, key: CacheKey, wanted: WantedAnswer) -> KeptAnswer | None:
        """Return an answer that is kept here and may be given to a request, if there is one."""

    def lives(self, address: str) -> bool:
        """Return True if the router at an address is heard of."""

    def shun(self, address: str) -> None:
        """Send nothing to the router at an address for a while."""

    def wall(self) -> float:
        """Return the seconds since the epoch."""

    def given(self, kept_answer: KeptAnswer, wanted: WantedAnswer) -> KeptAnswer | None:
        """Return a kept answer as it may be given to a request; None if it may not."""

    def landed(self, errand: "Errand") -> None:
        """Keep the answer of a flight that has ended, if it may be kept."""


class Errand:
    """The way to one answer."""

    def __init__(self, wanted: WantedAnswer, depot: Depot) -> None:
        self.wanted = wanted
        hidden = wanted.route.candidates.rules.cached_tokens is not CachedTokens.EXACT
        self.flight = Flight(None if hidden else wanted.kind, self)
        self.first: Follower | None = None
        """The client that asked first, of those who were here when an engine was asked: an answer is computed for this
        one, and shared with the others."""
        self.born = depot.wall()
        """Time at which the answer was asked for, in seconds since the epoch."""
        self.fetched = False
        """True if the key's home has the answer, and keeps it in the store."""
        self.found: KeptAnswer | None = None
        """The answer, where it was kept in the store."""
        self.search: Search | None = None
        """The search for a similar question."""
        self._waiting: dict[Follower, WantedAnswer] | None = {}
        """The clients and what they want, in the order in which they came; None once an engine is asked."""
        self._home: str | None = None
        self._depot = depot

    def join(self, follower: Follower, wanted: WantedAnswer) -> None:
        """Serve a client, too.

        Args:
            follower: the client.
            wanted: its request, for which the answer is computed if those who came before it have left.
        """
        if self._waiting is not None:
            self._waiting[follower] = wanted
        self.flight.follow(follower)

    def go(self, home: str | None) -> None:
        """Get the answer.

        Args:
            home: `host:port` of the key's home; None if it is this router.
        """
        desired, similar = self.wanted, self._depot.similar
        rules = desired.caching.semantic
        if desired.question is not None and rules is not None and similar is not None:
            lookup = partial(self._depot.kept, wanted=desired)
            self.search = similar.search(desired.route.group, desired.question, rules, lookup)
        if home is None:
            self._get_here()
            return
        self._home, self.fetched = home, True
        self._note("forwarded", counted=True)
        fetch = HomeFetch(self, self.wanted.key, address=home, lives=self._depot.lives, here=self._turned_away)
        self.flight.depart(fetch)
        fetch.send(self.wanted.request, self._depot.connections)

    def landed(self) -> None:
        """Hand over the answer."""
        self._depot.landed(self)

    # --- From the key's home ---------------------------------------------------------------------------------------

    def answer_began(self, head: ResponseHead) -> None:
        """Take the head of the home's answer, which says how old the answer is."""
        result = pairs(field for field in head.headers if field.name in CACHE_STATUS)
        age = next((value for name, value in result if name == b"age"), b"")
        self.born -= int(age[:9]) if age.isdigit() else 0
        if self.first is not None:
            self.first.computed = True  # as the home said it, which marks what was not computed for this request
            _tell(self.first, result)
        self.flight.answer_began(head)

    def answer_data(self, data: bytes) -> None:
        """Take bytes of the home's answer."""
        self.flight.answer_data(data)

    def answer_ended(self) -> None:
        """Take the end of the home's answer."""
        self.flight.answer_ended()

    def cut(self, *, visibly: bool) -> None:
        """End the answer, which the home did not finish."""
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
        if store is None or desired.asked.no_cache:
            self._compute()
            return
        name = AnswerName(desired.route.group, desired.route.revision, desired.key)
        call_off = store.get(name, self._looked_up)
        if call_off is None:
            self._compute()
        else:
            self.flight.depart(_Lookup(call_off))

    def _looked_up(self, kept_answer: KeptAnswer | None) -> None:
        answer = self._depot.given(kept_answer, self.wanted) if kept_answer is not None else None
        if answer is None:
            self._compute()
            return
        self.found = answer
        self._note("hit_store", counted=False)
        if self.first is not None:
            _tell(self.first, cache_status.of_hit(answer, self._depot.wall()))
        self.flight.land(kept_source(answer))

    def _compute(self) -> None:
        self._replace_first()
        desired, first = self.wanted, self.first
        self._note("miss" if first is not None else "revalidated", counted=True)
        if first is not None:
            first.computed = True
            _tell(first, cache_status.of_miss(desired.key, reload=desired.asked.no_cache))
        head = desired.request.head
        # the answer is for clients that may not all read what the first one does
        plain = copy(head)
        plain.headers = [field for field in head.headers if field.name != b"accept-encoding"]
        plain.minor, plain.keep_alive = 1, True
        origin = desired.begin(self.flight, HttpRequest(plain, desired.request.body), desired.route, [])
        self.flight.depart(origin)

    def _replace_first(self) -> None:
        """Have the next client in the place of the first, if that has left: its tokens were given back as it left.

        So an answer that is computed for it would be on nobody's account.
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
    """Tell a client what the cache did, in place of what it was to be told before."""
    follower.fields = [*headers, *(field for field in follower.fields if field[0] not in CACHE_STATUS)]


class _Lookup:
    """A question to the store, which ends by itself."""

    def __init__(self, call_off: Callable[[], None]) -> None:
        self._call_off = call_off

    def client_left(self) -> None:
        """Forget the question."""
        self._call_off()

    def pause(self) -> None:
        """Do nothing: an answer comes at once."""

    def resume(self) -> None:
        """Do nothing: an answer comes at once."""

    def tick(self, now: float) -> None:
        """Do nothing: the store has its own time limit."""
