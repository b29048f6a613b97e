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

HEADER = names.HEADER_USAGE.encode()
MOST_HELD = 4 << 20
"""Most bytes of a whole answer that are buffered until its usage has been read; a longer one is relayed without the
field."""


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
