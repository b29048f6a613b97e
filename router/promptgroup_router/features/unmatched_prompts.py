"""Counts the requests that no group declares, served or not, and the prefixes that requests share."""

from collections.abc import Container

from promptgroup_router.apis.request import ParsedRequest
from promptgroup_router.base.metrics import Metrics
from promptgroup_router.features.near_miss import NearMisses, UnmatchedPrompt
from promptgroup_router.rings.index import RoutingIndex
from promptgroup_router.routing.points import feature_of
from promptgroup_router.routing.process_points import Gauge, PrefixUse, RouterFeature
from promptgroup_router.routing.route import Route
from promptgroup_router.undeclared.shared_prefixes import SharedPrefixes
from promptgroup_router.undeclared.unmatched import UnmatchedPrefixes, sampled


class UnmatchedPrompts(RouterFeature):
    """The prefixes of all requests that no group declares."""

    def __init__(self, metrics: Metrics, sample_bytes: int = 0) -> None:
        """Begin with none.

        Args:
            metrics: count the requests.
            sample_bytes: most bytes of a prompt that are stored as a sample; 0 to store none.
        """
        self._metrics = metrics
        self.prefixes = UnmatchedPrefixes(sample_bytes=sample_bytes)
        self.shared_prefixes = SharedPrefixes()
        self.near_misses = NearMisses()

    def count(self, route: Route, request: ParsedRequest, now: float) -> None:
        """Count a request by its prefix, if no group declares it.

        Args:
            route: its route.
            request: the request.
            now: monotonic seconds.
        """
        unmatched = feature_of(route.features, UnmatchedPrompt) if route.features else None
        if unmatched is None:
            return
        leading, near_miss = unmatched.leading, unmatched.near_miss
        self._metrics.unmatched.add(route.model)
        limit = self.prefixes.sample_bytes
        # no sample is taken of a near miss of a declared prompt: that prompt may be confidential
        sampling = limit > 0 and bool(request.system) and near_miss is None
        self.prefixes.add(
            route.model,
            leading.hash,
            leading.length,
            tokens=route.demand.tier1,
            session=route.demand.session,
            text=route.demand.prefix,
            now=now,
            sample=sampled(request.system, request.tools, limit) if sampling else None,
            near=near_miss,
            volatile=leading.volatile,
        )
        if near_miss is not None:
            self._metrics.near_miss.add(near_miss.group)
            self.near_misses.add(near_miss)

    def prefixes_used(self, use: PrefixUse, now: float) -> None:
        """Count the prefixes that a served request shares with others."""
        self.shared_prefixes.add(
            use.model,
            use.group,
            use.demand,
            within=use.scope,
            instructions=use.demand.instructions,
            known=use.known,
            cached=use.cached,
            now=now,
        )

    def keep(self, labels: Container[tuple[str, ...]]) -> None:
        """Drop the near misses of groups that have left the table."""
        self.near_misses.keep(labels)

    def gauges(self, metrics: Metrics, index: RoutingIndex) -> list[Gauge]:
        """Return where near misses differ from the prompts of groups."""
        del index
        return [(metrics.near_miss_offset, self.near_misses.medians())]
