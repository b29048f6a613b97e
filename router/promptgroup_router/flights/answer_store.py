"""The interface of a store of answers that several routers share."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from promptgroup_router.response_cache.answer import KeptAnswer
from promptgroup_router.response_cache.canonical import CacheKey
from promptgroup_router.response_cache.purge import Purge


class AnswerName(NamedTuple):
    """The identity of an answer: its key, and the group and revision by which purges select it."""

    group: str
    """`namespace/group`."""
    revision: str
    """Short fingerprint."""
    key: CacheKey


class AnswerStore(Protocol):
    """A store in which routers share answers. No request fails, or waits for long, when the store fails."""

    def get(self, name: AnswerName, result: Callable[[KeptAnswer | None], None]) -> Callable[[], None] | None:
        """Request an answer. `result` is called once, within the time limit, unless the read is cancelled before.

        Returns:
            A function that cancels the read; None if nothing is read: `result` is not called then.
        """

    def put(self, answer: KeptAnswer) -> None:
        """Store an answer in the background; it may be dropped."""

    async def purge(self, purge: Purge) -> int:
        """Remove answers, including those that wait to be written. Return the number of removed answers.

        Raises:
            OSError: the store cannot be reached, or did not finish in time: it may still hold some of the answers.
        """
