"""Decides whether a request always has the same answer, so that it may be cached. Does no I/O and reads no clock.

Only JSON numbers are recognized. A request with another form that engines accept, such as `"0"`, bypasses the cache,
which is correct for any request.
"""

import enum

from promptgroup_contract.caller_rules import EngineField
from promptgroup_contract.table import ResponseCaching
from promptgroup_router.apis.request import ApiKind, ParsedRequest


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
