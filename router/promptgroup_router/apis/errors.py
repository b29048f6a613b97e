"""Errors in the form of the API that a request uses."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import orjson

from promptgroup_router.base.errors import SHOWN, ApiError, shown

OVERLOADED = 529
"""The status by which Anthropic's API reports an overload; its clients wait longer after it than after a 503."""

NOT_FOUND = 404
NO_PATH_BYTES = 256
"""Bytes of the longest body by which an engine reports a missing path, with the framing as received."""
_NO_PATH = {404: b'{"detail":"Not Found"}', 405: b'{"detail":"Method Not Allowed"}'}
"""The answers of vLLM, SGLang and TensorRT-LLM (FastAPI) to a path that they do not have; an unknown model or response
has an error object of the API."""

_BY_STATUS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    OVERLOADED: "overloaded_error",
}
"""Anthropic's type of an error by its status; any other one is an `api_error`."""


class ErrorAnswer(NamedTuple):
    """The answer to a request that is refused."""

    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """The form that an API requires for the router's own answers."""

    refuse: Callable[[ApiError, bytes], ErrorAnswer]
    """Writes an error of a request, whose id is given; empty for a request without an id."""
    id_fields: tuple[bytes, ...]
    """The header fields that report the id of a request."""
    event: Callable[[ApiError, bytes, int], bytes]
    """Writes an error as an event of a stream, by the id of the request and the number of the event."""
    keep_alive: bytes = b": keep-alive\n\n"
    """An event without content, for a stream that waits."""


def openai_error(error: ApiError, _request_id: bytes = b"") -> ErrorAnswer:
    """Return an error as OpenAI's APIs have it."""
    return ErrorAnswer(error.status, error.body())


def anthropic_error(error: ApiError, request_id: bytes = b"") -> ErrorAnswer:
    """Return an error as Anthropic's API has it: a type by status, a message, and the id of the request."""
    status = OVERLOADED if error.code == "overloaded" else error.status
    kind = _BY_STATUS.get(status, "invalid_request_error" if status < 500 else "api_error")
    body: dict[str, object] = {"type": "error", "error": {"type": kind, "message": str(error)}}
    if request_id:
        body["request_id"] = request_id.decode("latin-1")
    return ErrorAnswer(status, orjson.dumps(body))


def openai_event(error: ApiError, _request_id: bytes, _number: int) -> bytes:
    """Return an error as an event of chat and text completions, by which OpenAI's clients raise an APIError."""
    return b"data: %b\n\n" % error.body()


def responses_event(error: ApiError, _request_id: bytes, number: int) -> bytes:
    """Return an error as an event of the Responses API, which numbers its events."""
    event = {"type": "error", "code": error.code, "message": str(error), "param": error.param}
    return b"event: error\ndata: %b\n\n" % orjson.dumps(event | {"sequence_number": number})


def anthropic_event(error: ApiError, request_id: bytes, _number: int) -> bytes:
    """Return an error as an event of Anthropic's Messages API."""
    return b"event: error\ndata: %b\n\n" % anthropic_error(error, request_id).body


OPENAI = AnswerForm(openai_error, (b"x-request-id",), openai_event)
RESPONSES = AnswerForm(openai_error, (b"x-request-id",), responses_event)
ANTHROPIC = AnswerForm(
    anthropic_error,
    (b"x-request-id", b"request-id"),
    anthropic_event,
    b'event: ping\ndata: {"type": "ping"}\n\n',
)
"""Its clients read `request-id`."""
ID_FIELDS = frozenset(ANTHROPIC.id_fields)


def with_request_id(body: bytes, old: bytes, new: bytes) -> bytes:
    """Return the body of an error with the id of another request."""
    value, says = (b'"request_id":' + orjson.dumps(item.decode("latin-1")) + b"}" for item in (old, new))
    return body.removesuffix(value) + says if body.endswith(value) else body


def may_lack_path(status: int) -> bool:
    """Return True if an engine's answer of a status may mean that it does not have the path."""
    return status in _NO_PATH


def lacks_path(status: int, body: bytes) -> bool:
    """Return True if an engine's answer means that it does not have the path, or not with this method."""
    return _NO_PATH.get(status) == body


def not_served_by_engine(method: bytes, path: bytes, model: str) -> ApiError:
    """Return the error for an API that the engines of a model do not have."""
    requested = f"{method.decode('latin-1')} {path.decode('latin-1')[:SHOWN]}"
    message = f"the engine of model {shown(model)} does not serve {requested}: use another API, or another engine"
    return ApiError(NOT_FOUND, message, code="not_served_by_engine")
