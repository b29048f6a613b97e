"""The APIs that are served: for each path its method, how its body is read and rewritten, and how it answers.

A path that is not listed is refused: engines serve many that are for their administrators alone, such as those that
unload a model or empty a cache.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from promptgroup_router.apis import anthropic, by_model, request, responses
from promptgroup_router.apis.errors import ANTHROPIC, OPENAI, RESPONSES, AnswerForm
from promptgroup_router.apis.request import ApiKind, ParsedRequest, Preamble
from promptgroup_router.apis.structure import MOST_VALUES, MOST_VALUES_OF_TEXT
from promptgroup_router.apis.usage import MessagesTail, NoUsage, ResponsesTail, Tail


@dataclass(frozen=True, slots=True)
class Bodies:
    """The ways in which an API's bodies are rewritten."""

    with_preamble: Callable[[ParsedRequest, Preamble, str], bytes]
    """Puts the declared prompt in front and names the real model."""
    with_ordered_tools: Callable[[ParsedRequest], bytes]
    """Puts tools in the order in which the group's engines have them in cache."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A path that requests are routed from."""

    path: bytes
    parse: Callable[[bytes], ParsedRequest]
    """Reads a body; raises ApiError."""
    tail: Callable[[], Tail] = Tail
    """Makes what reads the usage from an answer."""
    form: AnswerForm = OPENAI
    """The form of errors, and of a request's id."""
    cached: bool = True
    """True if the engine stores the prompt in its KV cache; else all replicas serve the request equally well."""
    values: int = MOST_VALUES
    """Most values of a body."""

    @property
    def counted(self) -> bool:
        """True if engines report the tokens that a request has used."""
        return self.tail is not NoUsage


_ENDPOINTS = (
    Endpoint(request.CHAT_PATH, partial(request.parse, ApiKind.CHAT), values=MOST_VALUES_OF_TEXT),
    Endpoint(request.TEXT_PATH, partial(request.parse, ApiKind.TEXT)),
    Endpoint(anthropic.MESSAGES_PATH, anthropic.parse_messages, MessagesTail, ANTHROPIC, values=MOST_VALUES_OF_TEXT),
    Endpoint(
        anthropic.COUNT_PATH,
        anthropic.parse_messages,
        NoUsage,
        ANTHROPIC,
        cached=False,
        values=MOST_VALUES_OF_TEXT,
    ),
    Endpoint(responses.RESPONSES_PATH, responses.parse_response, ResponsesTail, RESPONSES, values=MOST_VALUES_OF_TEXT),
    Endpoint(by_model.TOKENIZE_PATH, by_model.parse_tokenize, NoUsage, cached=False),
    *(Endpoint(path, by_model.parse_json, Tail, cached=False) for path in by_model.COUNTED_PATHS),
    *(Endpoint(path, by_model.parse_json, NoUsage, cached=False) for path in by_model.JSON_PATHS),
    *(Endpoint(path, by_model.parse_form, NoUsage, cached=False) for path in by_model.FORM_PATHS),
)

BY_PATH_ALONE = Endpoint(b"", partial(request.parse, ApiKind.CHAT), NoUsage, cached=False)
"""Stands for the paths that contain all data for routing, so that no body is parsed."""

PASSED = Endpoint(b"", by_model.parse_passed, cached=False)
"""Stands for the paths that the settings allow beside those that are listed; their answers may report tokens."""

ENDPOINTS = {endpoint.path: endpoint for endpoint in _ENDPOINTS}
"""The endpoints for POST, by path."""

BODIES = {
    ApiKind.CHAT: Bodies(request.with_preamble, request.with_ordered_tools),
    ApiKind.TEXT: Bodies(request.with_preamble, request.with_ordered_tools),
    ApiKind.MESSAGES: Bodies(anthropic.with_preamble, anthropic.with_ordered_tools),
    ApiKind.RESPONSES: Bodies(responses.with_preamble, responses.with_ordered_tools),
    ApiKind.BY_MODEL: Bodies(by_model.with_model, by_model.as_received),
    ApiKind.FORM: Bodies(by_model.with_model, by_model.as_received),
    ApiKind.PASSED: Bodies(by_model.with_model, by_model.as_received),
}


def form_of(path: bytes, fields: Mapping[bytes, bytes]) -> AnswerForm:
    """Return the form of what the router itself answers to a request with these header fields.

    At a path that several APIs have, or none, it is Anthropic's for a request that names a version of that API.
    """
    endpoint = ENDPOINTS.get(path)
    if endpoint is not None:
        return endpoint.form
    if path.startswith(responses.RESPONSES_PATH + b"/"):
        return RESPONSES
    named = anthropic.VERSION_HEADER in fields or path.startswith(anthropic.MESSAGES_PATH + b"/")
    return ANTHROPIC if named else OPENAI
