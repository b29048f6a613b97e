"""Bodies of OpenAI requests: what routing needs from one, and the body that goes to the engine. Pure.

A body is forwarded byte for byte unless a prompt is put in front, the model renamed or tools put in canonical order.
"""

import enum
from dataclasses import dataclass
from typing import Any

import orjson

from promptgroup_router.contract.fingerprint import canonical_tools
from promptgroup_router.errors import ApiError, shown

CHAT_PATH = b"/v1/chat/completions"
TEXT_PATH = b"/v1/completions"

TOOLS_REMEMBERED = 256
"""Tool lists whose canonical form is kept: applications send the same few; sorting one anew takes 100 µs."""
TOOLS_REMEMBERED_BYTES = 65536
"""A longer tool list is not kept: bounds what remembering may take to 32 MiB."""

_SYSTEM_ROLES = ("system", "developer")


class Kind(enum.Enum):
    """Which API a request uses."""

    CHAT = "chat"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Ask:
    """A request body, read."""

    kind: Kind
    raw: bytes
    model: str
    system: str
    """The text that a declared prompt may be a prefix of: of the leading system or developer message, or the prompt."""
    has_system: bool
    """Whether the request brings a system or developer message anywhere."""
    tools: str
    """Canonical form, empty for none."""
    tools_in_order: bool
    """Whether the body has the tools in canonical form already."""
    conversation: bytes
    """What names the conversation within the body, empty when nothing does."""
    opening: bytes
    """The first user message (chat): the same in all turns of a conversation."""
    doc: dict[str, Any]
    """The parsed body; only this module looks into it."""


def read(kind: Kind, body: bytes) -> Ask:
    """Read a request body.

    Raises:
        ApiError: 400, with the field, its value and what is expected.
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
    try:
        return _read_chat(body, doc, model) if kind is Kind.CHAT else _read_text(body, doc, model)
    except (orjson.JSONEncodeError, RecursionError):
        raise ApiError(400, "the body is nested too deeply: at most 250 levels", code="invalid_json") from None


def _read_chat(body: bytes, doc: dict[str, Any], model: str) -> Ask:
    messages = doc.get("messages")
    if not isinstance(messages, list) or not messages:
        raise _wrong("messages", "messages", messages, "a list of at least one message")
    opening: object = None
    has_system = False
    for i, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise _wrong(f"messages[{i}]", "messages", message, "an object with a role")
        role = message["role"]
        if role in _SYSTEM_ROLES:
            has_system = True
        elif opening is None and role == "user":
            opening = message.get("content")
    tools = doc.get("tools")
    if tools is not None and not isinstance(tools, list):
        raise _wrong("tools", "tools", tools, "a list")
    spelled = orjson.dumps(tools) if tools else b""
    canonical = _canonical(spelled, tools) if tools else ""
    first = messages[0]
    return Ask(
        kind=Kind.CHAT,
        raw=body,
        model=model,
        system=_text_of(first.get("content")) if first["role"] in _SYSTEM_ROLES else "",
        has_system=has_system,
        tools=canonical,
        tools_in_order=spelled == canonical.encode(),
        conversation=_conversation(doc),
        opening=orjson.dumps(first if opening is None else opening),
        doc=doc,
    )


def _read_text(body: bytes, doc: dict[str, Any], model: str) -> Ask:
    prompt = doc.get("prompt")
    first = prompt[0] if isinstance(prompt, list) and prompt else prompt
    if isinstance(first, str):
        text = first
    elif prompt and isinstance(first, int | list) and not isinstance(first, bool):
        text = ""  # tokens: nothing to compare a declared text with
    else:
        raise _wrong("prompt", "prompt", prompt, "a text, or a list of texts or tokens")
    return Ask(
        kind=Kind.TEXT,
        raw=body,
        model=model,
        system=text,
        has_system=False,
        tools="",
        tools_in_order=True,
        conversation=_conversation(doc),
        opening=b"" if isinstance(first, str) else orjson.dumps(first)[:1024],
        doc=doc,
    )


# --- Bodies for the engine ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Preamble:
    """A declared prompt, serialised once, so that the bytes put in front are the same on every request."""

    message: orjson.Fragment
    tools: orjson.Fragment | None
    system: str
    canonical_tools: str


def preamble(system: str, tools: str) -> Preamble:
    """The preamble of a prompt; `tools` in canonical form, empty for none."""
    return Preamble(
        message=orjson.Fragment(orjson.dumps({"role": "system", "content": system})),
        tools=orjson.Fragment(tools) if tools else None,
        system=system,
        canonical_tools=tools,
    )


def with_preamble(ask: Ask, prompt: Preamble, model: str) -> bytes:
    """The body with the declared prompt in front, asking for the real model.

    Raises:
        ApiError: 400: the request brings a prompt or tools of its own.
    """
    named = f"model {shown(ask.model)} brings its own prompt"
    if ask.kind is Kind.TEXT:
        return orjson.dumps(ask.doc | {"model": model, "prompt": _prefixed(ask, prompt, named)})
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
            f"tools are not those that the group declares, but {named}: leave tools out, or ask for {model!r}",
            param="tools",
            code="tools_given_twice",
        )
    if prompt.tools is not None:
        doc["tools"] = prompt.tools
    return orjson.dumps(doc)


def _prefixed(ask: Ask, prompt: Preamble, named: str) -> str | list[str]:
    given = ask.doc["prompt"]
    if prompt.tools is not None:
        raise ApiError(
            400, f"{named} with tools, which /v1/completions has not: use /v1/chat/completions", param="model"
        )
    if isinstance(given, str):
        return prompt.system + given
    if isinstance(given, list) and all(isinstance(text, str) for text in given):
        return [prompt.system + text for text in given]
    raise ApiError(400, f"prompt holds tokens, but {named}, which is text: send text", param="prompt")


def with_ordered_tools(ask: Ask) -> bytes:
    """The body with its tools in canonical form; as received when they are already."""
    if ask.tools_in_order:
        return ask.raw
    return orjson.dumps(ask.doc | {"tools": orjson.Fragment(ask.tools)})


# --- Parts --------------------------------------------------------------------------------------------------

_canonical_forms: dict[bytes, str] = {}
"""Canonical forms by the spelling received; a cache, bounded by TOOLS_REMEMBERED."""


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


def _conversation(doc: dict[str, Any]) -> bytes:
    # in the order of precedence; `conversation` is a string or an object with an id
    conversation = doc.get("conversation")
    if isinstance(conversation, dict):
        conversation = conversation.get("id")
    for value in (doc.get("prompt_cache_key"), doc.get("previous_response_id"), conversation):
        if isinstance(value, str) and value:
            return value.encode()
    return b""


def _text_of(content: object) -> str:
    """Text of a message: a string, or its text parts, one a line, as chat templates join them."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = (part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text")
    return "\n".join(text for text in parts if isinstance(text, str))


def _wrong(field: str, param: str | None, value: object, expected: str) -> ApiError:
    """Names the kind of a wrong value, never its text: it may be a part of a prompt."""
    given = "missing" if value is None else "empty" if value in ("", [], {}) else f"a {type(value).__name__}"
    return ApiError(400, f"{field} is {given}, expected {expected}", param=param, code="invalid_value")
