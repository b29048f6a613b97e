"""Keeps answers in memory, up to so many bytes of each group and of all. Does no I/O and reads no clock.

What goes is chosen by S3-FIFO (Yang et al., SOSP 2023): most answers are asked for once, and these leave by a small
queue before they have displaced one that is asked for again.
"""

from collections import OrderedDict
from collections.abc import Callable

from promptgroup_router.response_cache.answer import KeptAnswer
from promptgroup_router.response_cache.canonical import CacheKey

SMALL_SHARE = 10
"""The small queue has a tenth of the bytes."""
MOST_USES = 3
"""Uses beyond these do not keep an answer for longer."""
GHOSTS = 4096
"""Most keys that are remembered of answers that left by the small queue."""


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
        """Return an answer."""
        kept_answer = self._small.get(key) or self._main.get(key)
        if kept_answer is not None:
            self._uses[key] = min(MOST_USES, self._uses[key] + 1)
        return kept_answer

    def put(self, answer: KeptAnswer) -> None:
        """Keep an answer in place of an older one."""
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
        """Remove some answers. Return their number."""
        gone = [answer.key for answers in (self._small, self._main) for answer in answers.values() if desired(answer)]
        return sum(self.remove(key) for key in gone)

    def shrink(self, limit: int) -> int:
        """Remove answers until they fit. Return their number."""
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
        """Answers that made room for others."""

    @property
    def bytes(self) -> int:
        """Bytes of all groups together."""
        return sum(group.bytes for group in self.groups.values())

    def get(self, group: str, key: CacheKey) -> KeptAnswer | None:
        """Return an answer of a group."""
        answers = self.groups.get(group)
        return answers.get(key) if answers is not None else None

    def put(self, answer: KeptAnswer, limit: int) -> None:
        """Keep an answer; others go if they have more bytes than `limit` in its group, or than the limit in all.

        One that would take more than half of the room is not kept.
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
        """Remove some answers. Return their number."""
        return sum(answers.remove_if(desired) for answers in self.groups.values())

    def keep(self, limits: dict[str, int]) -> None:
        """Forget the groups that are not listed, and bring the others within their limits (in bytes)."""
        for group in self.groups.keys() - limits.keys():
            del self.groups[group]
        for group, answers in self.groups.items():
            self.evictions += answers.shrink(limits[group])
