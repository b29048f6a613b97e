"""OpenAI's Responses API: what routing needs from a body, and the body that goes to the engine.

Engines render `instructions` as the first system message, and a function tool as a function of chat completions, so
that one declared prompt serves both APIs. Instructions are not carried over by `previous_response_id`; a client that
names a group gets the declared ones in each turn.
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
)
from promptgroup_router.apis.tools import ToolForms
from promptgroup_router.documents import lax

RESPONSES_PATH = b"/v1/responses"
BACKGROUND = "background"
"""The field by which a response is computed without a client that waits for it."""

TOOL_LISTS = 256
"""Most declared tool lists whose form in this API is cached."""

_RENDERED = ("function", "custom", "namespace", None)
"""Types of tools that become part of the prompt."""
_TEXTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text", "refusal")
"""Types of parts that hold text."""


# --- The forms of the two APIs ------------------------------------------------------------------------------


def chat_tools(tools: Sequence[Any]) -> list[Any]:
    """Return tools as chat completions have them; without the API's built-in tools, which engines do not render.

    A custom tool and a namespace, which each engine renders in its own way, stay as they are: no group declares them.
    """
    return [_function(tool) for tool in tools if not isinstance(tool, dict) or tool.get("type") in _RENDERED]


def _function(tool: Any) -> Any:
    if not isinstance(tool, dict) or tool.get("type") != "function" or "function" in tool:
        return tool
    return {"type": "function", "function": {name: value for name, value in tool.items() if _says(name, value)}}


def _says(name: str, value: object) -> bool:
    """Return True for a field of a tool that belongs to its function; null is equivalent to a missing field."""
    return name not in ("type", "cache_control") and value is not None


@lru_cache(TOOL_LISTS)
def responses_tools(canonical: str) -> str | None:
    """Return canonical tools as this API has them, in JSON; None where that would change their meaning."""
    tools = []
    for tool in orjson.loads(canonical):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict):
            return None
        tools.append(function | {"type": "function"})
    return canonical_tools(tools) if canonical_tools(chat_tools(tools)) == canonical else None


def _forms(tools: list[Any]) -> tuple[str, str]:
    return canonical_tools(chat_tools(tools)), canonical_tools(tools)


_tool_forms = ToolForms(_forms)


# --- Requests -----------------------------------------------------------------------------------------------


def parse_response(body: bytes) -> ParsedRequest:
    """Read the body of a request for a response.

    Raises:
        ApiError: 400, with the field, its value and what is expected.
    """
    doc, model = read_object(body)
    given, instructions, tools = doc.get("input"), doc.get("instructions"), doc.get("tools")
    if not isinstance(given, str | list):
        raise wrong("input", "input", given, "a text or a list of items")
    if instructions is not None and not isinstance(instructions, str):
        raise wrong("instructions", "instructions", instructions, "a text")
    if tools is not None and not isinstance(tools, list):
        raise wrong("tools", "tools", tools, "a list")
    previous = doc.get("previous_response_id")
    if previous is not None and not isinstance(previous, str):
        raise wrong("previous_response_id", "previous_response_id", previous, "the id of a response")
    messages, parts, media = _conversation([{"role": "user", "content": given}] if isinstance(given, str) else given)
    roles = [message["role"] for message in messages]
    system = instructions or ""
    if not system and roles and roles[0] in SYSTEM_ROLES:
        system = messages[0]["content"]
    text, history = measure(parts)
    spelled = encoded(tools) if tools else b""
    form = _tool_forms.get(spelled, tools) if tools else None
    before = size_of(instructions or "") + (size_of(form.canonical) if form is not None else 0)
    return ParsedRequest(
        kind=ApiKind.RESPONSES,
        raw=body,
        model=model,
        system=system,
        has_system=bool(instructions) or any(role in SYSTEM_ROLES for role in roles),
        tools=form.canonical if form is not None else "",
        tools_in_order=form is None or form.in_order,
        text=text + before,
        history=history + before if history else 0,
        turn=max(1, len(parts)) + bool(instructions),
        ids=0,
        streamed=streams(doc),
        media=media,
        doc=doc,
        messages=messages,
    )


def previous_response(request: ParsedRequest) -> str:
    """Return the id of the response that a request continues; empty if it continues none."""
    return request.doc.get("previous_response_id") or "" if request.kind is ApiKind.RESPONSES else ""


def goes_on(request: ParsedRequest) -> bool:
    """Return True if an engine may go on after it has answered, so that the router does not see the response's end."""
    given = request.doc.get(BACKGROUND) if request.kind is ApiKind.RESPONSES else None
    return given is not None and lax.truth(given) is not False


def _conversation(items: list[Any]) -> tuple[list[dict[str, str]], list[tuple[str, int]], bool]:
    """Read the items of an input.

    Returns:
        The messages, as roles and texts; role and bytes of each item; True if an item has parts other than text.
    """
    messages: list[dict[str, str]] = []
    parts: list[tuple[str, int]] = []
    media = False
    for i, item in enumerate(items):
        if not isinstance(item, dict):
            raise wrong(f"input[{i}]", "input", item, "an object")
        role, kind = item.get("role"), item.get("type", "message")
        if kind == "message" and isinstance(role, str):
            text, shows = _text(item.get("content"))
            messages.append({"role": role, "content": text})
            parts.append((role, size_of(text)))
            media = media or shows
        elif kind == "reasoning":
            parts.append(("assistant", size_of(_text(item.get("content"))[0] or _text(item.get("summary"))[0])))
        elif kind in ("function_call", "custom_tool_call"):
            size = len(encoded([item.get("name"), item.get("arguments"), item.get("input")]))
            parts.append(("assistant", size))
        else:
            text, shows = _text(item.get("output"))
            parts.append(("user", size_of(text)))
            # an item of the API's own tools becomes text that only the engine generates
            media = media or shows or "output" not in item
    return messages, parts, media


def _text(content: object) -> tuple[str, bool]:
    """Return the text of a content, its parts joined by line feeds, and True if it has parts other than text."""
    if isinstance(content, str):
        return content, False
    texts, media = [], False
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and part.get("type") in _TEXTS:
            text = part.get("text", part.get("refusal"))
            texts.append(text if isinstance(text, str) else "")
        else:
            media = True
    return "\n".join(texts), media


# --- Bodies for the engine ----------------------------------------------------------------------------------


def with_preamble(request: ParsedRequest, prompt: Preamble, model: str) -> bytes:
    """Return the body with the declared prompt in front, asking for the real model.

    Raises:
        ApiError: 400: the request has a prompt or tools of its own, or the declared tools do not exist in this API.
    """
    bare = not request.doc.get("instructions")
    text = "input has a system or developer message" if bare else "instructions are given"
    own = request.doc.get("instructions") or "" if prompt.appends else ""
    check_bare(request, prompt, text, "input" if bare else "instructions", own=own)
    doc = request.doc | {"model": model}
    if prompt.system:
        doc["instructions"] = with_own(prompt, own) if own else prompt.system
    if prompt.messages and not previous_response(request):
        # a response that is continued holds them already
        given = doc["input"]
        items = given if isinstance(given, list) else [{"role": "user", "content": given}]
        doc["input"] = [*prompt.messages, *items]
    if prompt.canonical_tools and not request.tools:
        tools = declared_tools(responses_tools(prompt.canonical_tools), "Responses")
        # the tools that are given are built-in ones, which are not rendered
        doc["tools"] = [*orjson.loads(tools), *(doc.get("tools") or ())]
    elif request.tools:
        doc["tools"] = ordered_tools(request, _tool_forms)
    return encoded(doc)


def with_ordered_tools(request: ParsedRequest) -> bytes:
    """Return the body with the keys of its tools in order; as received when they are already."""
    if request.tools_in_order:
        return request.raw
    return encoded(request.doc | {"tools": ordered_tools(request, _tool_forms)})


def with_id(body: bytes | bytearray, response_id: str) -> bytes:
    """Return a body, a JSON object with at least one field, that requests a response with this id."""
    start = body.index(b"{") + 1
    return b"".join((body[:start], b'"request_id":"%b",' % response_id.encode(), body[start:]))
