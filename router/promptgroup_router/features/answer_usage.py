"""The usage in an engine's answer: requested where the client did not, removed again, or hidden by a group's rules."""

from functools import lru_cache
from typing import Any, Final

from promptgroup_contract.caller_rules import CachedTokens
from promptgroup_router.apis.request import ParsedRequest
from promptgroup_router.callers.reported_usage import ReportedUsage
from promptgroup_router.callers.unasked_usage import NO_CHOICES, OPTIONS, UsageEvents, asking, is_unasked
from promptgroup_router.prefixes.cache_domain import CacheDomain
from promptgroup_router.routing.points import Answering, BodyChange, RequestFeature
from promptgroup_router.routing.process_points import GroupFeature

OK = 200


@lru_cache(256)
def without_coding(allowed: frozenset[bytes]) -> frozenset[bytes]:
    """Return names of header fields, in lower case, without the one by which an engine may compress its answer."""
    return allowed - {b"accept-encoding"}


class UsageRequest(BodyChange):
    """Requests the usage of a stream whose client did not."""

    def finish(self, body: bytes | bytearray, request: ParsedRequest) -> bytes:
        """Return the body with the option that requests the usage."""
        return asking(request, body)

    def splices(self, request: ParsedRequest) -> bool:
        """Return True if the request has no options, to which the option would be added."""
        return OPTIONS not in request.doc

    def document(self) -> dict[str, Any]:
        """Return the change as a value of JSON."""
        return {"usage": True}


USAGE_REQUEST: Final = UsageRequest()


class MeteredGroup(GroupFeature):
    """A group whose router requests the usage of streams."""

    def change(self, request: ParsedRequest, domain: CacheDomain, *, cached: bool, rewrites: bool) -> BodyChange | None:
        """Return the request for the usage, if the client has not requested it."""
        del domain, cached
        return USAGE_REQUEST if rewrites and is_unasked(request) else None


class UnaskedUsage(RequestFeature):
    """Removes the event with the usage from a stream whose client did not request it."""

    __slots__ = ()

    def engine_fields(self, allowed: frozenset[bytes]) -> frozenset[bytes]:
        """Return the allowed fields without the coding of the answer, which is rewritten."""
        return without_coding(allowed)

    def answering(self, answer: Answering) -> None:
        """Rewrite a stream that can be parsed."""
        if answer.streamed and answer.status == OK and not answer.compressed:
            answer.rewrite(UsageEvents(), NO_CHOICES)


class HiddenUsage(RequestFeature):
    """Reports cached tokens only as the group allows."""

    __slots__ = ("_how",)

    def __init__(self, how: CachedTokens) -> None:
        self._how = how

    def answering(self, answer: Answering) -> None:
        """Rewrite any answer that may report them; the rewriter refuses one that cannot be parsed."""
        if answer.status == OK:
            answer.rewrite(ReportedUsage(self._how, streamed=answer.streamed, compressed=answer.compressed))
