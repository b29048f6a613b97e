"""The usage in an engine's answer: asked for where clients did not, taken out again, hidden where a group says so."""

from promptgroup_contract.caller_rules import CachedTokens
from promptgroup_router.callers.reported_usage import ReportedUsage
from promptgroup_router.callers.unasked_usage import NO_CHOICES, UsageEvents
from promptgroup_router.routing.points import Answering, RequestFeature

OK = 200


class UnaskedUsage(RequestFeature):
    """Takes the event with the usage out of a stream whose client did not ask for it."""

    __slots__ = ()

    def answering(self, answer: Answering) -> None:
        """Rewrite a stream that can be read."""
        if answer.streamed and answer.status == OK and not answer.compressed:
            answer.rewrite(UsageEvents(), NO_CHOICES)


class HiddenUsage(RequestFeature):
    """Tells of the tokens that were found in cache only what the group allows."""

    __slots__ = ("_how",)

    def __init__(self, how: CachedTokens) -> None:
        self._how = how

    def answering(self, answer: Answering) -> None:
        """Rewrite any answer that may tell them; one that nobody can read is refused by the rewriter."""
        if answer.status == OK:
            answer.rewrite(ReportedUsage(self._how, streamed=answer.streamed, compressed=answer.compressed))
