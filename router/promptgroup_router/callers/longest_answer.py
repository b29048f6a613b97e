"""The most tokens that a request's answers may have, as far as its body says: what is reserved of a caller's limit.

Does no I/O and reads no clock.
"""

from typing import Any

from promptgroup_router.apis.request import ApiKind
from promptgroup_router.documents import lax

UNSTATED = 4096
"""Tokens that are reserved for an answer without a stated length. Few answers are longer, and what is not used comes
back at their end; of a limit of 100,000 a minute it lets 20 such requests run at a time."""
MOST = 10**9
"""Longest answer that is believed to have been asked for: more than any limit leaves."""

_OF_CHAT, _OF_RESPONSES, _OF_OTHERS = ("max_completion_tokens", "max_tokens"), ("max_output_tokens",), ("max_tokens",)
"""Fields of a body that bound an answer."""
_COUNTS = ("n", "best_of")
"""Fields that ask for several answers, each as long as the bound allows."""
SAYING = frozenset((*_OF_CHAT, *_OF_RESPONSES, *_OF_OTHERS, *_COUNTS))
"""All of them."""


def longest_answer(kind: ApiKind, body: dict[str, Any]) -> tuple[int, bool]:
    """Return the tokens of all answers together, and whether the body bounds them; else UNSTATED for each.

    Fields that engines do not read on the API say nothing, and of two the larger one counts. A number counts in every
    spelling that engines take.
    """
    longest = 0
    for name in _OF_CHAT if kind is ApiKind.CHAT else _OF_RESPONSES if kind is ApiKind.RESPONSES else _OF_OTHERS:
        if name in body and (given := lax.whole(body[name])) is not None and given > longest:
            longest = given
    count = answers(kind, body) if "n" in body or "best_of" in body or kind is ApiKind.TEXT else 1
    if longest:
        return min(MOST, longest * count), True
    return min(MOST, UNSTATED * count), False


def answers(kind: ApiKind, body: dict[str, Any]) -> int:
    """Return the number of answers that a body asks for."""
    count = 1
    if kind is ApiKind.CHAT or kind is ApiKind.TEXT:
        for name in _COUNTS:
            if name in body and (given := lax.whole(body[name])) is not None and given > count:
                count = min(MOST, given)
    if kind is ApiKind.TEXT:
        count *= _prompts(body)
    return min(MOST, count)


def _prompts(body: dict[str, Any]) -> int:
    """Return the number of prompts of a text completion, each of which has answers of its own."""
    given, embedded = body.get("prompt"), body.get("prompt_embeds")
    texts = len(given) if isinstance(given, list) and given and isinstance(given[0], str | list) else 1
    return texts + (len(embedded) if isinstance(embedded, list) else int(isinstance(embedded, str)))
