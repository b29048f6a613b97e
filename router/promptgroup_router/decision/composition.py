"""Composes the features of a router or picker: the one module that names them all.

The core has a `RouterFeature` in its `RouterState`, and the `RequestFeature`s of each route; which ones, it does not
know. To remove a feature, remove its folder, its tests and its lines here.
"""

from collections.abc import Container, Iterator
from itertools import chain
from math import inf
from typing import cast

from promptgroup_router.access.authenticator import Authenticator
from promptgroup_router.base.metrics import Metrics
from promptgroup_router.features.sleeping.feature import Sleeping
from promptgroup_router.rings.index import RoutingIndex
from promptgroup_router.routing.points import Gauge, RouterFeature
from promptgroup_router.routing.state import RouterState
from promptgroup_router.tracing.tracer import Tracer


class Features(RouterFeature):
    """What the requests of a process share of its features."""

    def __init__(self) -> None:
        self.sleeping = Sleeping()
        self._parts: tuple[RouterFeature, ...] = (self.sleeping,)

    def sweep(self, now: float) -> None:
        """Look after requests that wait."""
        for part in self._parts:
            part.sweep(now)

    def waiting(self) -> Iterator[tuple[str, str]]:
        """Yield the group and the revision of each request that waits because of a feature."""
        return chain.from_iterable(part.waiting() for part in self._parts)

    def keep(self, labels: Container[tuple[str, ...]]) -> None:
        """Drop what is stored of groups that have left the table."""
        for part in self._parts:
            part.keep(labels)

    def gauges(self, metrics: Metrics, index: RoutingIndex) -> list[Gauge]:
        """Return the gauges of all features."""
        return [gauge for part in self._parts for gauge in part.gauges(metrics, index)]


def features_of(state: RouterState) -> Features:
    """Return the features of a state that `router_state` has made."""
    return cast("Features", state.features)


def router_state(
    authenticator: Authenticator | None = None,
    sample_bytes: int = 0,
    pass_paths: frozenset[bytes] = frozenset(),
    tracer: Tracer | None = None,
    began: float = -inf,
) -> RouterState:
    """Return the state of a router or picker with all features.

    Args:
        authenticator: identifies the callers of requests.
        sample_bytes: most bytes of a prompt that are stored as a sample; 0 to store none.
        pass_paths: paths that are served beside those that are listed, by POST.
        tracer: records requests as spans; None if tracing is off.
        began: when the process started, in monotonic seconds.
    """
    return RouterState(authenticator, sample_bytes, pass_paths, tracer, began, features=Features())
