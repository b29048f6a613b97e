"""The usage in an engine's answer: requested where the client did not, removed again, or hidden by a group's rules."""

from promptgroup_contract.caller_rules import CachedTokens
from promptgroup_router.callers.reported_usage import ReportedUsage
from promptgroup_router.callers.unasked_usage import NO_CHOICES, UsageEvents
from promptgroup_router.routing.points import Answering, RequestFeature

OK = 200


class UnaskedUsage(RequestFeature):
    """Removes the event with the usage from a stream whose client did not request it."""

    __slots__ = ()

    def answering(self, answer: Answering) -> None:
        """Rewrite a stream that can be parsed."""
        if answer.streamed and answer.status == OK and not answer.compressed:
            answer.rewrite(UsageEvents(), NO_CHOICES)


class HiddenUsage(RequestFeature):
    """Reports cached tokens only as the group allows."""

    __slots__ = ("_how",)

    def __init__(self, how: CachedTokens) -> None:
        self._how = how

    def answering(self, answer: Answering) -> None:
        """Rewrite any answer that may report them; the rewriter refuses one that cannot be parsed."""
        if answer.status == OK:
            answer.rewrite(ReportedUsage(self._how, streamed=answer.streamed, compressed=answer.compressed))
