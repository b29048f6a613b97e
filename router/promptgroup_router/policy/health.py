"""Ejects replicas that are unreachable or refuse requests, for a back-off that doubles with each failure in a row.

A circuit breaker for each engine process (M. Nygard, Release It!, 2007):

| state     | requests       | becomes                                                                     |
|-----------|----------------|-----------------------------------------------------------------------------|
| closed    | all            | open, after a failure                                                       |
| open      | none           | half-open, after the back-off                                               |
| half-open | one, the trial | closed, when it is answered; open for twice as long, when it fails          |

A trial without a result within TRIAL_SECONDS is followed by another. A record concerns one engine process: another
incarnation behind the same slot starts without a record. Does no I/O and reads no clock; `now` is in monotonic seconds.
"""

from collections.abc import Container
from dataclasses import dataclass, replace

from promptgroup_router.rings.ids import MemberId

FIRST_BACKOFF = 1.0
"""Seconds of the first back-off: a lost packet is over by then, while a restarted engine refuses connections for
longer."""
LAST_BACKOFF = 30.0
"""Seconds of the longest back-off: a replica that recovers as the same incarnation gets a trial within this time."""
ERRORS_IN_A_ROW = 5
"""Errors in a row, none of which says that the engine is unavailable, after which the replica is ejected: the default
of Envoy's `consecutive_5xx`. A single one may be the fault of its request."""
TRIAL_SECONDS = 10.0
"""Time for a trial's first byte before the next trial: its client may have left, or its prompt may be long."""


@dataclass(frozen=True, slots=True)
class _Record:
    incarnation: str
    backoff: float
    until: float
    """The end of the back-off, or of the trial."""
    trial: bool = False
    errors: int = 0
    """Errors in a row of a member that is not ejected."""


class Health:
    """The failures of each slot's engine, by the member's `slot_id`: its ranks fail and recover together."""

    def __init__(self) -> None:
        self._records: dict[MemberId, _Record] = {}

    def available(self, member: MemberId, incarnation: str, now: float) -> bool:
        """Return True if the member is not ejected, or if a trial is due."""
        record = self._records.get(member)
        return record is None or now >= record.until or record.incarnation != incarnation

    def no_failures(self) -> bool:
        """Return True if no failure is on record, so that members need not be checked one by one."""
        return not self._records

    def sent(self, member: MemberId, incarnation: str, now: float) -> None:
        """Record a request that is sent to a member: the first one after the back-off is its trial."""
        record = self._records.get(member)
        if record is not None and record.incarnation == incarnation and now >= record.until and not record.errors:
            self._records[member] = replace(record, until=now + TRIAL_SECONDS, trial=True)

    def failed(self, member: MemberId, incarnation: str, now: float, least: float = 0.0) -> bool:
        """Record a failure. Return True if it ejects the member, which was not ejected yet.

        Args:
            member: its id.
            incarnation: its engine process.
            now: monotonic seconds.
            least: seconds for which the engine itself asks for no requests; no more than LAST_BACKOFF count.
        """
        record = self._records.get(member)
        if record is None or record.incarnation != incarnation or record.errors:
            backoff = FIRST_BACKOFF
        elif now < record.until and not record.trial:
            return False  # failures of requests that were in flight count as one
        else:
            backoff = min(LAST_BACKOFF, record.backoff * 2)
        self._records[member] = _Record(incarnation, backoff, now + max(backoff, min(least, LAST_BACKOFF)))
        return True

    def erred(self, member: MemberId, incarnation: str, now: float) -> bool:
        """Record an error that may be the request's own fault. Return True if it ejects the member."""
        record = self._records.get(member)
        if record is None or record.incarnation != incarnation:
            self._records[member] = _Record(incarnation, FIRST_BACKOFF, now, errors=1)
            return False
        if record.errors and record.errors + 1 < ERRORS_IN_A_ROW:
            self._records[member] = replace(record, errors=record.errors + 1)
            return False
        return self.failed(member, incarnation, now)

    def succeeded(self, member: MemberId) -> None:
        """Record an answer, which clears the record."""
        if self._records:
            self._records.pop(member, None)

    def keep(self, members: Container[MemberId]) -> None:
        """Drop the records of all other members."""
        for member in [record for record in self._records if record not in members]:
            del self._records[member]
