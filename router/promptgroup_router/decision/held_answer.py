"""Decides how much of an answer is held before the client's begins, and what is learnt from it. Does no I/O.

As long as the client has nothing of an answer, another engine can still be tried, or an error of the router can take
its place.
"""

from collections.abc import Sequence

from promptgroup_router.apis.errors import NO_PATH_BYTES, lacks_path, not_served_by_engine
from promptgroup_router.base.errors import ApiError
from promptgroup_router.decision.event_guard import EventGuard, body_suspicious
from promptgroup_router.http11.framing import Chunked
from promptgroup_router.http11.http1 import Framing, RequestHead, ResponseHead
from promptgroup_router.routing.points import MOST_HELD, RequestFeature, error_for
from promptgroup_router.routing.route import Route

OK = 200


def reads_usage(features: Sequence[RequestFeature]) -> bool:
    """Return True if a whole answer is held until its usage has been read."""
    return any(feature.reads_usage for feature in features)


def hold(held: bytearray, data: bytes, status: int, features: Sequence[RequestFeature], *, ended: bool) -> bytes:
    """Hold received bytes of a whole answer, or return all of them if it is too long, or nothing of it is in doubt.

    Args:
        held: what is held so far, to which `data` is added.
        data: the bytes.
        status: of the answer.
        features: of the request.
        ended: whether the answer ends with these bytes.
    """
    if status == OK and not held and ended and not reads_usage(features) and not body_suspicious(data):
        return data
    held += data
    return bytes(held) if len(held) > (MOST_HELD if status == OK else NO_PATH_BYTES) else b""


def content_of(answer: ResponseHead, data: bytes) -> bytes:
    """Return the content of an answer's body, or of the beginning of it, as received."""
    if answer.framing is not Framing.CHUNKED:
        return data
    content = bytearray()
    Chunked().feed(data, content)
    return bytes(content)


def breaks_off(answer: ResponseHead, data: bytes) -> bool:
    """Return True if the engine breaks off a stream in its beginning, of which the client has nothing yet."""
    if answer.status != OK:
        return False
    guard = EventGuard(chunked=False)
    guard.feed(content_of(answer, data))
    return guard.broken and not guard.reported


def own_error(route: Route, head: RequestHead, status: int, content: bytes) -> ApiError | None:
    """Return the error that the client gets in place of the engine's; None for the engine's.

    An engine that does not have the path names neither the model nor the API; one may repeat a secret prompt.

    Args:
        route: of the request.
        head: of the request.
        status: of the engine's answer.
        content: of the engine's answer.
    """
    if lacks_path(status, content):
        return not_served_by_engine(head.method, head.path, route.model)
    return error_for(route.features, status)
