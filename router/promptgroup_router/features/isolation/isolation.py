"""Isolates the callers of one group from each other's caches: which requests can be isolated, and what engines get."""

from collections.abc import Set as AbstractSet
from typing import Any

from promptgroup_contract.access import Caller
from promptgroup_contract.caller_rules import SALTS, EngineField
from promptgroup_router.apis.request import ApiKind, ParsedRequest
from promptgroup_router.base.errors import ApiError, shown
from promptgroup_router.features.isolation.salts import Salts
from promptgroup_router.prefixes.cache_domain import CacheDomain
from promptgroup_router.routing.engine_fields import with_text_field, without_engine_fields, without_media_ids
from promptgroup_router.routing.points import BodyChange
from promptgroup_router.routing.process_points import GroupFeature

_NEVER = SALTS | {EngineField.REQUEST_ID}
"""Fields that the clients of a group which isolates its callers never set, whatever it allows: its router
chooses salts, and the ids of responses, which are tagged with the caller's salt."""

_COMPUTING = (ApiKind.BY_MODEL, ApiKind.FORM, ApiKind.PASSED)
"""Requests for which engines compute something, although no prompt is cached for a later turn."""


_MAY_SET = frozenset(EngineField) - _NEVER


class IsolatedGroup(GroupFeature):
    """A group, or a pool of groups, that isolates its callers."""

    def __init__(self, salts: Salts, salted: AbstractSet[str]) -> None:
        """Isolate callers.

        Args:
            salts: the salts of all callers.
            salted: the APIs on which the engines of the replicas take a salt.
        """
        self._salts = salts
        self._salted = salted

    def domain(self, caller: Caller, namespace: str, request: ParsedRequest, *, cached: bool) -> CacheDomain:
        """Return the caller's own part of engines' caches, as `GroupFeature.domain` does.

        Raises:
            ApiError: 401: the caller is anonymous. 400: the engines take no salt on its API.
        """
        salted = self._salted
        if not caller.name:
            message = "the group keeps its callers apart, and does not know who asks: send a credential"
            raise ApiError(401, message, code="caller_unknown")
        if request.kind.value not in salted and (cached or request.kind in _COMPUTING):
            way = f"use one of {', '.join(sorted(salted))}" if salted else "ask one of its groups by name"
            message = f"model {shown(request.model)} keeps its callers apart, and its engines cannot on this API: {way}"
            raise ApiError(400, message, param="model", code="isolation_not_supported")
        return self._salts.of(namespace, caller)

    def change(self, request: ParsedRequest, domain: CacheDomain, *, cached: bool, rewrites: bool) -> BodyChange | None:
        """Return the salt for the body."""
        del rewrites
        takes = request.kind.value in self._salted and (cached or request.kind is ApiKind.BY_MODEL)
        return SaltedBody(domain.salt if takes else "")


class SaltedBody(BodyChange):
    """The body of an isolated caller."""

    __slots__ = ("_salt",)

    def __init__(self, salt: str) -> None:
        """Add a salt; empty for an API on which engines take none."""
        self._salt = salt

    def prepare(self, request: ParsedRequest) -> ParsedRequest:
        """Return the request without the fields that an isolated caller never sets, and without ids of media."""
        return without_media_ids(without_engine_fields(request, _MAY_SET))

    def finish(self, body: bytes | bytearray, request: ParsedRequest) -> bytes:
        """Return the body with the salt of its domain."""
        del request
        return with_text_field(bytes(body), EngineField.CACHE_SALT.value, self._salt) if self._salt else bytes(body)

    def document(self) -> dict[str, Any]:
        """Return the change as a value of JSON."""
        return {"salt": self._salt}
