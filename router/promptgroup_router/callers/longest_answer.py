"""The most tokens that a request's answers may have by its body, which are reserved from the caller's limit."""

from typing import Any

from promptgroup_router.apis.request import ApiKind
from promptgroup_router.documents import lax

UNSTATED = 4096
"""Tokens that are reserved for an answer without a stated length. Few answers are longer, and unused tokens are
returned at their end; of a limit of 100,000 a minute it lets 20 such requests run at a time."""
MOST = 10**9
"""Upper bound of a requested answer length: more than any limit leaves."""

_OF_CHAT, _OF_RESPONSES, _OF_OTHERS = ("max_completion_tokens", "max_tokens"), ("max_output_tokens",), ("max_tokens",)
"""Fields of a body that bound an answer."""
_COUNTS = ("n", "best_of")
"""Fields that ask for several answers, each as long as the bound allows."""
SAYING = frozenset((*_OF_CHAT, *_OF_RESPONSES, *_OF_OTHERS, *_COUNTS))
"""All of them."""


def longest_answer(kind: ApiKind, body: dict[str, Any], prompts: int = 1) -> tuple[int, bool]:
    """Return the tokens of all answers together, and whether the body bounds them; else UNSTATED for each.

    Fields that engines do not read on the API are ignored, and of two the larger one counts. A number counts in every
    spelling that engines take.

    Args:
        kind: the API.
        body: the fields of the request.
        prompts: number of prompts that its engine gets, each of which has answers of its own.
    """
    longest = 0
    for name in _OF_CHAT if kind is ApiKind.CHAT else _OF_RESPONSES if kind is ApiKind.RESPONSES else _OF_OTHERS:
        if name in body and (given := lax.whole(body[name])) is not None and given > longest:
            longest = given
    count = prompts * _each(kind, body) if "n" in body or "best_of" in body else prompts
    if longest:
        return min(MOST, longest * count), True
    return min(MOST, UNSTATED * count), False


def _each(kind: ApiKind, body: dict[str, Any]) -> int:
    """Return the number of answers that a body requests for each prompt."""
    count = 1
    if kind is ApiKind.CHAT or kind is ApiKind.TEXT:
        for name in _COUNTS:
            if name in body and (given := lax.whole(body[name])) is not None and given > count:
                count = min(MOST, given)
    return count
