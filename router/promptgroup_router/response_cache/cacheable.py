"""Decides whether a request has one answer that may be kept. Does no I/O and reads no clock.

Numbers count here in JSON's own form alone. In another spelling that engines take, such as `"0"`, a request goes past
the cache, which is right for any request.
"""

import enum

from promptgroup_contract.caller_rules import EngineField
from promptgroup_contract.table import ResponseCaching
from promptgroup_router.apis.request import ApiKind, ParsedRequest


class Bypass(enum.StrEnum):
    """The reason for which a request goes past the cache; a label of a metric, and a detail of `Cache-Status`."""

    API = "api"
    """The API is not chat completions, completions or messages."""
    CALLER = "caller"
    """Each caller has its own answers, and this one cannot be told from others."""
    CHOICES = "choices"
    """The request asks for several answers."""
    ENGINE = "engine"
    """The engine settings are unknown, or differ between the replicas."""
    MEDIA = "media"
    """The prompt has parts other than text, which may change behind their address."""
    LARGE = "large"
    """The body is so large that another process reads it."""
    QUESTION = "diagnostics"
    """The client asks why its prompt was not found in the engine's cache, which an engine's answer alone tells."""
    SAMPLING = "sampling"
    """The request samples: its temperature is not 0, and no trusted seed is given."""
    SESSION = "session"
    """The engine keeps the conversation: the answer follows from what it was asked before, and it must hear of this."""
    REQUEST = "no-store"
    """The request forbids it."""


_KINDS = (ApiKind.CHAT, ApiKind.TEXT, ApiKind.MESSAGES)


def bypass(
    request: ParsedRequest, caching: ResponseCaching, settings: str, allowed: frozenset[EngineField]
) -> Bypass | None:
    """Return the reason for which a request goes past the cache; None if its answer may be kept.

    Args:
        request: the request.
        caching: what the group keeps.
        settings: digest of the engine settings; empty while it is unknown.
        allowed: the fields of the engine's operator that are not taken out of the body.
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
