"""Names the beginning of a prompt that no group declares, so that requests which begin alike are counted together.

The name is a hash of the first LEADING_BYTES of the system text. Volatile text at the top (`volatile`) is removed
before: otherwise, with a time in front of the prompt, each request would count as a prompt of its own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, cast

import xxhash

from promptgroup_router.apis.request import ApiKind, ParsedRequest, size_of
from promptgroup_router.apis.session_key import chat_start, first_ids
from promptgroup_router.prefixes.volatile import TopToken, on_top
from promptgroup_router.rings.ids import PrefixKey

LEADING_BYTES = 2048
"""Bytes of an undeclared prompt by which it is listed; for text completions also the bytes that serve as Tier 1."""
LEADING_IDS = 512
"""The same for a prompt of token ids: about as much text."""

_prefix_key = cast("Callable[..., PrefixKey]", xxhash.xxh3_64_intdigest)
"""The hash that names an undeclared prompt."""


class VolatileText(NamedTuple):
    """Volatile text at the top of a prompt."""

    rule: str
    """Id of the rule in `promptgroup lint`."""
    at: int
    """Bytes in front of it."""
    value: int
    """Hash of the text."""


@dataclass(frozen=True, slots=True)
class Leading:
    """The start of a prompt that no group declares."""

    hash: PrefixKey
    length: int
    """Bytes of the whole system text."""
    volatile: tuple[VolatileText, ...] = ()
    """The volatile text at the top, which the hash leaves out."""


def leading_of(request: ParsedRequest) -> tuple[Leading, PrefixKey]:
    """Return the start of an undeclared prompt, and the hash of the text that serves as its Tier 1."""
    if request.ids:
        listed = _prefix_key(first_ids(request, LEADING_IDS))
        return Leading(listed, 0), listed
    text = request.system.encode()
    start = text[:LEADING_BYTES]
    if not start and request.kind is not ApiKind.TEXT:
        value, first = chat_start(request)
        start = b"\0".join(value[:first])  # these are the same on every turn
    exact = _prefix_key(start)
    top = on_top(request.system)
    leading = Leading(
        _without(request.system, top) if top else exact, len(text), _told(request.system, top) if top else ()
    )
    if request.kind is ApiKind.TEXT or not (text or request.tools):
        return leading, exact
    # the whole text: wrongly assuming that a text is cached costs more than computing it again
    return leading, _prefix_key(request.tools.encode() + b"\0" + text)


def _without(text: str, top: list[TopToken]) -> PrefixKey:
    """Return the hash of the start of a text, in which matches of rules are replaced by the rule's name."""
    parts, done = [], 0
    for top_token in top:
        parts += [text[done : top_token.start], "\0", top_token.rule, "\0"]
        done = top_token.end
    parts.append(text[done : done + LEADING_BYTES])
    return _prefix_key("".join(parts).encode()[:LEADING_BYTES])


def _told(text: str, top: list[TopToken]) -> tuple[VolatileText, ...]:
    return tuple(
        VolatileText(
            top_token.rule,
            size_of(text[: top_token.start]),
            _prefix_key(text[top_token.start : top_token.end].encode()),
        )
        for top_token in top
    )
