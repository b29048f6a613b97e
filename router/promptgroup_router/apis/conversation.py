"""Compares the start of a conversation with declared messages, in all APIs."""

from collections.abc import Mapping, Sequence
from typing import Any

from promptgroup_contract.messages import ROLES, canonical_messages
from promptgroup_router.apis.request import SYSTEM_ROLES, ApiKind, ParsedRequest, size_of

_TEXTS = frozenset({"text", "input_text", "output_text"})
"""Types of parts that are text in one of the APIs."""
_NOT_RENDERED = frozenset({"role", "content", "type", "id", "status", "cache_control", "annotations", "logprobs"})
"""Fields of a message, and of its parts, that add nothing to the prompt."""


def first_messages(request: ParsedRequest, count: int) -> str | None:
    """Return the first messages behind the instructions in canonical form.

    Returns:
        None if the conversation has fewer messages, or one of these has more than a text of the user or the assistant.
    """
    texts = _texts(request, count)
    return canonical_messages(texts) if texts is not None else None


def first_bytes(request: ParsedRequest, count: int) -> int:
    """Return the bytes of the text in the first messages behind the instructions; 0 if they are no plain texts."""
    return sum(size_of(text) for _, text in _texts(request, count) or ())


def _texts(request: ParsedRequest, count: int) -> list[tuple[str, str]] | None:
    items = _items(request)
    start = 1 if items and items[0].get("role") in SYSTEM_ROLES else 0
    if len(items) < start + count:
        return None
    result = []
    for item in items[start : start + count]:
        text = _text(item)
        if text is None:
            return None
        result.append((item["role"], text))
    return result


def _items(request: ParsedRequest) -> Sequence[Mapping[str, Any]]:
    if request.kind is not ApiKind.RESPONSES:
        return request.messages
    given = request.doc["input"]
    return given if isinstance(given, list) else request.messages


def _text(item: Mapping[str, Any]) -> str | None:
    """Return the text of a message that is nothing but a text."""
    if item.get("role") not in ROLES or item.get("type", "message") != "message" or _says_more(item):
        return None
    content = item.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    texts = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") not in _TEXTS or _says_more(part, "text"):
            return None
        text = part.get("text")
        if not isinstance(text, str):
            return None
        texts.append(text)
    return "\n".join(texts)


def _says_more(fields: Mapping[str, Any], *read: str) -> bool:
    """Return True if a message or a part has a field that may change the prompt; null is equivalent to no field."""
    return any(value is not None and name not in _NOT_RENDERED and name not in read for name, value in fields.items())
