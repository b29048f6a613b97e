"""Reports the usage of a request to a client that asks for it: in a header field, or in a comment of a stream.

The value is a dictionary of structured fields (RFC 9651 section 3.2), the same in both:

| answer | has                                                                                            |
|--------|------------------------------------------------------------------------------------------------|
| whole  | the header field `x-promptgroup-usage: prompt=1200, cached=1152, answer=16`                     |
| stream | the last line, `: x-promptgroup-usage: prompt=1200, cached=1152, answer=16`, a comment           |

Trailers would fit both, but clients and proxies drop them; every reader of events skips comments.
"""

from promptgroup_contract import names
from promptgroup_contract.caller_rules import CACHED_STEP, CachedTokens
from promptgroup_router.apis.usage import Usage
from promptgroup_router.routing.points import Answering, RequestFeature

OK = 200
HEADER = names.HEADER_USAGE.encode()


class ToldUsage(RequestFeature):
    """The usage of a request, which its client asks for."""

    __slots__ = ("_how",)
    reads_usage = True

    def __init__(self, how: CachedTokens) -> None:
        """Report the usage, with the precision of cached tokens that the group allows."""
        self._how = how

    def answering(self, answer: Answering) -> None:
        """Add the header field to a whole answer, and the comment to the end of a stream."""
        if answer.status != OK:
            return
        answer.fields += header_fields(answer.usage, self._how)
        if answer.streamed and not answer.compressed:
            answer.closing = self.comment

    def comment(self, usage: Usage | None) -> bytes:
        """Return the comment at the end of a stream."""
        return comment(usage, self._how)


def asks(fields: dict[bytes, bytes]) -> bool:
    """Return True if a request asks for its usage; its header fields have names in lower case."""
    field = fields.get(HEADER)
    return field is not None and field.lower() == b"true"


def header_fields(usage: Usage | None, how: CachedTokens) -> list[tuple[bytes, bytes]]:
    """Return the header field for a whole answer; none where its engine reports no usage."""
    return [(HEADER, _value(usage, how))] if usage is not None else []


def comment(usage: Usage | None, how: CachedTokens) -> bytes:
    """Return the comment at the end of a stream; empty where its engine reports no usage."""
    return b"\n: %b: %b\n\n" % (HEADER, _value(usage, how)) if usage is not None else b""


def _value(usage: Usage, how: CachedTokens) -> bytes:
    result = [b"prompt=%d" % usage.prompt_tokens]
    cached = usage.cached_tokens
    if cached is not None and how is not CachedTokens.HIDDEN:
        result.append(b"cached=%d" % (cached - cached % CACHED_STEP if how is CachedTokens.ROUNDED else cached))
    return b", ".join([*result, b"answer=%d" % usage.completion_tokens])
