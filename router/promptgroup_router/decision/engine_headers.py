"""Decides which header fields pass between clients and engines. Does no I/O.

Engines read header fields of their own, by which a request can choose the rank it runs on, its priority, the data of a
prompt that is returned, and the hosts that an engine connects to; fields of their answers disclose their load and their
cache, which groups share. The next release may have more such fields. So only listed fields pass, in both directions:
those that HTTP and tracing need, and those that a group names.
"""

from functools import lru_cache

from promptgroup_contract.access import Access
from promptgroup_contract.caller_rules import CachedTokens, CallerRules
from promptgroup_router.http11 import credentials
from promptgroup_router.http11.trace_context import HEADER as TRACEPARENT

_CODED = frozenset((b"accept-encoding",))
_TRACE = frozenset((TRACEPARENT,))
TO_ENGINES = _CODED | _TRACE | frozenset((b"accept", b"content-type", b"tracestate", b"user-agent"))
"""Fields of clients that engines get in every group.

Credentials pass where the group allows it, `accept-encoding` unless the answer is rewritten, which is impossible for a
compressed one, and `traceparent` unless the router records a span and sets the field itself. No supported engine reads
`baggage`, `anthropic-version` and its like, or the fields in which SDKs describe the client (`x-stainless-*`,
`openai-*`).
"""
FROM_ENGINES = frozenset(
    b"allow cache-control content-disposition content-encoding content-language content-length content-range "
    b"content-type date etag expires last-modified retry-after vary www-authenticate".split()
)
"""Fields of engines that clients get in every group: those that describe the type and the lifetime of an answer, when
to retry, and which credential is missing. The id of a request is the router's own."""
UNSIZED = FROM_ENGINES - {b"content-length"}
"""The same of an answer whose length changes on its way, or that has none."""

_SETS = tuple(
    (TO_ENGINES | (credentials.HEADERS if passes else frozenset()))
    - (frozenset() if coded else _CODED)
    - (_TRACE if traced else frozenset())
    for passes in (False, True)
    for coded in (False, True)
    for traced in (False, True)
)
"""All that a request may have, by three bits: passes credentials, may be coded, is traced."""


def to_engine(access: Access, rules: CallerRules, *, rewritten: bool = False, traced: bool = False) -> frozenset[bytes]:
    """Return the names of the client's header fields that an engine gets, in lower case.

    Args:
        access: to the group of the request.
        rules: of that group.
        rewritten: whether the answer is rewritten for another reason than the rules.
        traced: whether the engine gets the `traceparent` of a span of the router.
    """
    coded = rules.cached_tokens is CachedTokens.EXACT and not rewritten
    allowed = _SETS[4 * access.passes_credentials + 2 * coded + traced]
    return _with_named(allowed, rules.headers) if rules.headers else allowed


def from_engine(rules: CallerRules, *, sized: bool = True) -> frozenset[bytes]:
    """Return the names of an engine's header fields that the client gets, in lower case.

    Args:
        rules: of the group of the request.
        sized: whether the engine's length is that of the client's answer.
    """
    allowed = FROM_ENGINES if sized else UNSIZED
    return _with_named(allowed, rules.headers) if rules.headers else allowed


@lru_cache(1024)
def _with_named(allowed: frozenset[bytes], named: frozenset[str]) -> frozenset[bytes]:
    """Return the allowed names and those that a group names; none of the latter restores a field that was removed."""
    kept = {name.encode() for name in named}
    return allowed | (kept - TO_ENGINES - FROM_ENGINES)
