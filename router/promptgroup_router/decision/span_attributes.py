"""Names a request's span, and records in it why the replica was chosen. Does no I/O and reads no clock.

Names of attributes are those of OpenTelemetry's conventions for GenAI and HTTP; others begin with `promptgroup.`. A
span has no text of a prompt or an answer, and no key; of a client's headers it has `traceparent` and the request's id.

| `promptgroup.placed_by` | when                                                                            |
|-------------------------|---------------------------------------------------------------------------------|
| `session`               | the replica served the session before                                           |
| `home`                  | no record of the session led elsewhere, and the replica is the session's home    |
| `load`                  | it was the best at that moment, though it is neither                             |
| `lent`                  | the replica is another group's                                                  |
| `retry`                 | another replica had the request before, and failed                              |
"""

from collections.abc import Mapping

from promptgroup_contract.names import UNMATCHED
from promptgroup_router.apis.anthropic import COUNT_PATH, MESSAGES_PATH
from promptgroup_router.apis.endpoints import ENDPOINTS
from promptgroup_router.apis.request import CHAT_PATH, TEXT_PATH
from promptgroup_router.apis.responses import RESPONSES_PATH
from promptgroup_router.placement.pick import Pick
from promptgroup_router.routing.process_points import RequestTrace, Value
from promptgroup_router.routing.route import Route

PROVIDER = "promptgroup"
_OPERATIONS = {
    CHAT_PATH: "chat",
    MESSAGES_PATH: "chat",
    RESPONSES_PATH: "chat",
    TEXT_PATH: "text_completion",
    COUNT_PATH: "count_tokens",
    b"/v1/embeddings": "embeddings",
}
SERVER_ERRORS = 500
"""From this status on a span is an error."""
_NOTHING: dict[str, Value] = {}
OTHER = "request"
"""The operation of all other paths."""


def operation(path: bytes) -> str:
    """Return the GenAI operation that a path stands for."""
    return _OPERATIONS.get(path, OTHER)


def span_name(path: bytes, model: str) -> str:
    """Return the name of a request's span."""
    return f"{operation(path)} {model}".strip()


def api_attributes(path: bytes) -> dict[str, Value]:
    """Return the attributes of a span about the API."""
    named: dict[str, Value] = {"gen_ai.operation.name": operation(path), "gen_ai.provider.name": PROVIDER}
    if path in ENDPOINTS:
        named["http.route"] = path.decode()
    return named


def end_without_engine(
    span: RequestTrace,
    path: bytes,
    *,
    status: int,
    now: float,
    model: str = "",
    error: str = "",
    further: Mapping[str, Value] = _NOTHING,
) -> None:
    """End the span of a request that was sent to no engine: one that is refused, or has a cached or shared answer.

    Args:
        span: the span.
        path: of the API.
        status: of the answer.
        now: monotonic seconds.
        model: the request's; empty where the request was not parsed.
        error: the code of the error; empty for none.
        further: more attributes.
    """
    values = api_attributes(path)
    values.update(further)
    values["http.response.status_code"] = status
    if model:
        values["gen_ai.request.model"] = model
    if error:
        values["error.type"] = error
    span.end(span_name(path, model), values, now, error if status >= SERVER_ERRORS else "")


def placed_by(route: Route, pick: Pick, tries: int) -> str:
    """Return why a request is where it is."""
    member = pick.member
    if tries > 1:
        return "retry"
    if route.group not in (UNMATCHED, member.group):
        return "lent"
    if pick.before is not None and not pick.moved:
        return "session"
    home = next(iter(route.candidates.order(route.demand.session)), None)
    return "home" if home is not None and home.id == member.id else "load"
