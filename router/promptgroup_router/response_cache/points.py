"""The points of the response cache at which a feature may act: by default it does nothing at any of them."""

from collections.abc import Callable, Iterable, Mapping

from promptgroup_contract.table import ResponseCaching, RoutingTable
from promptgroup_router.apis.request import ParsedRequest
from promptgroup_router.response_cache.answer import KeptAnswer
from promptgroup_router.response_cache.canonical import CacheKey
from promptgroup_router.response_cache.purge import Purge
from promptgroup_router.routing.route import Route

Lookup = Callable[[CacheKey], KeptAnswer | None]
"""Returns the cached answer with a key, if it may be served."""


class ObservedRequest:
    """The part of a feature in one request."""

    def missed(self, lookup: Lookup) -> None:
        """Process that no cached answer can be served, and that none is being computed."""
        raise NotImplementedError

    def computed(self, key: CacheKey | None) -> None:
        """Process the end of the answer; `key` is None if it is not cached."""
        raise NotImplementedError


class AnswerObserver:
    """The part of a feature in a process, which observes the requests that the response cache gets."""

    def observe(
        self,
        route: Route,
        caching: ResponseCaching,
        request: ParsedRequest,
        key_of: Callable[[ParsedRequest], CacheKey],
    ) -> ObservedRequest | None:
        """Return the feature's part in a request that may be answered from the cache; None for none.

        Args:
            route: of the request.
            caching: the rules of its group.
            request: the request.
            key_of: request → its cache key.

        Raises:
            ApiError: the request is nested too deeply to be written again.
        """
        del route, caching, request, key_of
        return None

    def keep_groups(self, caching: Mapping[str, ResponseCaching]) -> None:
        """Drop what is stored of groups, but of those that cache answers: `namespace/group` → its rules."""

    def purge(self, purge: Purge) -> None:
        """Drop what is stored of answers that are purged."""

    def samples(self) -> bytes:
        """Return texts of requests, as JSON Lines, for review by people; empty if none are stored."""
        return b""

    def secrets(self, table: RoutingTable) -> Iterable[tuple[str, str]]:
        """Return namespace and name of the Secrets with credentials that the feature needs for a table."""
        del table
        return ()

    def tell(self) -> None:
        """Update the gauges."""

    def tick(self, now: float) -> None:
        """Close what has been idle for too long; called every second."""

    async def stop(self) -> None:
        """End what has been begun, such as requests to other servers."""
