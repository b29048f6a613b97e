"""Extracts the question of a request, and identifies everything else on which its answer depends."""

from typing import Any, NamedTuple, NewType

from promptgroup_router.apis.request import ApiKind, ParsedRequest

MOST_CHARACTERS = 2000
"""Longest question. A longer text contains facts of its own, such as a document, and is unlikely to be repeated."""

Circumstances = NewType("Circumstances", bytes)
"""Identifies everything on which an answer depends beside the question (32 bytes). Only questions with equal
circumstances are compared."""


class Question(NamedTuple):
    """The last message of a user, and its circumstances."""

    text: str
    circumstances: Circumstances


def read_question(request: ParsedRequest) -> tuple[str, ParsedRequest] | None:
    """Return the question of a request, and the request without it.

    The cache key of the latter identifies the question's circumstances: everything that separates two requests in the
    response cache separates their questions, too.

    Returns:
        None for a request with tools, or whose last message is no short text of a user.
    """
    messages = request.doc.get("messages")
    if request.kind not in (ApiKind.CHAT, ApiKind.MESSAGES) or not isinstance(messages, list) or not messages:
        return None
    if request.tools or request.doc.get("functions") or any(map(_uses_tools, messages)):
        return None
    last = messages[-1]
    text = _text_of(last)
    if text is None:
        return None
    return text, request.with_doc(request.doc | {"messages": [*messages[:-1], last | {"content": None}]})


def _uses_tools(message: Any) -> bool:
    """Return True if a message calls a tool, has a tool's result, or has parts that are no text."""
    if message.get("role") in ("tool", "function") or message.get("tool_calls") or message.get("function_call"):
        return True
    content = message.get("content")
    return isinstance(content, list) and not all(_is_text(part) for part in content)


def _is_text(part: object) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)


def _text_of(message: Any) -> str | None:
    """Return the text of a user's message; None if it is no short text."""
    if message.get("role") != "user":
        return None
    content = message.get("content")
    if isinstance(content, list):
        content = "\n".join(part["text"] for part in content)
    return content if isinstance(content, str) and content.strip() and len(content) <= MOST_CHARACTERS else None
