"""The writes of one pass, each with an outcome and a back-off of its own: one that fails ends none of the others.

A pass goes on after a write that failed, and the next pass does not repeat it before its time, so that what serves is
looked after as often as ever, and the API server is not asked for the same thing with every pass. What differs from
what was refused is tried at once. Where the whole API server is away, the pass ends at the first write.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic

from promptgroup_operator.base.backoff import retry_seconds
from promptgroup_operator.base.errors import ClusterError, NotLeadingError
from promptgroup_operator.base.withheld import withheld
from promptgroup_operator.plan import status
from promptgroup_operator.world.snapshot import Key, Problem

logger = logging.getLogger(__name__)

CONFLICT = 409
"""HTTP status: another version of the object exists; the next pass begins from that."""
CONFLICTS = 3
"""Conflicts of one object in a row that end the pass, as the next one begins from the version that exists: somebody
else writes the object now and then. One that goes on for longer is a write that fails."""
SLOWEST = 4
"""Writes that may go unanswered in one pass; those of the same kinds are left to later passes. Each takes
`api_server.REQUEST_SECONDS`, and a pass must end within handlers.STUCK."""


@dataclass(frozen=True, slots=True)
class FailedWrite:
    """A write that failed, and when it is tried again."""

    error: ClusterError
    words: str
    """The API server's words without quotations of prompts: the first ones, since they may differ each time."""
    tries: int
    not_before: float
    """Monotonic seconds."""


_Name = tuple[str, str]
"""Kind and name of an object → what was to be written; empty for a fault that does not depend on that."""


class PassWrites:
    """The writes of one pass over one group.

    Args:
        known: writes that failed in the pass before.
        secrets: texts that no message may quote.
        is_away: asks the API server for something else; True if that is not answered either.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        known: dict[_Name, FailedWrite],
        secrets: Sequence[str],
        is_away: Callable[[], bool],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._known = known
        self._secrets = secrets
        self._is_away = is_away
        self._clock = clock
        self._unanswered: list[str] = []
        self.failed: dict[_Name, FailedWrite] = {}
        """All that is unwritten after this pass."""
        self.tried = False
        """True if a write failed in this pass; else those that failed before are not due yet."""
        self._forgiven: list[FailedWrite] = []

    def attempt(self, subject: str, content: object, write: Callable[[], None]) -> FailedWrite | None:
        """Write, unless that failed lately. Return why it is unwritten; None if it was written.

        Args:
            subject: kind and name of the object, as in "Deployment support-1a2b3c4d".
            content: what is written, whose `repr` tells it from anything else; None where that always differs.
            write: writes it.

        Raises:
            ClusterError: this process does not lead, the whole API server does not answer, or the object has changed
                since it was seen: the pass must end.
        """
        name = subject, repr(content) if content is not None else ""
        for place in (name, (subject, "")):
            before = self.failed.get(place) or self._known.get(place)
            if before is not None and self._clock() < before.not_before:
                self.failed[place] = before
                return before
        if len(self._unanswered) >= SLOWEST and subject.partition(" ")[0] in self._unanswered:
            slow = ClusterError(f"{subject}: other objects of this kind could not be written in time")
            self.failed[subject, ""] = failed = FailedWrite(slow, str(slow), 0, self._clock())
            return failed
        began = self._clock()
        try:
            write()
        except NotLeadingError:
            raise
        except ClusterError as error:
            # what got no answer is not tried again in another form at once
            return self._note(name if error.status is not None else (subject, ""), error, began)
        return None

    def _note(self, name: _Name, error: ClusterError, began: float) -> FailedWrite:
        subject = name[0]
        took = self._clock() - began
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
        """Return True if an object could not be written in the pass before."""
        return any(subject == known for known, _ in self._known)

    def forgive(self, failed: FailedWrite) -> None:
        """Leave a write out of `problem`: it is told otherwise. It is not repeated before its time either."""
        self._forgiven.append(failed)

    def problem(self) -> Problem | None:
        """Return what is unwritten, in the API server's words; None if nothing is."""
        result = [item for item in self.failed.values() if item not in self._forgiven]
        if not result:
            return None
        first = max(result, key=lambda item: item.error.is_refusal)
        more = f"; {len(result) - 1} more writes fail" if len(result) > 1 else ""
        reason = status.REFUSED if first.error.is_refusal else status.FAILED
        return Problem(reason, f"{first.words}{more}")

    def due(self) -> timedelta:
        """Return the time until the next of the failed writes is tried again; without end if none failed."""
        soonest = min((failed.not_before for failed in self.failed.values()), default=None)
        return timedelta(seconds=max(0.0, soonest - self._clock())) if soonest is not None else timedelta.max


class FailedWrites:
    """The writes that failed in the latest pass over each group. Its loss costs one try of each."""

    def __init__(self) -> None:
        self._of: dict[Key, dict[_Name, FailedWrite]] = {}

    def begin(self, key: Key, secrets: Sequence[str], is_away: Callable[[], bool]) -> PassWrites:
        """Return the writes of a pass that begins."""
        return PassWrites(self._of.get(key, {}), secrets, is_away)

    def end(self, key: Key, writes: PassWrites) -> None:
        """Remember what a pass could not write, and nothing else of the group."""
        if writes.failed:
            self._of[key] = writes.failed
        else:
            self._of.pop(key, None)

    def forget(self, key: Key) -> None:
        """Drop a group that is gone."""
        self._of.pop(key, None)
