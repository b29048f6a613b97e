"""The writes of one pass, each with its own outcome and back-off: a failed write does not prevent the others.

A pass continues after a failed write, and later passes do not repeat it before its back-off has ended, so that serving
replicas are reconciled as often as before, and the API server does not get the same request with every pass. Content
that differs from the rejected one is written at once. If the API server as a whole does not respond, the pass ends at
the first write.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from time import monotonic

from promptgroup_operator.base.backoff import retry_seconds
from promptgroup_operator.base.errors import ClusterError, NotLeadingError
from promptgroup_operator.base.fair_pool import FairPool
from promptgroup_operator.base.withheld import withheld
from promptgroup_operator.plan import status
from promptgroup_operator.world.snapshot import Key, Problem

logger = logging.getLogger(__name__)

CONFLICT = 409
"""HTTP status: another version of the object exists; the next pass begins from that."""
CONFLICTS = 3
"""Maximum number of consecutive conflicts of one object that end the pass, since the next one begins from the current
version: another client writes the object occasionally. A further conflict counts as a failed write."""
AT_ONCE = 8
"""Writes of independent objects, such as the pods of a group, that are sent at the same time."""
SEVERAL_SECONDS = 30.0
"""Time for them, with the time in which they wait for the writes of other groups."""
SLOWEST = 4
"""Number of writes without a response in one pass after which no further ones of the same kinds are sent, but left to
later passes. Writes that are sent at the same time take `api_server.REQUEST_SECONDS` together, and a pass must end
within handlers.STUCK."""


@dataclass(frozen=True, slots=True)
class FailedWrite:
    """A failed write, with the time of its next attempt."""

    error: ClusterError
    words: str
    """The API server's message without quotations of prompts: that of the first attempt, since it may vary."""
    tries: int
    not_before: float
    """Monotonic seconds."""


_Name = tuple[str, str]
"""Kind and name of an object, and the content of the write; empty for a failure that is independent of the content."""


@dataclass(frozen=True, slots=True)
class Write:
    """A write that is to be tried."""

    subject: str
    """Kind and name of the object, as in "Deployment support-1a2b3c4d"."""
    content: object
    """The content, identified by its `repr`; None if it always differs."""
    run: Callable[[], None]
    """Writes it."""

    @property
    def name(self) -> _Name:
        """Identity of the write in the next passes."""
        return self.subject, repr(self.content) if self.content is not None else ""


_Outcome = tuple[ClusterError | None, float]
"""Error of a write, and the seconds that it took."""
_Send = Callable[[Callable[[Write], _Outcome], Sequence[Write]], Sequence[_Outcome | None]]
"""Sends several independent writes, and returns their outcomes; None for one that was not sent in time."""


def _one_by_one(tried: Callable[[Write], _Outcome], writes: Sequence[Write]) -> Sequence[_Outcome | None]:
    return [tried(write) for write in writes]


class PassWrites:
    """The writes of one pass over one group.

    Args:
        known: failed writes of the previous pass.
        secrets: texts that no message may quote.
        is_away: sends another read to the API server; True if that has no response either.
        clock: monotonic seconds.
        send: sends several independent writes.
    """

    def __init__(
        self,
        known: dict[_Name, FailedWrite],
        secrets: Sequence[str],
        is_away: Callable[[], bool],
        clock: Callable[[], float] = monotonic,
        send: _Send = _one_by_one,
    ) -> None:
        self._known = known
        self._secrets = secrets
        self._is_away = is_away
        self._send = send
        self._clock = clock
        self._unanswered: list[str] = []
        self.failed: dict[_Name, FailedWrite] = {}
        """All writes that are pending after this pass."""
        self.tried = False
        """True if a write failed in this pass; otherwise earlier failed writes are not due yet."""
        self._forgiven: list[FailedWrite] = []

    def attempt(self, subject: str, content: object, write: Callable[[], None]) -> FailedWrite | None:
        """Write, unless the write failed and its back-off has not ended. Return the failure; None if it was written.

        Args:
            subject: kind and name of the object, as in "Deployment support-1a2b3c4d".
            content: the content, identified by its `repr`; None if it always differs.
            write: writes it.

        Raises:
            ClusterError: this process does not lead, the whole API server does not answer, or the object has changed
                since it was seen: the pass must end.
        """
        (failed,) = self.attempt_all([Write(subject, content, write)])
        return failed

    def attempt_all(self, writes: Sequence[Write]) -> list[FailedWrite | None]:
        """Write several objects of which none depends on another one, AT_ONCE at the same time, as `attempt` does.

        All that were sent have been sent when an error ends the pass.
        """
        result: list[FailedWrite | None] = []
        for begin in range(0, len(writes), AT_ONCE):
            result += self._batch(writes[begin : begin + AT_ONCE])
        return result

    def _batch(self, writes: Sequence[Write]) -> list[FailedWrite | None]:
        """Send a few writes at the same time, and note the failures of all before one of them ends the pass."""
        result = [self._held_back(write) for write in writes]
        due = [index for index, held in enumerate(result) if held is None]
        send = self._send if len(due) > 1 else _one_by_one
        outcomes = send(self._tried, [writes[index] for index in due])
        end: ClusterError | None = None
        for index, outcome in zip(due, outcomes, strict=True):
            try:
                result[index] = self._failure(writes[index], outcome)
            except ClusterError as error_of_pass:
                end = end or error_of_pass
        if end is not None:
            raise end
        return result

    def _held_back(self, write: Write) -> FailedWrite | None:
        """Return the failure because of which a write is not tried now."""
        for place in (write.name, (write.subject, "")):
            before = self.failed.get(place) or self._known.get(place)
            if before is not None and self._clock() < before.not_before:
                self.failed[place] = before
                return before
        if len(self._unanswered) >= SLOWEST and write.subject.partition(" ")[0] in self._unanswered:
            slow = ClusterError(f"{write.subject}: other objects of this kind could not be written in time")
            self.failed[write.subject, ""] = failed = FailedWrite(slow, str(slow), 0, self._clock())
            return failed
        return None

    def _tried(self, write: Write) -> _Outcome:
        began = self._clock()
        try:
            write.run()
        except ClusterError as error:
            return error, self._clock() - began
        return None, 0.0

    def _failure(self, write: Write, outcome: _Outcome | None) -> FailedWrite | None:
        late = ClusterError(f"{write.subject} was not written in time"), SEVERAL_SECONDS
        error, took = outcome if outcome is not None else late
        if error is None:
            return None
        if isinstance(error, NotLeadingError):
            raise error
        # A write without a response is not retried at once with other content.
        return self._note(write.name if error.status is not None else (write.subject, ""), error, took)

    def _note(self, name: _Name, error: ClusterError, took: float) -> FailedWrite:
        subject = name[0]
        if error.status is None:
            self._unanswered.append(subject.partition(" ")[0])
        if error.may_be_outage and self._is_away():
            raise error
        self.tried = True
        before = self._known.get(name)
        same = before is not None and before.error.status == error.status
        tries = before.tries + 1 if before is not None else 1
        passing = error.status == CONFLICT and tries <= CONFLICTS
        wait = 0.0 if passing else retry_seconds(error, tries, took)
        words = before.words if before is not None and same else withheld(str(error), self._secrets)
        self.failed[name] = failed = FailedWrite(error, words, tries, self._clock() + wait)
        if passing:
            raise error
        logger.warning("%s; trying again in %.1f s", withheld(str(error), self._secrets), wait)
        return failed

    def failed_before(self, subject: str) -> bool:
        """Return True if an object could not be written in the previous pass."""
        return any(subject == known for known, _ in self._known)

    def forgive(self, failed: FailedWrite) -> None:
        """Exclude a write from `problem`, since it is reported elsewhere. Its back-off still applies."""
        self._forgiven.append(failed)

    def problem(self) -> Problem | None:
        """Return the problem of failed writes, with the API server's message; None if there are none."""
        result = [item for item in self.failed.values() if item not in self._forgiven]
        if not result:
            return None
        first = max(result, key=lambda item: item.error.is_refusal)
        more = f"; {len(result) - 1} more writes fail" if len(result) > 1 else ""
        reason = status.REFUSED if first.error.is_refusal else status.FAILED
        return Problem(reason, f"{first.words}{more}")

    def due(self) -> timedelta:
        """Return the time until the next failed write is retried; `timedelta.max` if none failed."""
        soonest = min((failed.not_before for failed in self.failed.values()), default=None)
        return timedelta(seconds=max(0.0, soonest - self._clock())) if soonest is not None else timedelta.max


class FailedWrites:
    """The failed writes of the latest pass over each group. If they are lost, each is retried once too early.

    Args:
        pool: threads that send several writes of a pass; without it they are sent one by one.
    """

    def __init__(self, pool: FairPool | None = None) -> None:
        self._pool = pool
        self._of: dict[Key, dict[_Name, FailedWrite]] = {}

    def begin(self, key: Key, secrets: Sequence[str], is_away: Callable[[], bool]) -> PassWrites:
        """Return the writes of a pass that begins."""
        send = partial(self._pool.map, key.namespace, seconds=SEVERAL_SECONDS) if self._pool else _one_by_one
        return PassWrites(self._of.get(key, {}), secrets, is_away, send=send)

    def end(self, key: Key, writes: PassWrites) -> None:
        """Store the failed writes of a pass, in place of the group's earlier ones."""
        if writes.failed:
            self._of[key] = writes.failed
        else:
            self._of.pop(key, None)

    def forget(self, key: Key) -> None:
        """Delete the state of a group that does not exist any more."""
        self._of.pop(key, None)
