"""Says how the response cache uses a store that several routers share."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from promptgroup_router.response_cache.answer import KeptAnswer
from promptgroup_router.response_cache.canonical import CacheKey
from promptgroup_router.response_cache.purge import Purge


class AnswerName(NamedTuple):
    """An answer, and what purges find it by."""

    group: str
    """`namespace/group`."""
    revision: str
    """Short fingerprint."""
    key: CacheKey


class AnswerStore(Protocol):
    """Where routers keep answers for each other. Whatever happens to it, no request fails or waits for long."""

    def get(self, name: AnswerName, result: Callable[[KeptAnswer | None], None]) -> Callable[[], None] | None:
        """Ask for an answer. `found` is called once, within the store's time limit, unless what is returned is called.

        Returns:
            What calls it off; None if the store is not asked, and `found` not called.
        """

    def put(self, answer: KeptAnswer) -> None:
        """Keep an answer, some time later; it may be dropped."""

    async def purge(self, purge: Purge) -> int:
        """Remove answers, also those that wait to be written. Return their number.

        Raises:
            OSError: the store cannot be asked, or did not end in time: some answers may be left.
        """
