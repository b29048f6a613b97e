"""Decides whether an engine's answer is complete: some engines fail after they have sent the status 200."""

import re
from collections.abc import Sequence
from typing import Any

from promptgroup_router.apis.request import ApiKind
from promptgroup_router.response_cache.rewriting import document

_DONE = re.compile(rb"data:[ ]?\[DONE\][ \r\n]*")
_FAILED = ("abort", "aborted", "error")
"""Values of `finish_reason` of an answer that ended prematurely."""


def is_whole(kind: ApiKind, pieces: Sequence[bytes], *, streamed: bool) -> bool:
    """Return True if an answer with status 200 is complete, so that it may be cached.

    Args:
        kind: the API.
        pieces: the events of a stream, or the body.
        streamed: whether they are events.
    """
    if not streamed:
        body = document(pieces[0]) if len(pieces) == 1 else {}
        return bool(body) and not _is_failure(body) and _ends(kind, body)
    last = pieces[-1] if pieces else b""
    ended = document(last).get("type") == "message_stop" if kind is ApiKind.MESSAGES else _DONE.fullmatch(last)
    suspects = (piece for piece in pieces if b'"error"' in piece or b'"abort' in piece)
    return bool(ended) and last.endswith(b"\n") and not any(_is_failure(document(piece)) for piece in suspects)


def _ends(kind: ApiKind, body: dict[str, Any]) -> bool:
    """Return True if the body has the reason why the text ended."""
    if kind is ApiKind.MESSAGES:
        return isinstance(body.get("stop_reason"), str)
    choices = body.get("choices")
    return isinstance(choices, list) and all(isinstance(_reason(choice), str) for choice in choices)


def _is_failure(doc: dict[str, Any]) -> bool:
    if doc.get("error") or doc.get("type") == "error":
        return True
    choices = doc.get("choices")
    return isinstance(choices, list) and any(_reason(choice) in _FAILED for choice in choices)


def _reason(choice: object) -> object:
    return choice.get("finish_reason") if isinstance(choice, dict) else None
