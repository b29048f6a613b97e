"""Isolates the callers of one group from each other's caches: which requests can be isolated, and what engines get."""

from collections.abc import Set as AbstractSet

from promptgroup_contract.access import Caller
from promptgroup_contract.caller_rules import SALTS, EngineField
from promptgroup_router.apis.request import ApiKind, ParsedRequest
from promptgroup_router.base.errors import ApiError, shown
from promptgroup_router.callers.engine_fields import NONE, with_text_field, without_engine_fields, without_media_ids
from promptgroup_router.callers.salts import Salts
from promptgroup_router.prefixes.cache_domain import SHARED, CacheDomain

_NEVER = SALTS | {EngineField.REQUEST_ID}
"""Fields that the clients of a group which isolates its callers never set, whatever it allows: its router
chooses salts, and the ids of responses, which are tagged with the caller's salt."""

_COMPUTING = (ApiKind.BY_MODEL, ApiKind.FORM, ApiKind.PASSED)
"""Requests for which engines compute something, although no prompt is cached for a later turn."""


def cache_domain(
    salted: AbstractSet[str] | None,
    salts: Salts | None,
    caller: Caller,
    namespace: str,
    request: ParsedRequest,
    *,
    cached: bool,
) -> CacheDomain:
    """Return the domain of a request.

    Args:
        salted: the APIs on which the engines of its replicas take a salt; None where callers share their caches.
        salts: the salts of all callers.
        caller: who sends it.
        namespace: the namespace of its group.
        request: the request.
        cached: False for requests that leave nothing in a cache.

    Raises:
        ApiError: 401: the caller is anonymous. 400: the engines take no salt on its API.
    """
    if salted is None:
        return SHARED
    if salts is None:
        raise RuntimeError("a group keeps its callers apart, and no salts are given")
    if not caller.name:
        message = "the group keeps its callers apart, and does not know who asks: send a credential"
        raise ApiError(401, message, code="caller_unknown")
    if request.kind.value not in salted and (cached or request.kind in _COMPUTING):
        way = f"use one of {', '.join(sorted(salted))}" if salted else "ask one of its groups by name"
        message = f"model {shown(request.model)} keeps its callers apart, and its engines cannot on this API: {way}"
        raise ApiError(400, message, param="model", code="isolation_not_supported")
    return salts.of(namespace, caller)


def for_engine(
    request: ParsedRequest, allowed: frozenset[EngineField], domain: CacheDomain, further: frozenset[str] = NONE
) -> ParsedRequest:
    """Return a request without the fields that its client may not set, and without further fields."""
    if not domain.salt:
        return without_engine_fields(request, allowed, further)
    return without_media_ids(without_engine_fields(request, allowed - _NEVER, further))


def salted_body(
    body: bytes, domain: CacheDomain, salted: AbstractSet[str] | None, kind: ApiKind, *, cached: bool
) -> bytes:
    """Return the body that goes to the engine, with the salt of its domain."""
    if not domain.salt or not salted or kind.value not in salted or not (cached or kind is ApiKind.BY_MODEL):
        return body
    return with_text_field(body, EngineField.CACHE_SALT.value, domain.salt)
