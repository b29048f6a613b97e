"""Decides whether a request always has the same answer, so that it may be cached. Does no I/O.

Only JSON numbers are recognized. A request with another form that engines accept, such as `"0"`, bypasses the cache,
which is correct for any request.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b

from promptgroup_contract.caller_rules import EngineField
from promptgroup_contract.table import CacheScope, ResponseCaching
from promptgroup_router.apis.endpoints import Endpoint
from promptgroup_router.apis.request import ApiKind, ParsedRequest
from promptgroup_router.apis.session_key import CREDENTIALS
from promptgroup_router.base.errors import ApiError
from promptgroup_router.base.metrics import Metrics
from promptgroup_router.decision.arrival import endpoint_of
from promptgroup_router.features.cache_diagnosis import CacheDiagnosis
from promptgroup_router.features.kept_request import KeptRequest
from promptgroup_router.http11.http1 import Headers, RequestHead, pairs
from promptgroup_router.response_cache import cache_status
from promptgroup_router.response_cache.directives import NO_DIRECTIVES, Directives, read_directives
from promptgroup_router.routing.engine_fields import CACHE_FIELD
from promptgroup_router.routing.points import feature_of
from promptgroup_router.routing.route import Route


class Bypass(enum.StrEnum):
    """The reason for which a request bypasses the cache; a label of a metric, and a detail of `Cache-Status`."""

    API = "api"
    """The API is not chat completions, completions or messages."""
    CALLER = "caller"
    """Each caller has its own answers, and this one cannot be distinguished from others."""
    CHOICES = "choices"
    """The request asks for several answers."""
    ENGINE = "engine"
    """The engine settings are unknown, or differ between the replicas."""
    MEDIA = "media"
    """The prompt has parts other than text, whose content may change at the same address."""
    LARGE = "large"
    """The body is so large that another process parses it."""
    QUESTION = "diagnostics"
    """The client asks why its prompt missed the engine's cache, which only an engine's answer shows."""
    SAMPLING = "sampling"
    """The request samples: its temperature is not 0, and no trusted seed is given."""
    SESSION = "session"
    """The engine stores the conversation: the answer depends on earlier requests, and the engine must get this one."""
    REQUEST = "no-store"
    """The request forbids it."""


_BYPASSED: dict[Bypass, Headers] = {reason: cache_status.of_bypass(reason) for reason in Bypass}
"""The header fields of an answer to a request that bypasses the cache, by the reason."""
_KINDS = (ApiKind.CHAT, ApiKind.TEXT, ApiKind.MESSAGES)


def bypass(
    request: ParsedRequest, caching: ResponseCaching, settings: str, allowed: frozenset[EngineField]
) -> Bypass | None:
    """Return the reason for which a request bypasses the cache; None if its answer may be cached.

    Args:
        request: the request.
        caching: the group's rules.
        settings: digest of the engine settings; empty while it is unknown.
        allowed: the fields of the engine's operator that are not removed from the body.
    """
    doc = request.doc
    if request.kind not in _KINDS:
        return Bypass.API
    if not settings:
        return Bypass.ENGINE
    if request.media:
        return Bypass.MEDIA
    if EngineField.SESSION_PARAMS in allowed and doc.get(EngineField.SESSION_PARAMS) is not None:
        return Bypass.SESSION
    if not (_is_zero(doc.get("temperature")) or (caching.trust_seed and _is_whole(doc.get("seed")))):
        return Bypass.SAMPLING
    if not (_is_single(doc.get("n")) and _is_single(doc.get("best_of"))) or _has_several_prompts(doc.get("prompt")):
        return Bypass.CHOICES
    return None


def _is_zero(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == 0


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_single(value: object) -> bool:
    return value is None or (_is_whole(value) and value == 1)


def _has_several_prompts(prompt: object) -> bool:
    return isinstance(prompt, list) and len(prompt) > 1 and not all(isinstance(item, int) for item in prompt)


@dataclass(slots=True)
class EligibleRequest:
    """A request that the cache may answer."""

    parsed: ParsedRequest
    endpoint: Endpoint
    caching: ResponseCaching
    """The rules of its group."""
    directives: Directives
    """Those of its client."""
    sharers: bytes
    """Identifies the callers that share its answer; empty for all."""


class Eligibility:
    """Decides which requests the cache may answer."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float]) -> None:
        """Decide for a router.

        Args:
            metrics: of the router, which count the others.
            clock: monotonic seconds.
        """
        self._metrics = metrics
        self._clock = clock

    def judge(self, head: RequestHead, route: Route) -> EligibleRequest | Headers | None:
        """Return a request that the cache may answer, or the header fields for the answer to one that bypasses it.

        Args:
            head: of the request.
            route: where it may go.

        Returns:
            None for a request whose body was not parsed for the cache.

        Raises:
            ApiError: 400: the body's `cache` is invalid; 504: the client accepts only a cached answer.
        """
        kept_request, caching = feature_of(route.features, KeptRequest), route.candidates.responses
        if kept_request is None:
            return None
        parsed = kept_request.ask
        if caching is None or parsed is None:
            raise RuntimeError(f"{route.group} keeps no answers: check before the call")
        directives = self._directives(head, route, parsed)
        # the parsed document takes more memory than the body, and is not needed once the key is computed
        kept_request.ask = None
        endpoint = endpoint_of(head.path)
        if feature_of(route.features, CacheDiagnosis) is not None:
            reason: Bypass | None = Bypass.QUESTION
        elif not endpoint.cached:
            reason = Bypass.API
        elif directives.no_store:
            reason = Bypass.REQUEST
        else:
            reason = bypass(parsed, caching, route.candidates.settings, route.rewrite.allowed)
        sharers = _sharers(caching, route, head.fields) if reason is None else None
        if sharers is not None:
            return EligibleRequest(parsed, endpoint, caching, directives, sharers)
        route.remove(kept_request)
        return self.bypassed(route, directives, reason or Bypass.CALLER)

    def bypassed_large(self, head: RequestHead, route: Route, parsed: ParsedRequest) -> Headers:
        """Return the header fields for the answer to a request of which only a digest of the body is available.

        Raises:
            ApiError: as `judge` does.
        """
        return self.bypassed(route, self._directives(head, route, parsed), Bypass.LARGE)

    def bypassed(self, route: Route, directives: Directives, reason: Bypass) -> Headers:
        """Count a request that bypasses the cache; return the header fields about it for its answer.

        Raises:
            ApiError: 504: the client accepts only a cached answer.
        """
        if directives.only_if_cached:
            raise self.not_cached(route)
        self._metrics.responses.add(route.group, "bypass")
        return _BYPASSED[reason]

    def not_cached(self, route: Route) -> ApiError:
        """Return the error for a client that accepts only a cached answer where there is none."""
        self.withdraw(route)
        return ApiError(504, "there is no kept answer: leave out `only-if-cached` for an engine's", code="not_cached")

    def withdraw(self, route: Route) -> None:
        """Refund the tokens charged for a request that no engine has computed; it still counts as a request."""
        for feature in route.features:
            feature.withdrawn(self._clock())

    def _directives(self, head: RequestHead, route: Route, parsed: ParsedRequest) -> Directives:
        field = parsed.doc.get(CACHE_FIELD)
        if field is None and b"cache-control" not in head.fields:
            return NO_DIRECTIVES
        try:
            return read_directives(pairs(head.headers), field)
        except ApiError:
            self.withdraw(route)
            raise


def _sharers(caching: ResponseCaching, route: Route, fields: dict[bytes, bytes]) -> bytes | None:
    """Return an identifier of the callers that share a request's answer; empty for all, None if it is undetermined.

    A credential that only the engine verifies separates the callers that send it from all others: a caller without a
    credential, or with a wrong one, must be refused by the engine.
    """
    if route.rewrite.domain.salt:
        # callers that are isolated in engines' caches are isolated here
        return b"salt:" + route.rewrite.domain.salt.encode()
    if route.caller.name:
        return b"" if caching.scope is CacheScope.GROUP else b"name:" + route.caller.name.encode()
    given = [name + b":" + fields[name] for name in CREDENTIALS if name in fields]
    if given:
        return b"credential:" + blake2b(b"\n".join(given), digest_size=16).hexdigest().encode()
    return b"" if caching.scope is CacheScope.GROUP else None
