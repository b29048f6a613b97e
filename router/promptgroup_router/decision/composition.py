"""Composes the features of a router or picker: with `arrival`, the modules that name features.

The core has a `ProcessFeatures` in its `RouterState`, and the `RequestFeature`s of each route; which ones, it does not
know. To remove a feature, remove its folder, its tests and its lines here.
"""

import secrets
from collections.abc import Container, Iterator
from itertools import chain
from math import inf
from typing import cast

from promptgroup_contract.access import Access
from promptgroup_router.access.authenticator import ACCESS_CODES, Authenticator
from promptgroup_router.access.keyring import Keyring
from promptgroup_router.base.errors import ApiError
from promptgroup_router.base.metrics import Metrics
from promptgroup_router.callers.limiter import Limiter
from promptgroup_router.callers.salts import Salts
from promptgroup_router.features.sleeping.feature import Sleeping
from promptgroup_router.features.tracing.tracer import Tracer
from promptgroup_router.features.unmatched_prompts import UnmatchedPrompts
from promptgroup_router.rings.index import RoutingIndex
from promptgroup_router.routing.points import Gauge, PrefixUse, ProcessFeatures, RouterFeature
from promptgroup_router.routing.prompt_digest import PromptDigests
from promptgroup_router.routing.state import RouterState


class Features(ProcessFeatures):
    """What the requests of a process share of its features."""

    def __init__(
        self,
        metrics: Metrics,
        authenticator: Authenticator | None = None,
        sample_bytes: int = 0,
        tracer: Tracer | None = None,
        began: float = -inf,
    ) -> None:
        """Make the features.

        Args:
            metrics: of the process.
            authenticator: identifies the callers of requests.
            sample_bytes: most bytes of a prompt that are stored as a sample; 0 to store none.
            tracer: records requests as spans; None if tracing is off.
            began: when the process started, in monotonic seconds.
        """
        super().__init__()
        self._metrics = metrics
        self.authenticator = authenticator or Authenticator(Keyring(b""))
        self.on_keys = self.authenticator.on_keys
        self.tracer = tracer
        self.limiter = Limiter(began)
        """The accounts of callers with limits."""
        self.salts = Salts(secrets.token_bytes(32))
        """The salts of callers; with a random key of this process until the key that routers share has been read."""
        self.unmatched = UnmatchedPrompts(metrics, sample_bytes)
        self.prompt_digests = PromptDigests()
        """The prompts of clients that request a cache diagnosis."""
        self.sleeping = Sleeping()
        self._parts: tuple[RouterFeature, ...] = (self.sleeping, self.unmatched)

    def access(self, own: Access | None) -> Access:
        """Return the effective access rules of a group: its own, or else the default."""
        return self.authenticator.access(own)

    def credential(self, namespace: str, reference: str) -> bytes:
        """Return the credential of a Secret for engines; empty if it has not been read."""
        return self.authenticator.keyring.credential(namespace, reference)

    def refused(self, error: ApiError) -> None:
        """Count a request that is refused because of its sender."""
        if error.code in ACCESS_CODES:
            self._metrics.access_refused.add(error.code)

    def set_epoch(self, epoch: float) -> None:
        """Set the seconds since 1970 at which the monotonic clock was 0."""
        self.authenticator.epoch = self.limiter.epoch = epoch
        if isinstance(self.tracer, Tracer):
            self.tracer.epoch = epoch

    def prefixes_used(self, use: PrefixUse, now: float) -> None:
        """Count the prefixes that a served request shares with others."""
        self.unmatched.prefixes_used(use, now)

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
    metrics = Metrics()
    return RouterState(pass_paths, Features(metrics, authenticator, sample_bytes, tracer, began), metrics)
