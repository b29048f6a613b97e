"""Reads pairs of questions that a person has judged, and holds half of them out."""

from hashlib import blake2b
from typing import NamedTuple

from promptgroup_cli.base import bounded_json
from promptgroup_cli.base.bounded_json import JsonError
from promptgroup_cli.base.errors import InputError

MOST_PAIRS = 100_000
MOST_CHARACTERS = 2000
"""Longest question, as in routers."""


class Pair(NamedTuple):
    """Two questions."""

    one: str
    other: str
    same: bool
    """True if one answer is right for both."""


class Judged(NamedTuple):
    """A pair, and its similarity for a semantic cache."""

    pair: Pair
    similarity: float
    """Cosine of the two embeddings."""


def read_pairs(content: bytes, name: str) -> list[Pair]:
    """Read a file of pairs: JSON Lines with `a`, `b` and `same`.

    Raises:
        InputError: a line is no pair, or there are too many. The message never quotes it.
    """
    pairs: list[Pair] = []
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip():
            continue
        try:
            doc = bounded_json.parse(line)
        except JsonError as error:
            raise InputError(f"{name}: line {number}: {error}") from None
        values = [doc.get(key) for key in ("a", "b", "same")] if isinstance(doc, dict) else [None] * 3
        one, other, same = values
        if not (isinstance(one, str) and isinstance(other, str) and isinstance(same, bool)):
            raise InputError(
                f'{name}: line {number} is no pair: write {{"a": "text", "b": "text", "same": true or false}}'
            )
        if not (len(one.strip()) > 0 and len(other.strip()) > 0 and max(len(one), len(other)) <= MOST_CHARACTERS):
            raise InputError(
                f"{name}: line {number}: a question has no text, or more than {MOST_CHARACTERS} characters"
            )
        pairs.append(Pair(one, other, same))
        if len(pairs) > MOST_PAIRS:
            raise InputError(f"{name}: more than {MOST_PAIRS} pairs: give a sample of them")
    if not pairs:
        raise InputError(f"{name}: no pairs")
    return pairs


def is_held_out(pair: Pair) -> bool:
    """Return True for about half of all pairs; all pairs with one first question are on one side."""
    return blake2b(pair.one.encode(), digest_size=1).digest()[0] % 2 == 1
