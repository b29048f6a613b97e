"""The parsed request, in a group with a response cache: it decides whether an answer is cached, and by which key."""

from promptgroup_router.apis.request import ParsedRequest
from promptgroup_router.routing.points import RequestFeature


class KeptRequest(RequestFeature):
    """A request that the response cache may answer."""

    __slots__ = ("ask",)

    def __init__(self, ask: ParsedRequest) -> None:
        self.ask: ParsedRequest | None = ask
        """The parsed request; None once its key is computed, since it takes more memory than the body."""
