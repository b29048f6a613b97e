"""Anthropic's Messages API: what routing needs from a body, and the body that goes to the engine.

Engines render a request of this API through the same chat template as a chat completion, so that one declared prompt
serves both. They convert it as follows (vLLM 0.32, SGLang 0.5):

- `system` becomes the first message. vLLM joins its text blocks with nothing between them, and leaves out the block in
  which Claude Code states what it is billed for, which differs from request to request.
- A tool becomes a function whose parameters are the `input_schema`, of type `object` unless it names one.
- `cache_control` is accepted and has no effect. It is forwarded unchanged, and no part of a fingerprint.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import orjson

from promptgroup_contract.fingerprint import canonical_tools
from promptgroup_router.apis.request import (
    SYSTEM_ROLES,
    ApiKind,
    ParsedRequest,
    Preamble,
    check_bare,
    declared_tools,
    encoded,
    measure,
    ordered_tools,
    read_object,
    size_of,
    streams,
    with_own,
    wrong,
    wrong_message,
)
from promptgroup_router.apis.tools import ToolForms

MESSAGES_PATH: bytes = b"/v1/messages"
COUNT_PATH: bytes = b"/v1/messages/count_tokens"

VERSION_HEADER: bytes = b"anthropic-version"
"""The header field that requests of this API have."""

BILLING = "x-anthropic-billing-header"
"""The beginning of a system block that engines leave out of the prompt."""

_FUNCTION_FIELDS = ("description", "strict", "defer_loading")
"""Fields that a tool has in common with a function of chat completions; null is equivalent to a missing field."""

TOOL_LISTS = 256
"""Most declared tool lists whose form in this API is cached."""


# --- The forms of the two APIs ------------------------------------------------------------------------------


def system_text(system: object) -> str:
    """Return the text that engines make of the `system` field: a text, or a list of blocks."""
    if isinstance(system, str):
        return system
    if not isinstance(system, list):
        return ""
    texts = (block.get("text") for block in system if isinstance(block, dict) and block.get("type") == "text")
    return "".join(text for text in texts if isinstance(text, str) and not text.startswith(BILLING))


def chat_tools(tools: Sequence[Any]) -> list[Any]:
    """Return tools as chat completions have them. What is no tool with an `input_schema` stays as it is."""
    return [_function(tool) for tool in tools]


def _function(tool: Any) -> Any:
    if not isinstance(tool, dict):
        return tool
    name, schema = tool.get("name"), tool.get("input_schema")
    if not isinstance(name, str) or not isinstance(schema, dict):
        return tool
    function = {"name": name} | {field: tool[field] for field in _FUNCTION_FIELDS if tool.get(field) is not None}
    function["parameters"] = schema if "type" in schema else schema | {"type": "object"}
    return {"type": "function", "function": function}


@lru_cache(TOOL_LISTS)
def messages_tools(canonical: str) -> str | None:
    """Return canonical tools as this API has them, in JSON; None where that would change their meaning."""
    tools = []
    for tool in orjson.loads(canonical):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or "parameters" not in function:
            return None
        tools.append({("input_schema" if name == "parameters" else name): value for name, value in function.items()})
    return canonical_tools(tools) if canonical_tools(chat_tools(tools)) == canonical else None


def _forms(tools: list[Any]) -> tuple[str, str]:
    ordered = []
    for tool in tools:
        schema = tool.get("input_schema") if isinstance(tool, dict) else None
        sorted_schema = {"input_schema": orjson.Fragment(canonical_tools([schema])[1:-1])} if schema else {}
        ordered.append(tool | sorted_schema if isinstance(tool, dict) else tool)
    return canonical_tools(chat_tools(tools)), encoded(ordered).decode()


_tool_forms = ToolForms(_forms)


# --- Requests -----------------------------------------------------------------------------------------------


def parse_messages(body: bytes) -> ParsedRequest:
    """Read the body of a request for a message, or for the count of its tokens.

    Raises:
        ApiError: 400, with the field, its value and what is expected.
    """
    doc, model = read_object(body)
    messages = doc.get("messages")
    if not isinstance(messages, list) or not messages:
        raise wrong("messages", "messages", messages, "a list of at least one message")
    system, tools = doc.get("system"), doc.get("tools")
    if system is not None and not isinstance(system, str | list):
        raise wrong("system", "system", system, "a text or a list of blocks")
    if tools is not None and not isinstance(tools, list):
        raise wrong("tools", "tools", tools, "a list")
    declared = system_text(system)
    has_system, media = bool(declared), False
    parts: list[tuple[str, int]] = []
    for i, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(role := message.get("role"), str):
            raise wrong_message(i, message)
        size, shows = _measured(message.get("content"))
        parts.append((role, size))
        media = media or shows
        has_system = has_system or role in SYSTEM_ROLES
    text, history = measure(parts)
    spelled = encoded(tools) if tools else b""
    form = _tool_forms.get(spelled, tools) if tools else None
    before = size_of(declared) + (size_of(form.canonical) if form is not None else 0)
    return ParsedRequest(
        kind=ApiKind.MESSAGES,
        raw=body,
        model=model,
        system=declared,
        has_system=has_system,
        tools=form.canonical if form is not None else "",
        tools_in_order=form is None or form.in_order,
        text=text + before,
        history=history + before if history else 0,
        turn=len(messages) + bool(declared),
        ids=0,
        streamed=streams(doc),
        media=media,
        doc=doc,
        messages=messages,
    )


def _measured(content: object) -> tuple[int, bool]:
    """Return the bytes of a content's text, and whether it has parts that are no text."""
    if isinstance(content, str):
        return size_of(content), False
    size, media = 0, False
    for block in content if isinstance(content, list) else ():
        if not isinstance(block, dict):
            continue
        match block.get("type"):
            case "text" | "thinking" as kind:
                text = block.get(kind)
                size += size_of(text) if isinstance(text, str) else 0
            case "tool_use":
                size += len(encoded(block.get("input")))
            case "tool_result":
                # a result holds texts and images, no results: what is nested deeper is not read
                held = block.get("content")
                for part in held if isinstance(held, list) else ({"type": "text", "text": held},):
                    text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
                    size += size_of(text) if isinstance(text, str) else 0
                    media = media or (isinstance(part, dict) and part.get("type") != "text")
            case _:
                media = True
    return size, media


# --- Bodies for the engine ----------------------------------------------------------------------------------


def with_preamble(request: ParsedRequest, prompt: Preamble, model: str) -> bytes:
    """Return the body with the declared prompt in front, asking for the real model.

    Raises:
        ApiError: 400: the request has a prompt or tools of its own, or the declared tools do not exist in this API.
    """
    text = "system is given" if request.system else "messages has a system message"
    own = request.system if prompt.appends else ""
    check_bare(request, prompt, text, "system" if request.system else "messages", own=own)
    doc = request.doc | {"model": model}
    if prompt.system:
        doc["system"] = with_own(prompt, own) if own else prompt.system
    if prompt.messages:
        doc["messages"] = [*prompt.messages, *doc["messages"]]
    if prompt.canonical_tools and not request.tools:
        tools = declared_tools(messages_tools(prompt.canonical_tools), "Messages")
        doc["tools"] = orjson.Fragment(tools)
    elif request.tools:
        doc["tools"] = ordered_tools(request, _tool_forms)
    return encoded(doc)


def with_ordered_tools(request: ParsedRequest) -> bytes:
    """Return the body with the keys of its tools in order; as received when they are already."""
    if request.tools_in_order:
        return request.raw
    return encoded(request.doc | {"tools": ordered_tools(request, _tool_forms)})
