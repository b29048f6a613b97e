"""Computes the hit rate of every cache size at once, from the requests of a trace. Does no I/O.

A least-recently-used cache holds a block at its next use exactly when fewer tokens than the cache has were used since
its last one: its *reuse distance* (Mattson et al.: Evaluation techniques for storage hierarchies, IBM Systems Journal
9(2), 1970). One pass finds all distances, by a Fenwick tree over the times of use (Bennett and Kruskal, IBM Journal of
R&D 19(4), 1975), in O(log n) a block.

Engines free the blocks of a request from its end, so the beginning of a prompt was always used after its end, and a hit
is always a prefix. The end of a prompt that fills no block, and the answer, occupy the cache and are never hit: no
trace records which requests repeat them.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """A request of a trace, as far as caches need it."""

    blocks: Sequence[int]
    """Ids of the prompt's whole blocks, in order; an equal id means an equal prompt up to there."""
    block: int
    """Tokens of a block."""
    prompt: int
    """Tokens of the whole prompt, at least those of its blocks."""
    answer: int


class ReuseCurve:
    """The share of prompt tokens that hit a cache, by its size."""

    __slots__ = ("_distances", "_hits", "prompt_tokens", "requests")

    def __init__(self, reused: dict[int, int], prompt_tokens: int, requests: int) -> None:
        """Store the counts.

        Args:
            reused: distance in tokens → prompt tokens that hit a cache of at least so many.
            prompt_tokens: prompt tokens of all requests.
            requests: number of them.
        """
        self._distances = sorted(reused)
        self._hits = [0, *accumulate(reused[distance] for distance in self._distances)]
        self.prompt_tokens = prompt_tokens
        self.requests = requests

    def hit_rate(self, tokens: float) -> float:
        """Return the share of prompt tokens that hit a cache of so many tokens, 0 to 1."""
        return self._hits[bisect_right(self._distances, tokens)] / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def most(self) -> float:
        """Share of prompt tokens that hit a cache without bounds."""
        return self._hits[-1] / self.prompt_tokens if self.prompt_tokens else 0.0


class _Recency:
    """Tokens by the time of their last use: a Fenwick tree that begins anew when its times are used up."""

    __slots__ = ("_last", "_now", "_sums", "_tokens")

    def __init__(self) -> None:
        self._last: dict[int, int] = {}
        """Block → time of its last use."""
        self._tokens: dict[int, int] = {}
        """Block → its tokens."""
        self._sums = [0] * 1025
        self._now = 0

    def distance(self, block: int) -> int | None:
        """Return the tokens used since the block was, its own included; None when it never was."""
        last = self._last.get(block)
        return None if last is None else self._sum(self._now) - self._sum(last - 1)

    def use(self, block: int, tokens: int) -> None:
        last = self._last.pop(block, None)
        if last is not None:
            self._add(last, -self._tokens[block])
        if self._now + 1 == len(self._sums):
            self._renumber()
        self._now += 1
        self._last[block] = self._now
        self._tokens[block] = tokens
        self._add(self._now, tokens)

    def _renumber(self) -> None:
        """Give the blocks times without gaps, and space for as many again."""
        # the dictionary is in order of last use, because each use removes its key and adds it again
        self._last = {block: time for time, block in enumerate(self._last, start=1)}
        self._now = len(self._last)
        self._sums = [0] * (2 * self._now + 1025)
        for block, time in self._last.items():
            self._add(time, self._tokens[block])

    def _add(self, time: int, tokens: int) -> None:
        sums = self._sums
        while time < len(sums):
            sums[time] += tokens
            time += time & -time

    def _sum(self, time: int) -> int:
        sums, total = self._sums, 0
        while time > 0:
            total += sums[time]
            time -= time & -time
        return total


def curve(requests: Iterable[TraceRequest]) -> ReuseCurve:
    """Return the hit rates of all cache sizes for requests in the order of their arrival."""
    recency = _Recency()
    reused: dict[int, int] = {}
    prompt_tokens = count = 0
    unique = 0
    for request in requests:
        count += 1
        prompt_tokens += request.prompt
        # the request's own tokens must fit beside the tokens that it hits
        own = request.prompt + request.answer
        farthest = 0
        for number, block in enumerate(request.blocks, start=1):
            distance = recency.distance(block)
            if distance is None:
                break
            farthest = max(farthest, distance, own)
            # an engine computes at least the last token of a prompt
            size = request.block - (number * request.block == request.prompt)
            reused[farthest] = reused.get(farthest, 0) + size
        unique -= 1
        rest = request.prompt - len(request.blocks) * request.block + request.answer
        recency.use(unique, rest)
        for block in reversed(request.blocks):
            recency.use(block, request.block)
    return ReuseCurve(reused, prompt_tokens, count)
