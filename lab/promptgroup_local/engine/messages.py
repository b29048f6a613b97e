"""Anthropic's Messages API in the form of vLLM: a body as a chat completion, and answers of its own. Does no I/O."""

from collections.abc import Iterator
from dataclasses import dataclass

from promptgroup_local.engine.answer import Finish
from promptgroup_local.engine.flags import Speech
from promptgroup_local.engine.protocol import ApiError, Json, Usage

BILLING = "x-anthropic-billing-header"
"""The beginning of a system block that vLLM leaves out of the prompt."""

_REASONS = {Finish.STOP: "end_turn", Finish.LENGTH: "max_tokens", Finish.ABORT: None}


def error_body(error: ApiError, speech: Speech) -> Json:
    """Return an error as the engine answers it on this API: vLLM has its own types in Anthropic's envelope."""
    if speech is Speech.SGLANG:
        return {"type": "error", "error": {"type": "invalid_request_error", "message": str(error)}}
    kind = {400: "BadRequestError", 404: "NotFoundError"}.get(error.status, "InternalServerError")
    return {"type": "error", "error": {"type": kind, "message": str(error)}}


def chat_body(body: Json, speech: Speech, *, counts: bool = False) -> Json:
    """Return the equivalent chat completion; `counts` is for a request that only counts tokens.

    SGLang ignores salts on this API.

    Raises:
        ApiError: 400, for fields that the API does not accept.
    """
    messages, system, tools = body.get("messages"), body.get("system"), body.get("tools")
    if not isinstance(messages, list):
        raise ApiError(400, "messages is missing, expected a list", "messages")
    chat: Json = {"model": body.get("model"), "messages": [*_system(system), *_messages(messages)]}
    if not counts:
        most = body.get("max_tokens")
        if type(most) is not int or most < 1:
            raise ApiError(400, "max_tokens must be positive", "max_tokens")
        chat["max_tokens"] = most
    if isinstance(tools, list):
        chat["tools"] = [_function(tool) for tool in tools]
    kept = ("stream",) if speech is Speech.SGLANG else ("stream", "cache_salt")
    chat |= {name: body[name] for name in kept if body.get(name) is not None}
    return chat


def forced_tool(body: Json) -> str:
    """Return the name of the tool that the answer must call; empty if it may be text."""
    match body.get("tool_choice"), body.get("tools"):
        case {"type": "tool", "name": str(name)}, _:
            return name
        case {"type": "any"}, [{"name": str(name)}, *_]:
            return name
        case _:
            return ""


def _system(system: object) -> list[Json]:
    if isinstance(system, str):
        return [{"role": "system", "content": system}] if system else []
    texts = [str(block.get("text", "")) for block in system] if isinstance(system, list) else []
    joined = "".join(text for text in texts if not text.startswith(BILLING))
    return [{"role": "system", "content": joined}] if joined else []


def _messages(messages: list[object]) -> Iterator[Json]:
    for message in messages:
        if not isinstance(message, dict):
            raise ApiError(400, "a message is no object", "messages")
        content = message.get("content")
        if not isinstance(content, list):
            yield {"role": message.get("role"), "content": content}
            continue
        texts: list[str] = []
        calls: list[Json] = []
        for block in content:
            match block:
                case {"type": "text", "text": str(text)}:
                    texts.append(text)
                case {"type": "tool_use", "id": call, "name": name, "input": given}:
                    calls.append({"id": call, "type": "function", "function": {"name": name, "arguments": given}})
                case {"type": "tool_result", "tool_use_id": call}:
                    yield {"role": "tool", "tool_call_id": call, "content": _result(block.get("content"))}
                case {"type": "thinking" | "redacted_thinking"}:
                    pass
                case _:
                    raise ApiError(400, "a block is no text, tool use or tool result: this engine serves text only")
        if texts or calls or message.get("role") == "assistant":
            value: Json = {"role": message.get("role"), "content": "\n".join(texts)}
            yield value | ({"tool_calls": calls} if calls else {})


def _result(content: object) -> str:
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")


def _function(tool: object) -> Json:
    match tool:
        case {"name": str(name), "input_schema": dict(schema), **rest}:
            # in the order of keys in which the router sends tools of chat completions: vLLM has one order for all APIs
            described = {"description": rest["description"]} if rest.get("description") is not None else {}
            return {"function": {**described, "name": name, "parameters": schema}, "type": "function"}
        case _:
            raise ApiError(400, "a tool has no name or no input_schema", "tools")


@dataclass(frozen=True, slots=True)
class MessageEnvelope:
    """The parts that all events of one answer share."""

    id: str
    model: str
    tool: str = ""
    """The tool that is called; empty for an answer in text."""

    def whole(self, text: str, finish: Finish, usage: Usage) -> Json:
        """Return the body of an answer that is not streamed."""
        content: Json = {"type": "text", "text": text}
        if self.tool:
            content = {"type": "tool_use", "id": f"toolu_{self.id}", "name": self.tool, "input": {"text": text}}
        return self._message([content], self._reason(finish), _usage(usage))

    def opening(self, usage: Usage) -> list[Json]:
        """Return the events before the first text."""
        block: Json = {"type": "text", "text": ""}
        if self.tool:
            block = {"type": "tool_use", "id": f"toolu_{self.id}", "name": self.tool, "input": {}}
        return [
            {"type": "message_start", "message": self._message([], None, _usage(usage))},
            {"type": "content_block_start", "index": 0, "content_block": block},
        ]

    def piece(self, text: str) -> Json:
        """Return an event with text."""
        delta: Json = {"type": "text_delta", "text": text}
        if self.tool:
            delta = {"type": "input_json_delta", "partial_json": text}
        return {"type": "content_block_delta", "index": 0, "delta": delta}

    def closing(self, finish: Finish, usage: Usage) -> list[Json]:
        """Return the events after the last text."""
        delta: Json = {"stop_reason": self._reason(finish), "stop_sequence": None}
        return [
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": delta, "usage": _usage(usage)},
            {"type": "message_stop"},
        ]

    def _reason(self, finish: Finish) -> str | None:
        return "tool_use" if self.tool and finish is not Finish.ABORT else _REASONS[finish]

    def _message(self, content: list[Json], reason: str | None, usage: Json) -> Json:
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "content": content,
            "model": self.model,
            "stop_reason": reason,
            "stop_sequence": None,
            "usage": usage,
        }


def _usage(usage: Usage) -> Json:
    result: Json = {"input_tokens": usage.prompt - (usage.cached or 0), "output_tokens": usage.completion}
    return result if usage.cached is None else result | {"cache_read_input_tokens": usage.cached}
