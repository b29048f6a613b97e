"""OpenAI's Responses API in the form of vLLM: a body as a chat completion, and answers of its own. Does no I/O."""

from dataclasses import dataclass

import orjson

from promptgroup_local.engine.protocol import ApiError, Json, Usage


def chat_body(body: Json, before: list[Json]) -> Json:
    """Return the equivalent chat completion.

    Args:
        body: the request.
        before: the messages of the responses that it continues.

    Raises:
        ApiError: 400, for fields that the API does not accept.
    """
    given, instructions = body.get("input"), body.get("instructions")
    if not isinstance(given, str | list):
        raise ApiError(400, "input is missing, expected a text or a list of items", "input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    items = [item for item in items if not isinstance(item, dict) or item.get("type") != "reasoning"]
    system: list[Json] = [{"role": "system", "content": instructions}] if instructions else []
    chat: Json = {"model": body.get("model"), "messages": [*system, *before, *map(_message, items)]}
    tools = body.get("tools")
    if isinstance(tools, list) and tools:
        chat["tools"] = [_function(tool) for tool in tools if isinstance(tool, dict) and tool.get("type") == "function"]
    if body.get("max_output_tokens") is not None:
        chat["max_tokens"] = body["max_output_tokens"]
    return chat | {name: body[name] for name in ("stream", "cache_salt", "extra_key") if body.get(name) is not None}


def forced_tool(body: Json) -> str:
    """Return the name of the tool that the answer must call; empty if it may be text."""
    match body.get("tool_choice"), body.get("tools"):
        case {"type": "function", "name": str(name)}, _:
            return name
        case "required", [{"name": str(name)}, *_]:
            return name
        case _:
            return ""


def _message(item: object) -> Json:
    match item:
        case {"type": "function_call", "name": name, "arguments": arguments}:
            call = {"type": "function", "function": {"name": name, "arguments": arguments}}
            return {"role": "assistant", "content": None, "tool_calls": [call]}
        case {"type": "function_call_output", "output": output}:
            return {"role": "tool", "content": output if isinstance(output, str) else orjson.dumps(output).decode()}
        case {"role": role, "content": content}:
            return {"role": role, "content": content if isinstance(content, str) else _text(content)}
        case _:
            raise ApiError(400, "an item of the input is no message, function call or output", "input")


def _text(content: object) -> str:
    parts = content if isinstance(content, list) else []
    if not all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in parts):
        raise ApiError(400, "a part of the input is no text: this engine serves text only", "input")
    return "\n".join(part["text"] for part in parts)


def _function(tool: Json) -> Json:
    # in the order of keys in which the router sends tools of chat completions: vLLM has one order for all APIs
    function = {name: tool[name] for name in sorted(tool) if name != "type" and tool[name] is not None}
    return {"function": function, "type": "function"}


@dataclass(frozen=True, slots=True)
class ResponseEnvelope:
    """The parts that all events of one answer share."""

    id: str
    created: int
    model: str
    request: Json
    tool: str = ""
    """The tool that is called; empty for an answer in text."""

    def whole(self, status: str, text: str | None = None, usage: Usage | None = None) -> Json:
        """Return the response; without a text while there is none."""
        request = self.request
        return {
            "id": self.id,
            "created_at": self.created,
            "incomplete_details": None,
            "instructions": request.get("instructions"),
            "metadata": request.get("metadata"),
            "model": self.model,
            "object": "response",
            "output": [self._item("completed", text)] if text is not None else [],
            "parallel_tool_calls": True,
            "temperature": 1.0,
            "tool_choice": request.get("tool_choice", "auto"),
            "tools": request.get("tools") or [],
            "top_p": 1.0,
            "background": bool(request.get("background")),
            "max_output_tokens": request.get("max_output_tokens"),
            "previous_response_id": request.get("previous_response_id"),
            "service_tier": "auto",
            "status": status,
            "text": request.get("text"),
            "truncation": "disabled",
            "usage": _usage(usage) if usage is not None else None,
            "user": request.get("user"),
        }

    def opening(self) -> list[Json]:
        """Return the events before the first text."""
        whole = self.whole("in_progress")
        events: list[Json] = [
            {"type": "response.created", "response": whole},
            {"type": "response.in_progress", "response": whole},
            {"type": "response.output_item.added", "output_index": 0, "item": self._item("in_progress", None)},
        ]
        return (
            events if self.tool else [*events, {"type": "response.content_part.added", **self._at(), "part": _part("")}]
        )

    def piece(self, text: str) -> Json:
        """Return an event with text."""
        if self.tool:
            return {"type": "response.function_call_arguments.delta", **self._at(call=True), "delta": text}
        return {"type": "response.output_text.delta", **self._at(), "delta": text, "logprobs": []}

    def closing(self, status: str, text: str, usage: Usage) -> list[Json]:
        """Return the events after the last text."""
        done: list[Json] = [
            {"type": "response.output_text.done", **self._at(), "text": text, "logprobs": []},
            {"type": "response.content_part.done", **self._at(), "part": _part(text)},
        ]
        if self.tool:
            arguments = {"arguments": text, "name": self.tool}
            done = [{"type": "response.function_call_arguments.done", **self._at(call=True), **arguments}]
        return [
            *done,
            {"type": "response.output_item.done", "output_index": 0, "item": self._item("completed", text)},
            {"type": "response.completed", "response": self.whole(status, text, usage)},
        ]

    def said(self, text: str) -> list[Json]:
        """Return the answer as messages for a request that continues it."""
        return [{"role": "assistant", "content": text}]

    def _at(self, *, call: bool = False) -> Json:
        at: Json = {"item_id": self._item_id, "output_index": 0}
        return at if call else at | {"content_index": 0}

    @property
    def _item_id(self) -> str:
        return f"{'fc' if self.tool else 'msg'}_{self.id}"

    def _item(self, status: str, text: str | None) -> Json:
        item: Json = {"id": self._item_id, "status": status}
        if self.tool:
            call: Json = {"type": "function_call", "call_id": f"call_{self.id}", "name": self.tool}
            return item | call | {"arguments": text or ""}
        return item | {"type": "message", "role": "assistant", "content": [] if text is None else [_part(text)]}


def _part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": None}


def _usage(usage: Usage) -> Json:
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached or 0},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt + usage.completion,
    }
