"""The messages of a Tier-1 prefix: examples that stand between the system text and the conversation.

A declared message is a text of the user or of the assistant, since these have a form in every API. Their canonical form
is part of the fingerprint: JSON without blanks, `[{"content":"…","role":"user"},…]`.
"""

import json
from collections.abc import Iterable

ROLES = ("user", "assistant")
"""Roles of declared messages, which take turns: chat templates refuse two messages of one role in a row."""


def canonical_messages(messages: Iterable[tuple[str, str]]) -> str:
    """Return the canonical form of messages, given as roles and texts; the empty string for no messages."""
    listed = [{"content": text, "role": role} for role, text in messages]
    return json.dumps(listed, separators=(",", ":"), ensure_ascii=False) if listed else ""


def read_messages(canonical: str) -> list[tuple[str, str]]:
    """Return the roles and texts of messages in canonical form.

    Raises:
        ValueError: the text is no such form; the error does not quote it.
    """
    if not canonical:
        return []
    try:
        listed = json.loads(canonical)
    except (ValueError, RecursionError):
        raise ValueError("messages are not JSON") from None
    objects = [item for item in (listed if isinstance(listed, list) else ()) if isinstance(item, dict)]
    result = [(item.get("role"), item.get("content")) for item in objects]
    messages = [(role, text) for role, text in result if role in ROLES and isinstance(text, str)]
    if not messages or canonical_messages(messages) != canonical:
        raise ValueError("messages are not a list of texts of user and assistant in canonical form")
    return messages
