"""The points of a group and of a process at which a feature may act; those of one request are in `points`.

What all requests of a process share of a feature is a `RouterFeature`, which acts at points of the process: `sweep`,
`waiting`, `keep`, `gauges`. How the requests of one group are routed is changed by a `GroupFeature`, at the
points for which the group's `GroupPoints` name it.
"""

from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from promptgroup_contract.access import ANYBODY, Access, Caller
from promptgroup_contract.table import RoutingTable
from promptgroup_router.apis.request import ParsedRequest
from promptgroup_router.apis.session_key import NO_SESSION, RequestSession, SessionKey
from promptgroup_router.base.errors import ApiError
from promptgroup_router.base.metrics import Counter, Metrics
from promptgroup_router.policy.demand import Demand
from promptgroup_router.prefixes.cache_domain import CacheDomain
from promptgroup_router.prefixes.leading import Leading
from promptgroup_router.rings.ids import PrefixKey
from promptgroup_router.rings.index import Candidates, GroupEntry, Member, RevisionEntry, RoutingIndex, TenantEntry
from promptgroup_router.routing.points import BodyChange, RequestFeature


class PlacedRequest(NamedTuple):
    """A request that has a group, and no replica yet."""

    candidates: Candidates
    caller: Caller
    domain: CacheDomain
    session: SessionKey
    chosen: bool
    """True if the client may choose the id of its response, and does."""


Value = str | bool | int | float
"""The value of an attribute."""


class RequestTrace:
    """The record of one request in its trace."""

    @property
    def trace_id(self) -> int:
        """128 bits."""
        raise NotImplementedError

    def note(self, name: str, now: float, attributes: Mapping[str, Value]) -> None:
        """Add an event."""
        raise NotImplementedError

    def end(self, name: str, attributes: Mapping[str, Value], now: float, error: str = "") -> None:
        """End the record."""
        raise NotImplementedError


class RequestTracer:
    """Records requests."""

    def begin(self, traceparent: bytes, now: float) -> tuple[bytes, RequestTrace | None]:
        """Begin the record of a request, if it is sampled.

        Args:
            traceparent: the client's header; empty for none.
            now: monotonic seconds.

        Returns:
            The header `traceparent` for engines, empty where they get the client's as it is; and the record, if any.
        """
        raise NotImplementedError


Gauge = tuple[Counter, dict[tuple[str, ...], float]]
"""A gauge with its values, by labels."""


@dataclass(slots=True)
class PrefixUse:
    """The prefixes that a served request shares with others beyond a declared prompt."""

    model: str
    group: str
    """`namespace/group`, or UNMATCHED."""
    demand: Demand
    scope: PrefixKey
    """Distinguishes them from the same text in other groups, and in the caches of other callers."""
    known: int
    """Tokens that its replica had cached from its session, as far as the router has recorded."""
    cached: float
    """Tokens that its replica had cached, or was expected to have."""


class RouterFeature:
    """The part of one feature in a process, which all its requests share: by default it does nothing at any point."""

    def sweep(self, now: float) -> None:
        """Look after requests that wait; called several times a second."""

    def waiting(self) -> Iterator[tuple[str, str]]:
        """Yield the group and the revision of each request that waits because of the feature."""
        return iter(())

    def keep(self, labels: Container[tuple[str, ...]]) -> None:
        """Drop what is stored of groups, and revisions of groups, but of those with these labels."""

    def set_epoch(self, epoch: float) -> None:
        """Set the seconds since 1970 at which the monotonic clock was 0."""

    def prefixes_used(self, use: PrefixUse, now: float) -> None:
        """Count the prefixes that a served request shares with others."""

    def refused(self, error: ApiError) -> None:
        """Count a request that is refused before it has a route."""

    def gauges(self, metrics: Metrics, index: RoutingIndex) -> Sequence[Gauge]:
        """Return the feature's gauges as of this moment."""
        del metrics, index
        return ()


class GroupFeature:
    """The part of one feature in how the requests of one group are routed.

    It is called only at the points for which the group's `GroupPoints` name it.
    """

    def domain(self, caller: Caller, namespace: str, request: ParsedRequest, *, cached: bool) -> CacheDomain:
        """Return the part of engines' caches that a request reads and writes.

        Args:
            caller: who sends it.
            namespace: the namespace of its group.
            request: the request.
            cached: False for requests that leave nothing in a cache.

        Raises:
            ApiError: the request is refused.
        """
        raise NotImplementedError

    def change(self, request: ParsedRequest, domain: CacheDomain, *, cached: bool, rewrites: bool) -> BodyChange | None:
        """Return what the feature changes in the body for the engine; None for nothing.

        Args:
            request: the request.
            domain: the part of engines' caches that it uses.
            cached: False for requests that leave nothing in a cache.
            rewrites: whether the answer can be rewritten.
        """
        raise NotImplementedError

    def by_name(self, request: ParsedRequest, *, cached: bool) -> RequestFeature | None:
        """Return the feature of a request in front of which the group's prompt is put.

        Args:
            request: the request.
            cached: False for requests that leave nothing in a cache.

        Raises:
            ApiError: the request is refused.
        """
        raise NotImplementedError


class GroupPoints(NamedTuple):
    """The features of one group, by the points at which they act on its requests before these have a replica."""

    domain: tuple[GroupFeature, ...] = ()
    change: tuple[GroupFeature, ...] = ()
    by_name: tuple[GroupFeature, ...] = ()
    stripped: frozenset[str] = frozenset()
    """Fields of bodies that engines do not get, beside those of their operator."""


class Continued(NamedTuple):
    """Where a request goes that continues a response."""

    member: Member | None
    """The replica that stores the response; None for a request that continues none."""
    session: SessionKey
    """The session of that response."""
    feature: RequestFeature | None
    """The feature of the request."""


class Continuation:
    """Where a request goes that continues a response which one replica stores."""

    def session(self, request: ParsedRequest, domain: CacheDomain) -> RequestSession | None:
        """Return the session of the response that a request continues; None if it continues none.

        Raises:
            ApiError: 404: the response is another caller's.
        """
        del request, domain
        return None

    def revision(self, group: GroupEntry, request: ParsedRequest) -> RevisionEntry | None:
        """Return the revision whose replica stores the response; None where none does."""
        del group, request
        return None

    def replica(self, request: ParsedRequest, placed: PlacedRequest) -> Continued:
        """Return the replica that stores the response, and the feature of the request.

        Raises:
            ApiError: 404: no replica that may serve the request stores it, or the response is another caller's.
        """
        del request, placed
        return Continued(None, NO_SESSION, None)


class RoutingPoints:
    """The features that take part in routing, composed for each group when a table is installed."""

    def __init__(self) -> None:
        self.groups: Mapping[str, GroupPoints] = {}
        """Id of candidates, or label of a group → its points; only those that differ from `every`."""
        self.every = GroupPoints()
        """The points of all other groups."""
        self.continuation = Continuation()

    def of(self, name: str) -> GroupPoints:
        """Return the points of a group by its label, or of a revision by the id of its candidates."""
        return self.groups.get(name, self.every)

    def unmatched(self, tenant: TenantEntry, request: ParsedRequest, leading: Leading) -> RequestFeature | None:
        """Return the feature of a request whose prompt no group declares."""
        del tenant, request, leading
        return None


class ProcessFeatures(RouterFeature):
    """All features of a process together, as the core uses them; without any, all callers are anonymous."""

    def __init__(self) -> None:
        self.tracer: RequestTracer | None = None
        """Records requests; None where tracing is off."""
        self.routing = RoutingPoints()
        """The features that take part in routing."""
        self.on_keys: list[Callable[[], None]] = []
        """Called after each request for an issuer's keys, whether or not it succeeded."""
        self.secrets: list[Callable[[RoutingTable], Iterable[tuple[str, str]]]] = []
        """Return namespace and name of the Secrets with credentials that a feature needs for a table."""

    def compose_steps(self, view: RoutingIndex) -> Generator[None, None, dict[str, GroupPoints]]:
        """Return the points of the groups of a table, in steps of a group: `routing.groups` once it is installed."""
        for _ in view.groups:
            yield
        return {}

    def access(self, own: Access | None) -> Access:
        """Return the effective access rules of a group: its own, or else the default."""
        return own if own is not None else ANYBODY

    def credential(self, namespace: str, reference: str) -> bytes:
        """Return the credential of a Secret for engines; empty if it has not been read."""
        del namespace, reference
        return b""
