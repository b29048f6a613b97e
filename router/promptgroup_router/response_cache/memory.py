"""Caches answers in memory, within limits in bytes per group and in total. Does no I/O and reads no clock.

Answers are evicted by S3-FIFO (Yang et al., SOSP 2023): most answers are requested once, and these are evicted from a
small queue before they displace one that is requested again.
"""

from collections import OrderedDict
from collections.abc import Callable

from promptgroup_router.response_cache.answer import KeptAnswer
from promptgroup_router.response_cache.canonical import CacheKey

SMALL_SHARE = 10
"""The small queue has a tenth of the bytes."""
MOST_USES = 3
"""Most uses that are counted; further ones do not delay the eviction of an answer."""
GHOSTS = 4096
"""Most keys that are recorded of answers that were evicted from the small queue."""


class GroupAnswers:
    """The answers of one group."""

    def __init__(self) -> None:
        self.bytes = 0
        self._small: OrderedDict[CacheKey, KeptAnswer] = OrderedDict()
        self._main: OrderedDict[CacheKey, KeptAnswer] = OrderedDict()
        self._ghosts: OrderedDict[CacheKey, None] = OrderedDict()
        self._uses: dict[CacheKey, int] = {}
        self._small_bytes = 0

    def __len__(self) -> int:
        return len(self._uses)

    def get(self, key: CacheKey) -> KeptAnswer | None:
        """Return an answer; None if there is none."""
        kept_answer = self._small.get(key) or self._main.get(key)
        if kept_answer is not None:
            self._uses[key] = min(MOST_USES, self._uses[key] + 1)
        return kept_answer

    def put(self, answer: KeptAnswer) -> None:
        """Cache an answer, in place of an older one with its key."""
        key = answer.key
        self.remove(key)
        self._uses[key] = 0
        self.bytes += answer.size
        if key in self._ghosts:
            del self._ghosts[key]
            self._main[key] = answer
        else:
            self._small[key] = answer
            self._small_bytes += answer.size

    def remove(self, key: CacheKey) -> bool:
        """Remove an answer. Return True if there was one."""
        kept_answer = self._small.pop(key, None)
        if kept_answer is not None:
            self._small_bytes -= kept_answer.size
        else:
            kept_answer = self._main.pop(key, None)
        if kept_answer is None:
            return False
        self.bytes -= kept_answer.size
        del self._uses[key]
        return True

    def remove_if(self, desired: Callable[[KeptAnswer], bool]) -> int:
        """Remove the desired answers. Return their number."""
        gone = [answer.key for answers in (self._small, self._main) for answer in answers.values() if desired(answer)]
        return sum(self.remove(key) for key in gone)

    def shrink(self, limit: int) -> int:
        """Evict answers until the others fit. Return the number of evicted answers."""
        removed = 0
        while self.bytes > limit:
            if self._small and (self._small_bytes > limit // SMALL_SHARE or not self._main):
                removed += self._shrink_small()
            else:
                removed += self._shrink_main()
        return removed

    def _shrink_small(self) -> int:
        key, answer = self._small.popitem(last=False)
        self._small_bytes -= answer.size
        if self._uses[key]:
            self._uses[key] = 0
            self._main[key] = answer
            return 0
        self._ghosts[key] = None
        if len(self._ghosts) > GHOSTS:
            self._ghosts.popitem(last=False)
        self.bytes -= answer.size
        del self._uses[key]
        return 1

    def _shrink_main(self) -> int:
        key, answer = self._main.popitem(last=False)
        if self._uses[key]:
            self._uses[key] -= 1
            self._main[key] = answer
            return 0
        self.bytes -= answer.size
        del self._uses[key]
        return 1


class Memory:
    """The answers of all groups."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        """Most bytes of all groups together."""
        self.groups: dict[str, GroupAnswers] = {}
        self.evictions = 0
        """Number of answers that were evicted."""

    @property
    def bytes(self) -> int:
        """Bytes of all groups together."""
        return sum(group.bytes for group in self.groups.values())

    def get(self, group: str, key: CacheKey) -> KeptAnswer | None:
        """Return an answer of a group; None if there is none."""
        answers = self.groups.get(group)
        return answers.get(key) if answers is not None else None

    def put(self, answer: KeptAnswer, limit: int) -> None:
        """Cache an answer; evict others beyond `limit` bytes in its group, and beyond the total limit.

        An answer that would take more than half of either limit is not cached.
        """
        if 2 * answer.size > min(limit, self.limit):
            return
        answers = self.groups.setdefault(answer.group, GroupAnswers())
        answers.put(answer)
        self.evictions += answers.shrink(limit)
        while (excess := self.bytes - self.limit) > 0:
            largest = max(self.groups.values(), key=lambda group: group.bytes)
            self.evictions += largest.shrink(largest.bytes - excess)

    def remove(self, group: str, key: CacheKey) -> None:
        """Remove an answer."""
        if (answers := self.groups.get(group)) is not None:
            answers.remove(key)

    def remove_if(self, desired: Callable[[KeptAnswer], bool]) -> int:
        """Remove the desired answers. Return their number."""
        return sum(answers.remove_if(desired) for answers in self.groups.values())

    def keep(self, limits: dict[str, int]) -> None:
        """Remove the groups that are not listed, and shrink the others to their limits (in bytes)."""
        for group in self.groups.keys() - limits.keys():
            del self.groups[group]
        for group, answers in self.groups.items():
            self.evictions += answers.shrink(limits[group])
