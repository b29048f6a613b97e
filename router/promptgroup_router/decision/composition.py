"""Composes the features of a router or picker: with `arrival`, the modules that name features.

The core has a `ProcessFeatures` in its `RouterState`, and the `RequestFeature`s of each route; which ones, it does not
know. To remove a feature, remove its folder, its tests and its lines here.
"""

import secrets
from collections.abc import Container, Generator, Iterator
from itertools import chain
from math import inf
from typing import Any, cast

from promptgroup_contract.access import Access
from promptgroup_contract.table import Revision
from promptgroup_router.access.authenticator import ACCESS_CODES, Authenticator
from promptgroup_router.access.keyring import Keyring
from promptgroup_router.apis.request import ParsedRequest
from promptgroup_router.base.errors import ApiError
from promptgroup_router.base.metrics import Metrics
from promptgroup_router.callers.limiter import Limiter
from promptgroup_router.features.answer_usage import USAGE_REQUEST, MeteredGroup
from promptgroup_router.features.isolation.isolation import IsolatedGroup, SaltedBody
from promptgroup_router.features.isolation.salts import Salts
from promptgroup_router.features.near_miss import UnmatchedPrompt, find_near_miss
from promptgroup_router.features.prompt_digest import PromptDigests
from promptgroup_router.features.secret_prompt import SecretGroup
from promptgroup_router.features.sleeping.feature import Sleeping
from promptgroup_router.features.stored_responses.feature import StoredResponses
from promptgroup_router.features.tracing.tracer import Tracer
from promptgroup_router.features.unmatched_prompts import UnmatchedPrompts
from promptgroup_router.prefixes.leading import Leading
from promptgroup_router.rings.index import Candidates, RoutingIndex, TenantEntry
from promptgroup_router.routing.engine_fields import TO_ROUTER
from promptgroup_router.routing.points import BodyChange, RequestFeature
from promptgroup_router.routing.process_points import (
    Continuation,
    Gauge,
    GroupPoints,
    PrefixUse,
    ProcessFeatures,
    RouterFeature,
    RoutingPoints,
)
from promptgroup_router.routing.state import RouterState


class Routing(RoutingPoints):
    """The features that take part in routing."""

    def __init__(self, continuation: Continuation) -> None:
        """Begin with no group.

        Args:
            continuation: leads requests that continue a response.
        """
        super().__init__()
        self.every = GroupPoints(change=(MeteredGroup(),))
        self.continuation = continuation

    def unmatched(self, tenant: TenantEntry, request: ParsedRequest, leading: Leading) -> RequestFeature:
        """Return the feature of a request whose prompt no group declares."""
        return UnmatchedPrompt(leading, find_near_miss(tenant, request))


class Features(ProcessFeatures):
    """All features of a process, as far as its requests share them."""

    def __init__(
        self,
        metrics: Metrics,
        authenticator: Authenticator | None = None,
        sample_bytes: int = 0,
        tracer: Tracer | None = None,
        began: float = -inf,
        *,
        salts: Salts | None = None,
    ) -> None:
        """Make the features.

        Args:
            metrics: of the process.
            authenticator: identifies the callers of requests.
            sample_bytes: most bytes of a prompt that are stored as a sample; 0 to store none.
            tracer: records requests as spans; None if tracing is off.
            began: when the process started, in monotonic seconds.
            salts: the salts of callers; None for those of a random key of this process, until the key that routers
                share has been read.
        """
        super().__init__()
        self._metrics = metrics
        self.authenticator = authenticator or Authenticator(Keyring(b""))
        self.on_keys = self.authenticator.on_keys
        self.tracer = tracer
        self.limiter = Limiter(began)
        """The accounts of callers with limits."""
        self.salts = salts or Salts(secrets.token_bytes(32))
        self.unmatched = UnmatchedPrompts(metrics, sample_bytes)
        self.routing = Routing(StoredResponses(self.salts))
        self.prompt_digests = PromptDigests()
        """The prompts of clients that request a cache diagnosis."""
        self.sleeping = Sleeping()
        self._parts: tuple[RouterFeature, ...] = (self.sleeping, self.unmatched)

    def compose_steps(self, view: RoutingIndex) -> Generator[None, None, dict[str, GroupPoints]]:
        """Return the points of the groups of a table, in steps of a group."""
        every, groups = self.routing.every, dict[str, GroupPoints]()
        for group in view.groups:
            for revision in group.revisions:
                if (points := self._points(revision.candidates, revision.revision)) is not every:
                    groups[group.label] = groups[revision.candidates.id] = points
            yield
        for model in view.models.values():
            for tenant in model.tenants.values():
                for _, candidates in tenant.by_access:
                    if (points := self._points(candidates)) is not every:
                        groups[candidates.id] = points
            yield
        return groups

    def _points(self, candidates: Candidates, revision: Revision | None = None) -> GroupPoints:
        """Return the points of a revision, or of the replicas for the requests that no group declares."""
        every, salted = self.routing.every, candidates.rules.salted
        secret = revision is not None and revision.is_secret
        if salted is None and candidates.responses is None and not secret:
            return every
        isolated = (IsolatedGroup(self.salts, salted),) if salted is not None else ()
        return GroupPoints(
            domain=isolated,
            # a cached answer is sent to all its clients exactly as its engine has sent it
            change=isolated if candidates.responses is not None else every.change + isolated,
            by_name=(SecretGroup(revision),) if revision is not None and secret else (),
            stripped=TO_ROUTER if candidates.responses is not None else every.stripped,
        )

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


def body_change(document: dict[str, Any]) -> BodyChange:
    """Return the change of a body that `BodyChange.document` stands for."""
    return SaltedBody(document["salt"]) if "salt" in document else USAGE_REQUEST
