"""The request itself, in a group that keeps answers: it decides whether an answer is kept, and by which key."""

from promptgroup_router.apis.request import ParsedRequest
from promptgroup_router.routing.points import RequestFeature


class KeptRequest(RequestFeature):
    """A request that the response cache may answer."""

    __slots__ = ("ask",)

    def __init__(self, ask: ParsedRequest) -> None:
        self.ask: ParsedRequest | None = ask
        """The request as it was parsed; None once its key is known, since it takes more memory than the body."""
