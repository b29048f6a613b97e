"""Parses bodies of OpenAI requests for routing, and writes the bodies for engines. Does no I/O and reads no clock.

A body is forwarded byte for byte unless a declared prompt is put in front, the model is renamed, or tools are put in
canonical form.
"""

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from promptgroup_contract import fingerprint
from promptgroup_contract.messages import read_messages
from promptgroup_contract.table import Prompt
from promptgroup_router.apis.tools import ToolForms
from promptgroup_router.base.errors import ApiError, shown

CHAT_PATH = b"/v1/chat/completions"
TEXT_PATH = b"/v1/completions"

_TYPES: dict[type, str] = {
    bool: "a boolean", int: "a number", float: "a number", str: "a text", list: "a list", dict: "an object"
}  # fmt: skip
"""Types of values in JSON, as errors name them."""

SYSTEM_ROLES = ("system", "developer")
"""Roles of messages that instruct the model and are not part of the conversation."""


class ApiKind(enum.Enum):
    """The API of a request."""

    CHAT = "chat"
    TEXT = "text"
    MESSAGES = "messages"
    """Anthropic's messages, and the count of their tokens."""
    RESPONSES = "responses"
    """OpenAI's responses."""
    BY_MODEL = "by model"
    """Anything that is routed by its model alone, in JSON."""
    FORM = "form"
    """The same as a form."""
    PASSED = "passed"
    """Anything at a path that only the settings of this router allow, in JSON."""


@dataclass(slots=True)
class ParsedRequest:
    """A parsed request body."""

    kind: ApiKind
    raw: bytes
    model: str
    system: str
    """The text that a declared prompt may be a prefix of: the leading system or developer message, or the prompt."""
    has_system: bool
    """True if any message of the request has the role system or developer."""
    tools: str
    """The tools in canonical form, empty for none."""
    tools_in_order: bool
    """True if the body has the tools in canonical form already."""
    text: int
    """Bytes of all text of the prompt: messages, tool calls, tools."""
    history: int
    """Bytes of the text of earlier turns, up to the last answer; 0 on a first turn."""
    turn: int
    """Number of messages; 1 for a text."""
    ids: int
    """Number of tokens of a prompt that is given as token ids, else 0."""
    streamed: bool
    """True if the answer is streamed."""
    media: bool
    """True if the prompt has parts other than text, so that its length cannot be estimated from `text`."""
    doc: dict[str, Any]
    """The parsed body; only the modules of this folder read it."""
    messages: Sequence[Mapping[str, Any]] = ()
    """The conversation: objects with a role and a content of text or parts; empty for a text."""
    content: int = 0
    """A hash of the body, where `raw` is not here."""
    compared: Sequence[Any] | None = None
    """The hashes by which the prompt is compared with an earlier one, where its client requests it and `raw` is in
    another process."""
    marks: Sequence[Any] | None = None
    """The marks of the prompt (`prompt_marks`), where `raw` is not here."""
    prompts: int = 1
    """Number of prompts, each of which has answers of its own; a text completion may have several."""
    embedded: int = 0
    """Number of further ones that are embeddings, which engines get where their group allows `prompt_embeds`."""

    def with_doc(self, doc: dict[str, Any]) -> "ParsedRequest":
        """Return the request with another body, and all else as it is."""
        # dataclasses.replace() refuses the compiled class
        return ParsedRequest(
            kind=self.kind,
            raw=self.raw,
            model=self.model,
            system=self.system,
            has_system=self.has_system,
            tools=self.tools,
            tools_in_order=self.tools_in_order,
            text=self.text,
            history=self.history,
            turn=self.turn,
            ids=self.ids,
            streamed=self.streamed,
            media=self.media,
            doc=doc,
            messages=self.messages,
            content=self.content,
            compared=self.compared,
            marks=self.marks,
            prompts=self.prompts,
            embedded=self.embedded,
        )


def parse(kind: ApiKind, body: bytes) -> ParsedRequest:
    """Parse a request body.

    Raises:
        ApiError: 400; the message names the field, its value and what is expected.
    """
    doc, model = read_object(body)
    return _read_chat(body, doc, model) if kind is ApiKind.CHAT else _read_text(body, doc, model)


def read_object(body: bytes, *, named: bool = True) -> tuple[dict[str, Any], str]:
    """Return a body's object and the model that it names.

    Args:
        body: the body.
        named: False if it need not name a model, which is empty then.

    Raises:
        ApiError: 400: the body is no JSON, no object, or names no model.
    """
    try:
        doc = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ApiError(400, f"the body is not JSON: {error}", code="invalid_json") from None
    if not isinstance(doc, dict):
        raise wrong("the body", None, doc, "an object")
    model = doc.get("model")
    if model is None and not named:
        return doc, ""
    if not isinstance(model, str) or not model:
        raise wrong("model", "model", model, "the name of a model or of a PromptGroup")
    return doc, model


def streams(doc: Mapping[str, Any]) -> bool:
    """Return True if a body asks for a stream.

    Engines take `"true"`, `"yes"` and 1 for true, too (`documents.lax`). This field determines the form of the answer,
    so a value that is neither a boolean nor null is refused instead: the router and every engine agree on it.

    Raises:
        ApiError: 400: `stream` is neither a boolean nor null.
    """
    stream = doc.get("stream")
    if stream is True:
        return True
    if stream is None or stream is False:
        return False
    raise wrong("stream", "stream", stream, "true or false")


def measure(parts: Iterable[tuple[str, int]]) -> tuple[int, int]:
    """Return the bytes of a conversation's text, and of those that an earlier turn has sent or got.

    Args:
        parts: role and bytes of each part; what is neither of the system nor of the assistant is the user's.
    """
    text = answered = history = 0
    requested = False
    for role, size in parts:
        if role == "assistant":
            # before any user message it is a greeting that all conversations begin with
            answered = text + size if requested else 0
        elif role not in SYSTEM_ROLES:
            requested, history = True, answered
        text += size
    return text, history


def _read_chat(body: bytes, doc: dict[str, Any], model: str) -> ParsedRequest:
    messages = doc.get("messages")
    if not isinstance(messages, list) or not messages:
        raise wrong("messages", "messages", messages, "a list of at least one message")
    has_system = requested = media = False
    text = answered = history = 0
    for i, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(role := message.get("role"), str):
            raise wrong_message(i, message)
        content = message.get("content")
        if isinstance(content, str):
            size = size_of(content)
        else:
            size = size_of(text_of(content))
            media = media or any(map(is_media, content if isinstance(content, list) else ()))
        if calls := message.get("tool_calls"):
            size += len(encoded(calls))
        if role == "assistant":
            # before any user message it is a greeting that all conversations begin with
            answered = text + size if requested else 0
        elif role in SYSTEM_ROLES:
            has_system = True
        else:
            requested, history = True, answered
        text += size
    tools = doc.get("tools")
    if tools is not None and not isinstance(tools, list):
        raise wrong("tools", "tools", tools, "a list")
    spelled = encoded(tools) if tools else b""
    form = _tool_forms.get(spelled, tools) if tools else None
    first = messages[0]
    return ParsedRequest(
        kind=ApiKind.CHAT,
        raw=body,
        model=model,
        system=text_of(first.get("content")) if first["role"] in SYSTEM_ROLES else "",
        has_system=has_system,
        tools=form.canonical if form is not None else "",
        tools_in_order=form is None or form.in_order,
        text=text + len(spelled),
        history=history + len(spelled) if history else 0,
        turn=len(messages),
        ids=0,
        streamed=streams(doc),
        media=media,
        doc=doc,
        messages=messages,
    )


def _read_text(body: bytes, doc: dict[str, Any], model: str) -> ParsedRequest:
    prompt = doc.get("prompt")
    several = prompt if isinstance(prompt, list) else [prompt]
    first = several[0] if several else None
    text = ids = 0
    if isinstance(first, str) and first:
        text = sum(size_of(item) for item in several if isinstance(item, str))
    elif isinstance(first, list):
        ids = sum(len(item) for item in several if isinstance(item, list))
    elif isinstance(first, int) and not isinstance(first, bool) and isinstance(prompt, list):
        ids = len(prompt)
    elif first != "":
        raise wrong("prompt", "prompt", prompt, "a text, or a list of texts or tokens")
    embedded = doc.get("prompt_embeds")
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
        streamed=streams(doc),
        media=False,
        doc=doc,
        prompts=len(several) if isinstance(first, str | list) else 1,
        embedded=len(embedded) if isinstance(embedded, list) else int(isinstance(embedded, str)),
    )


# --- Bodies for the engine ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Preamble:
    """A declared prompt, serialised once, so that every request gets the same bytes."""

    prompt: Prompt
    message: orjson.Fragment
    tools: orjson.Fragment | None
    system: str
    canonical_tools: str
    messages: tuple[orjson.Fragment, ...]
    """The declared messages, in the form that all APIs share."""
    message_bytes: int
    """Bytes of their text."""
    model: str
    """The model that a request with a prompt of its own asks for."""
    appends: bool
    """True if a client's own instructions follow the declared system text."""


def _fragment(message: dict[str, str]) -> orjson.Fragment:
    """Return a message as JSON, in a copy: orjson's own result occupies several times as much memory."""
    return orjson.Fragment(bytes(memoryview(orjson.dumps(message))))


def preamble(prompt: Prompt, model: str, *, appends: bool = False) -> Preamble:
    """Return the preamble of a prompt; `model` is that of its group, as clients know it."""
    messages = read_messages(prompt.messages)
    return Preamble(
        prompt=prompt,
        message=_fragment({"role": "system", "content": prompt.system}),
        tools=orjson.Fragment(prompt.tools) if prompt.tools else None,
        system=prompt.system,
        canonical_tools=prompt.tools,
        messages=tuple(_fragment({"role": role, "content": text}) for role, text in messages),
        message_bytes=sum(size_of(text) for _, text in messages),
        model=model,
        appends=appends,
    )


def with_preamble(request: ParsedRequest, prompt: Preamble, model: str) -> bytes:
    """Return the body with the declared prompt in front and the name of the model that engines serve.

    Raises:
        ApiError: 400 if the request has a prompt or tools of its own.
    """
    if request.kind is ApiKind.TEXT:
        return encoded(request.doc | {"model": model, "prompt": _prefixed(request, prompt)})
    first = request.messages[0]
    own = request.system if prompt.appends and first["role"] in SYSTEM_ROLES else ""
    check_bare(request, prompt, "messages has a system or developer message", "messages", own=own)
    doc = request.doc | {"model": model}
    if own:
        first = {**first, "content": with_own(prompt, own)}
        doc["messages"] = [first, *prompt.messages, *doc["messages"][1:]]
    else:
        system = [prompt.message] if prompt.system else []
        doc["messages"] = [*system, *prompt.messages, *doc["messages"]]
    if prompt.tools is not None:
        doc["tools"] = prompt.tools
    return encoded(doc)


def with_own(prompt: Preamble, own: str) -> str:
    """Return the declared system text, followed by the client's instructions."""
    return f"{prompt.system}\n\n{own}" if prompt.system else own


def check_bare(request: ParsedRequest, prompt: Preamble, result: str, param: str, *, own: str = "") -> None:
    """Check that a request which is given the declared prompt has neither a prompt nor other tools.

    Args:
        request: the request.
        prompt: the prompt that is put in front of it.
        result: says where the request contains a prompt, for the error.
        param: the field that is at fault then.
        own: instructions of the client that will follow the declared ones, in a group that allows them.

    Raises:
        ApiError: 400: it has one.
    """
    if request.has_system and not own:
        message = f"{result}, but {_brings(request)}: leave it out, or ask for {prompt.model!r}"
        raise ApiError(400, message, param=param, code="prompt_given_twice")
    if request.tools and request.tools != prompt.canonical_tools:
        raise ApiError(
            400,
            f"tools differ from what the group declares, but {_brings(request)}: "
            f"leave tools out, or ask for {prompt.model!r}",
            param="tools",
            code="tools_given_twice",
        )


def _brings(request: ParsedRequest) -> str:
    return f"model {shown(request.model)} brings its own prompt"


def _prefixed(request: ParsedRequest, prompt: Preamble) -> str | list[str]:
    given, named = request.doc["prompt"], _brings(request)
    if prompt.tools is not None or prompt.messages:
        subject = "messages" if prompt.tools is None else "tools"
        raise ApiError(
            400,
            f"{named} with {subject}, which /v1/completions does not support: use /v1/chat/completions",
            param="model",
        )
    if isinstance(given, str):
        return prompt.system + given
    if isinstance(given, list) and all(isinstance(text, str) for text in given):
        return [prompt.system + text for text in given]
    raise ApiError(400, f"prompt holds tokens, but {named}, which is text: send text", param="prompt")


def ordered_tools(request: ParsedRequest, forms: ToolForms) -> orjson.Fragment:
    """Return the tools of a request with their keys in order; `forms` are those of its API."""
    tools = request.doc["tools"]
    return orjson.Fragment(forms.get(encoded(tools), tools).ordered)


def declared_tools(tools: str | None, api: str) -> str:
    """Return a group's tools as another API than chat completions has them.

    Raises:
        ApiError: 400: `tools` is None, since this API cannot state them.
    """
    if tools is None:
        message = f"the group declares tools that the {api} API cannot state: use /v1/chat/completions"
        raise ApiError(400, message, param="model", code="tools_not_in_this_api")
    return tools


def with_ordered_tools(request: ParsedRequest) -> bytes:
    """Return the body with its tools in canonical form; the bytes as received if they are already."""
    if request.tools_in_order:
        return request.raw
    return encoded(request.doc | {"tools": orjson.Fragment(request.tools)})


# --- Parts --------------------------------------------------------------------------------------------------


def _chat_forms(tools: list[Any]) -> tuple[str, str]:
    form = fingerprint.canonical_tools(tools)
    return form, form


_tool_forms = ToolForms(_chat_forms)


def encoded(value: object) -> bytes:
    """Return a value as compact JSON.

    Raises:
        ApiError: 400: it is nested too deeply.
    """
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


def wrong(field: str, param: str | None, value: object, expected: str) -> ApiError:
    """Return an error that names the type of a wrong value, never its text, which may be part of a prompt."""
    given = "missing" if value is None else "empty" if value in ("", [], {}) else _TYPES[type(value)]
    return ApiError(400, f"{field} is {given}, expected {expected}", param=param, code="invalid_value")


def wrong_message(index: int, message: object) -> ApiError:
    """Return the error for a message that is no object, or whose role is no text."""
    if not isinstance(message, dict):
        return wrong(f"messages[{index}]", "messages", message, "an object with a role")
    return wrong(f"messages[{index}].role", "messages", message.get("role"), "a text such as user")
