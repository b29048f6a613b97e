"""Which replicas to leave alone for a while: those that could not be reached. Pure; `now` in seconds, monotonic.

A failure ejects a slot for a back-off that doubles with each failure in a row. What was learned concerns one engine
process: another incarnation behind the slot starts with a clean record.
"""

from collections.abc import Collection
from dataclasses import dataclass

FIRST_BACKOFF = 1.0
"""Seconds: an engine that was restarted refuses connections for longer, a lost packet is over by then."""
LAST_BACKOFF = 30.0
"""Seconds: a replica that has come back without a new incarnation is found again within this."""


@dataclass(frozen=True, slots=True)
class _Record:
    incarnation: str
    backoff: float
    until: float


class Health:
    """Failures by member id."""

    def __init__(self) -> None:
        self._records: dict[str, _Record] = {}

    def available(self, member: str, incarnation: str, now: float) -> bool:
        """Whether a member is not ejected."""
        record = self._records.get(member)
        return record is None or now >= record.until or record.incarnation != incarnation

    def no_failures(self) -> bool:
        """Whether no failure is on record, so that nothing needs to be asked one by one."""
        return not self._records

    def failed(self, member: str, incarnation: str, now: float) -> bool:
        """Note a failure; whether it ejects the member (it does not when it is out already)."""
        record = self._records.get(member)
        if record is None or record.incarnation != incarnation:
            backoff = FIRST_BACKOFF
        elif now < record.until:
            return False  # requests that were under way when it failed are one failure
        else:
            backoff = min(LAST_BACKOFF, record.backoff * 2)
        self._records[member] = _Record(incarnation, backoff, now + backoff)
        return True

    def succeeded(self, member: str) -> None:
        """Note an answer: the record is cleared."""
        if self._records:
            self._records.pop(member, None)

    def keep(self, members: Collection[str]) -> None:
        """Forget all others: the table has them no more."""
        for member in self._records.keys() - set(members):
            del self._records[member]
