"""Parses bodies of OpenAI requests for routing, and writes the bodies for engines. Does no I/O and reads no clock.

A body is forwarded byte for byte unless a declared prompt is put in front, the model is renamed, or tools are put in
canonical form.
"""

import enum
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from promptgroup_router.base.errors import ApiError, shown
from promptgroup_router.contract.fingerprint import canonical_tools

CHAT_PATH = b"/v1/chat/completions"
TEXT_PATH = b"/v1/completions"

TOOLS_REMEMBERED = 256
"""Most tool lists whose canonical form is kept: applications send the same few, and sorting one takes 100 µs."""
TOOLS_REMEMBERED_BYTES = 65536
"""Longest tool list whose canonical form is kept."""

SYSTEM_ROLES = ("system", "developer")
"""Roles of messages that instruct the model and are not part of the conversation."""


class ApiKind(enum.Enum):
    """The API of a request."""

    CHAT = "chat"
    TEXT = "text"


KINDS = {CHAT_PATH: ApiKind.CHAT, TEXT_PATH: ApiKind.TEXT}


class ParsedRequest(NamedTuple):
    """A parsed request body."""

    kind: ApiKind
    raw: bytes
    model: str
    system: str
    """The text that a declared prompt may be a prefix of: the leading system or developer message, or the prompt."""
    has_system: bool
    """Whether any message of the request has the role system or developer."""
    tools: str
    """The tools in canonical form, empty for none."""
    tools_in_order: bool
    """Whether the body has the tools in canonical form already."""
    text: int
    """Bytes of all text of the prompt: messages, tool calls, tools."""
    history: int
    """Bytes of the text of earlier turns, up to the last answer; 0 on a first turn."""
    turn: int
    """Number of messages; 1 for a text."""
    ids: int
    """Number of tokens of a prompt that is given as token ids, else 0."""
    streamed: bool
    """Whether the answer is streamed."""
    media: bool
    """Whether the prompt has parts other than text, so that its length cannot be estimated from `text`."""
    doc: dict[str, Any]
    """The parsed body; only this module and `session_key` read it."""


def parse(kind: ApiKind, body: bytes) -> ParsedRequest:
    """Parse a request body.

    Raises:
        ApiError: 400; the message names the field, its value and what is expected.
    """
    try:
        doc = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ApiError(400, f"the body is not JSON: {error}", code="invalid_json") from None
    if not isinstance(doc, dict):
        raise _wrong("the body", None, doc, "an object")
    model = doc.get("model")
    if not isinstance(model, str) or not model:
        raise _wrong("model", "model", model, "the name of a model or of a PromptGroup")
    return _read_chat(body, doc, model) if kind is ApiKind.CHAT else _read_text(body, doc, model)


def _read_chat(body: bytes, doc: dict[str, Any], model: str) -> ParsedRequest:
    messages = doc.get("messages")
    if not isinstance(messages, list) or not messages:
        raise _wrong("messages", "messages", messages, "a list of at least one message")
    has_system = asked = media = False
    text = answered = history = 0
    for i, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(role := message.get("role"), str):
            raise _wrong(f"messages[{i}]", "messages", message, "an object with a role")
        content = message.get("content")
        if isinstance(content, str):
            size = size_of(content)
        else:
            size = size_of(text_of(content))
            media = media or any(map(is_media, content if isinstance(content, list) else ()))
        if calls := message.get("tool_calls"):
            size += len(_encoded(calls))
        if role == "assistant":
            # before any user message it is a greeting that all conversations begin with
            answered = text + size if asked else 0
        elif role in SYSTEM_ROLES:
            has_system = True
        else:
            asked, history = True, answered
        text += size
    tools = doc.get("tools")
    if tools is not None and not isinstance(tools, list):
        raise _wrong("tools", "tools", tools, "a list")
    spelled = _encoded(tools) if tools else b""
    canonical = _canonical(spelled, tools) if tools else ""
    first = messages[0]
    return ParsedRequest(
        kind=ApiKind.CHAT,
        raw=body,
        model=model,
        system=text_of(first.get("content")) if first["role"] in SYSTEM_ROLES else "",
        has_system=has_system,
        tools=canonical,
        tools_in_order=spelled == canonical.encode(),
        text=text + len(spelled),
        history=history + len(spelled) if history else 0,
        turn=len(messages),
        ids=0,
        streamed=doc.get("stream") is True,
        media=media,
        doc=doc,
    )


def _read_text(body: bytes, doc: dict[str, Any], model: str) -> ParsedRequest:
    prompt = doc.get("prompt")
    several = prompt if isinstance(prompt, list) else [prompt]
    first = several[0] if several else None
    text = ids = 0
    if isinstance(first, str) and first:
        text = sum(size_of(each) for each in several if isinstance(each, str))
    elif isinstance(first, list):
        ids = sum(len(each) for each in several if isinstance(each, list))
    elif isinstance(first, int) and not isinstance(first, bool) and isinstance(prompt, list):
        ids = len(prompt)
    elif first != "":
        raise _wrong("prompt", "prompt", prompt, "a text, or a list of texts or tokens")
    return ParsedRequest(
        kind=ApiKind.TEXT,
        raw=body,
        model=model,
        system=first if isinstance(first, str) else "",
        has_system=False,
        tools="",
        tools_in_order=True,
        text=text,
        history=0,
        turn=1,
        ids=ids,
        streamed=doc.get("stream") is True,
        media=False,
        doc=doc,
    )


# --- Bodies for the engine ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Preamble:
    """A declared prompt, serialised once, so that every request gets the same bytes."""

    message: orjson.Fragment
    tools: orjson.Fragment | None
    system: str
    canonical_tools: str


def preamble(system: str, tools: str) -> Preamble:
    """Return the preamble of a prompt; `tools` is in canonical form, empty for none."""
    return Preamble(
        message=orjson.Fragment(orjson.dumps({"role": "system", "content": system})),
        tools=orjson.Fragment(tools) if tools else None,
        system=system,
        canonical_tools=tools,
    )


def with_preamble(ask: ParsedRequest, prompt: Preamble, model: str) -> bytes:
    """Return the body with the declared prompt in front and the name of the model that engines serve.

    Raises:
        ApiError: 400 if the request brings a prompt or tools of its own.
    """
    named = f"model {shown(ask.model)} brings its own prompt"
    if ask.kind is ApiKind.TEXT:
        return _encoded(ask.doc | {"model": model, "prompt": _prefixed(ask, prompt, named)})
    if ask.has_system:
        raise ApiError(
            400,
            f"messages has a system or developer message, but {named}: leave the message out, or ask for {model!r}",
            param="messages",
            code="prompt_given_twice",
        )
    doc = ask.doc | {"model": model}
    if prompt.system:
        doc["messages"] = [prompt.message, *doc["messages"]]
    if ask.tools and ask.tools != prompt.canonical_tools:
        raise ApiError(
            400,
            f"tools differ from those that the group declares, but {named}: leave tools out, or ask for {model!r}",
            param="tools",
            code="tools_given_twice",
        )
    if prompt.tools is not None:
        doc["tools"] = prompt.tools
    return _encoded(doc)


def _prefixed(ask: ParsedRequest, prompt: Preamble, named: str) -> str | list[str]:
    given = ask.doc["prompt"]
    if prompt.tools is not None:
        raise ApiError(
            400, f"{named} with tools, which /v1/completions does not support: use /v1/chat/completions", param="model"
        )
    if isinstance(given, str):
        return prompt.system + given
    if isinstance(given, list) and all(isinstance(text, str) for text in given):
        return [prompt.system + text for text in given]
    raise ApiError(400, f"prompt holds tokens, but {named}, which is text: send text", param="prompt")


def with_ordered_tools(ask: ParsedRequest) -> bytes:
    """Return the body with its tools in canonical form; the bytes as received if they are already."""
    if ask.tools_in_order:
        return ask.raw
    return _encoded(ask.doc | {"tools": orjson.Fragment(ask.tools)})


# --- Parts --------------------------------------------------------------------------------------------------

_canonical_forms: dict[bytes, str] = {}
"""A cache of canonical forms by the spelling received, bounded by TOOLS_REMEMBERED."""


def _canonical(spelled: bytes, tools: list[object]) -> str:
    known = _canonical_forms.get(spelled)
    if known is not None:
        return known
    form = canonical_tools(tools)
    if len(spelled) <= TOOLS_REMEMBERED_BYTES:
        if len(_canonical_forms) >= TOOLS_REMEMBERED:
            del _canonical_forms[next(iter(_canonical_forms))]
        _canonical_forms[spelled] = form
    return form


def _encoded(value: object) -> bytes:
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        raise ApiError(400, "the body is nested too deeply: at most 250 levels", code="invalid_json") from None


def text_of(content: object) -> str:
    """Return the text of a message: a string, or its text parts joined by line feeds as chat templates join them."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = (part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text")
    return "\n".join(text for text in parts if isinstance(text, str))


def size_of(text: str) -> int:
    """Return the number of bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def is_media(part: object) -> bool:
    """Return True if a part of a message is an image, a sound or a file."""
    return isinstance(part, dict) and part.get("type") != "text"


def _wrong(field: str, param: str | None, value: object, expected: str) -> ApiError:
    """Return an error that names the type of a wrong value, never its text, which may be part of a prompt."""
    given = "missing" if value is None else "empty" if value in ("", [], {}) else f"a {type(value).__name__}"
    return ApiError(400, f"{field} is {given}, expected {expected}", param=param, code="invalid_value")
