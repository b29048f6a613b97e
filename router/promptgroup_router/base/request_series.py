"""The series to which a request adds, looked up once. Does no I/O and reads no clock.

A request adds to some fifteen series. Building the labels of each, and looking the series up by them, is a good part of
a compiled router's work for a request.
"""

from typing import TYPE_CHECKING

from promptgroup_contract import names
from promptgroup_router.base.series import Series

if TYPE_CHECKING:
    from promptgroup_router.base.metrics import Metrics


class SlotSeries:
    """The series of one slot, or of one data-parallel rank of its engine."""

    __slots__ = ("cached_tokens", "prompt_tokens")

    def __init__(self, metrics: "Metrics", labels: tuple[str, str, str, str]) -> None:
        self.prompt_tokens = metrics.slot_prompt_tokens.series(labels)
        self.cached_tokens = metrics.slot_cached_tokens.series(labels)


class RequestSeries:
    """The series of comparable requests: those of one revision, with the same kind of turn, match and answer."""

    __slots__ = (
        "_codes", "_metrics", "_slots", "answer_tokens", "cached_tokens", "duration", "failed", "first_byte", "group",
        "ok", "other", "prompt_tokens", "revision_cached", "revision_first_token", "revision_own_tokens",
        "revision_prompt_tokens", "revision_shared_tokens", "saved_seconds",
    )  # fmt: skip

    def __init__(
        self,
        metrics: "Metrics",
        group: str,
        revision: str,
        *,
        turn: str,
        how: str,
        streamed: bool,
        other: "RequestSeries | None" = None,
    ) -> None:
        """Look up the series.

        Args:
            metrics: of the router.
            group: label of the group.
            revision: short fingerprint of the revision; empty without one.
            turn: first, later or other, as `contract.names` defines it.
            how: the kind of their match.
            streamed: whether their answers are streamed.
            other: the series of such requests that nothing may be compared with; None if these are they.
        """
        self.other: RequestSeries = other if other is not None else self
        self._metrics = metrics
        self.group = group
        self._codes: dict[int, Series] = {}
        """Status → series."""
        self._slots: dict[str, SlotSeries] = {}
        """Label of a slot → its series."""
        self.prompt_tokens = metrics.prompt_tokens.series((group,))
        self.cached_tokens = metrics.cached_tokens.series((group,))
        self.first_byte = metrics.first_byte.series((group,))
        self.duration = metrics.duration.series((group,))
        self.revision_prompt_tokens = metrics.revision_prompt_tokens.series((group, revision))
        self.answer_tokens = metrics.revision_answer_tokens.series((group, revision))
        self.saved_seconds = metrics.saved_seconds.series((group, revision))
        stratum = group, revision, turn, str(how), names.STREAMED if streamed else names.WHOLE
        self.revision_first_token = metrics.revision_first_token.series(stratum)
        self.revision_cached = metrics.revision_cached.series(stratum)
        self.revision_own_tokens = metrics.revision_own_tokens.series(stratum)
        self.revision_shared_tokens = metrics.revision_shared_tokens.series(stratum)
        self.ok = metrics.revision_requests.series((*stratum, names.OUTCOME_OK))
        self.failed = metrics.revision_requests.series((*stratum, names.OUTCOME_FAILED))

    def answered(self, status: int) -> None:
        """Count an answer."""
        series = self._codes.get(status)
        if series is None:
            series = self._codes[status] = self._metrics.requests.series((self.group, str(status)))
        series.add()

    def slot(self, label: str) -> SlotSeries:
        """Return the series of a slot, whose label is that of a member: `namespace/group/revision/slot[.rank]`."""
        series = self._slots.get(label)
        if series is None:
            group, revision, place = label.rsplit("/", 2)
            slot, _, rank = place.partition(".")
            series = self._slots[label] = SlotSeries(self._metrics, (group, revision, slot, rank or "0"))
        return series
