"""Requests and answers of the OpenAI-compatible API in vLLM's form, and in SGLang's where it differs. Does no I/O.

Fields that affect only the sampling of tokens (temperature, top_p, n, stop, ...) are accepted and ignored.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import orjson

from promptgroup_local.engine import chat
from promptgroup_local.engine.adapters.loaded import AdapterRefusedError, LoadedAdapter
from promptgroup_local.engine.answer import Finish
from promptgroup_local.engine.flags import Speech

Json = dict[str, object]

_SALT_LENGTH = 128
"""vLLM's bound on `cache_salt`."""
_SALT_FORBIDDEN = frozenset("@/\\\0")
"""Characters that vLLM refuses in a salt: cache backends use them in keys."""


class ApiError(Exception):
    """A request that gets an error: status, message and the field at fault."""

    def __init__(self, status: int, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.param = param

    def body(self) -> Json:
        """The error envelope of vLLM."""
        kind = {400: "BadRequestError", 404: "NotFoundError"}.get(self.status, "InternalServerError")
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.status}}

    def flat_body(self) -> Json:
        """The same body in SGLang's form, without an envelope."""
        result: Json = self.body()["error"]  # type: ignore[assignment]
        return {"object": "error", **result}


@dataclass(frozen=True, slots=True)
class Completion:
    """A completion request, chat or text."""

    prompt: chat.Prompt
    model: str
    max_tokens: int
    salt: str
    stream: bool
    include_usage: bool
    ignore_eos: bool
    tool: str = ""
    """The tool that the answer must call; empty if it is text."""
    token_ids: bool = False
    """True if the answer has the ids of all tokens, as vLLM's does."""
    adapter: LoadedAdapter | None = None
    """The LoRA adapter that the request names as its model."""


@dataclass(frozen=True, slots=True)
class Model:
    """The model that requests are checked against."""

    names: tuple[str, ...]
    max_model_len: int
    default_max_tokens: int
    speech: Speech = Speech.VLLM
    """SGLang serves its model under any requested name, and accepts any text as a salt."""
    adapter: Callable[[str], LoadedAdapter | None] = lambda _: None
    """Returns the LoRA adapter that a request's model names; None if it names none."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one request; `cached` is None where the engine does not report it."""

    prompt: int
    completion: int
    cached: int | None

    def body(self) -> Json:
        """The `usage` object."""
        usage: Json = {
            "prompt_tokens": self.prompt,
            "total_tokens": self.prompt + self.completion,
            "completion_tokens": self.completion,
        }
        if self.cached is not None:
            usage["prompt_tokens_details"] = {"cached_tokens": self.cached}
        return usage


# --- Requests ----------------------------------------------------------------------------------------------


def decode(content_type: str, data: bytes) -> Json:
    """The JSON object of a request body.

    Raises:
        ApiError: 400: another content type, no JSON, no object.
    """
    if content_type != "application/json":
        raise ApiError(400, f"Content-Type is {content_type!r}, expected application/json")
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise ApiError(400, f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise ApiError(400, f"the body is a JSON {type(body).__name__}, expected an object")
    return body


def chat_completion(body: Json, model: Model) -> Completion:
    """A request to /v1/chat/completions.

    Raises:
        ApiError: 404 for an unknown model, 400 for anything else.
    """
    name = _model_name(body, model)
    prompt = _chat_prompt(body)
    limit = "max_tokens" if body.get("max_completion_tokens") is None else "max_completion_tokens"
    return replace(_completion(body, model, name, prompt, limit), tool=_forced_tool(body))


def text_completion(body: Json, model: Model) -> Completion:
    """A request to /v1/completions.

    Raises:
        ApiError: 404 for an unknown model, 400 for anything else.
    """
    name = _model_name(body, model)
    return _completion(body, model, name, _text_prompt(body), "max_tokens")


def tokenization(body: Json, model: Model) -> tuple[int, ...]:
    """The tokens of a request to /tokenize: those of a chat or of a text.

    Raises:
        ApiError: 404 for an unknown model, 400 for anything else.
    """
    _model_name(body, model)
    return (_chat_prompt(body) if "messages" in body else _text_prompt(body)).tokens


def detokenization(body: Json, model: Model) -> list[int]:
    """The tokens in a request to /detokenize.

    Raises:
        ApiError: 404 for an unknown model, 400 for anything else.
    """
    _model_name(body, model)
    return _tokens(body.get("tokens"), "tokens")


def _completion(body: Json, model: Model, name: str, prompt: chat.Prompt, limit: str) -> Completion:
    stream = _flag(body, "stream", default=False)
    options = body.get("stream_options")
    if options is not None and not isinstance(options, dict):
        raise ApiError(400, f"stream_options is a {type(options).__name__}, expected an object", "stream_options")
    if options is not None and not stream and model.speech is not Speech.SGLANG:
        raise ApiError(400, "stream_options is given without stream: set stream to true", "stream_options")
    length = len(prompt.tokens)
    if length >= model.max_model_len:
        raise ApiError(
            400,
            f"This model's maximum context length is {model.max_model_len} tokens, the prompt has {length} and leaves "
            f"no room for an answer: shorten it",
            "input_tokens",
        )
    return Completion(
        prompt=prompt,
        model=name,
        max_tokens=_max_tokens(body, limit, length, model),
        salt=_key(body) if model.speech is Speech.SGLANG else _salt(body),
        stream=stream,
        include_usage=options is not None and _flag(options, "include_usage", default=False),
        ignore_eos=_flag(body, "ignore_eos", default=False),
        token_ids=model.speech is Speech.VLLM and _flag(body, "return_token_ids", default=False),
        adapter=_adapter(name, model),
    )


def _adapter(name: str, model: Model) -> LoadedAdapter | None:
    try:
        return model.adapter(name)
    except AdapterRefusedError as error:
        raise ApiError(error.status, str(error), "model") from error


def _forced_tool(body: Json) -> str:
    match body.get("tool_choice"), body.get("tools"):
        case {"type": "function", "function": {"name": str(name)}}, _:
            return name
        case "required", [{"function": {"name": str(name)}}, *_]:
            return name
        case _:
            return ""


def _model_name(body: Json, model: Model) -> str:
    name = body.get("model")
    if name is None:
        return model.names[0]
    if not isinstance(name, str):
        raise ApiError(400, f"model is a {type(name).__name__}, expected a string", "model")
    if model.speech is not Speech.SGLANG and name not in model.names and model.adapter(name) is None:
        raise ApiError(404, f"The model `{name}` does not exist.", "model")
    return name


def _chat_prompt(body: Json) -> chat.Prompt:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ApiError(400, "messages is missing or empty, expected a list of at least one message", "messages")
    tools = body.get("tools")
    if tools is not None and not isinstance(tools, list):
        raise ApiError(400, f"tools is a {type(tools).__name__}, expected a list", "tools")
    generation_prompt = _flag(body, "add_generation_prompt", default=True)
    try:
        return chat.render(messages, tools, generation_prompt=generation_prompt)
    except chat.TemplateError as error:
        raise ApiError(400, str(error), "messages") from error


def _text_prompt(body: Json) -> chat.Prompt:
    prompt = body.get("prompt")
    match prompt:
        case str(text) | [str(text)]:
            return chat.plain(text)
        case [int(), *_] | [[int(), *_]]:
            tokens = prompt[0] if isinstance(prompt[0], list) else prompt
            return chat.Prompt(tuple(_tokens(tokens, "prompt")))
        case _:
            raise ApiError(400, "prompt is missing or no prompt, expected one string or one list of tokens", "prompt")


def _tokens(value: object, field: str) -> list[int]:
    if not isinstance(value, list) or not all(type(token) is int and 0 <= token < 1 << 63 for token in value):
        raise ApiError(400, f"{field} is no list of tokens, expected whole numbers from 0", field)
    return value


def _max_tokens(body: Json, field: str, prompt: int, model: Model) -> int:
    value = body.get(field)
    if value is None:
        return min(model.default_max_tokens, model.max_model_len - prompt)
    if type(value) is not int or value < 1:
        raise ApiError(400, f"{field} is {value!r}, expected a whole number from 1", field)
    if prompt + value > model.max_model_len:
        raise ApiError(
            400,
            f"This model's maximum context length is {model.max_model_len} tokens, {field} {value} and a prompt of "
            f"{prompt} are more: lower {field} or shorten the prompt",
            field,
        )
    return value


def _salt(body: Json) -> str:
    salt = body.get("cache_salt")
    if salt is None:
        return ""
    if not isinstance(salt, str) or not 0 < len(salt) <= _SALT_LENGTH or _SALT_FORBIDDEN & set(salt):
        raise ApiError(
            400,
            f"cache_salt is unusable, expected a string of 1 to {_SALT_LENGTH} characters without '@', '/', '\\' "
            f"and NUL",
            "cache_salt",
        )
    return salt


def _key(body: Json) -> str:
    """Return the part of SGLang's cache that a request uses: each pair of values of two fields has its own."""
    given = [body.get(field) or "" for field in ("extra_key", "cache_salt")]
    if not all(isinstance(item, str) for item in given):
        raise ApiError(400, "extra_key or cache_salt is no text", "cache_salt")
    return orjson.dumps(given).decode() if any(given) else ""


def _flag(body: Mapping[str, object], field: str, *, default: bool) -> bool:
    value = body.get(field)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise ApiError(400, f"{field} is {value!r}, expected true or false", field)
    return value


# --- Answers -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Envelope:
    """The fields that all bodies of one answer share; `chat` picks between the two APIs' shapes.

    An answer that calls a `tool` of a chat has one argument, `text`, which holds the text of the answer.
    """

    id: str
    created: int
    model: str
    chat: bool
    tool: str = ""

    def whole(self, text: str, finish: Finish, usage: Usage) -> Json:
        """The body of an answer that is not streamed."""
        content: Json = {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        if self.tool:
            call = self._call(f'{{"text": "{text}"}}', name=self.tool)
            content = {"message": {"role": "assistant", "content": None, "tool_calls": [call]}}
        choice: Json = {"index": 0, **content, "logprobs": None, "finish_reason": self._reason(finish)}
        return self._body("chat.completion" if self.chat else "text_completion", [choice]) | {"usage": usage.body()}

    def opening(self, prompt: Sequence[int] | None = None) -> Json | None:
        """The first event of a chat stream: the role, no text, and the ids of the prompt. A text stream has none."""
        if self.tool:
            call = {"index": 0, **self._call('{"text": "', name=self.tool)}
            return self._chunk({"delta": {"role": "assistant", "content": None, "tool_calls": [call]}}, None)
        opening = self._chunk({"delta": {"role": "assistant", "content": ""}}, None) if self.chat else None
        return opening if opening is None or prompt is None else opening | {"prompt_token_ids": prompt}

    def piece(self, text: str, finish: Finish | None, ids: Json | None = None) -> Json:
        """An event with text and ids of tokens, or with a part of a tool's arguments."""
        if self.tool:
            part = text if finish is None else text + '"}'
            return self._chunk({"delta": {"tool_calls": [{"index": 0, "function": {"arguments": part}}]}}, finish)
        content: Json = {"delta": {"content": text}} if self.chat else {"text": text}
        return self._chunk(content | (ids or {}), finish)

    def ending(self, finish: Finish) -> Json:
        """The last event without usage as SGLang sends it: the reason, and no text."""
        return self._chunk({"delta": {}} if self.chat else {"text": ""}, finish)

    def closing(self, usage: Usage) -> Json:
        """The event after the last text, when usage was requested."""
        return self._body(self._streamed, []) | {"usage": usage.body()}

    def _chunk(self, content: Json, finish: Finish | None) -> Json:
        reason = None if finish is None else self._reason(finish)
        return self._body(self._streamed, [{"index": 0, **content, "logprobs": None, "finish_reason": reason}])

    def _call(self, arguments: str, name: str) -> Json:
        return {"id": f"call_{self.id}", "type": "function", "function": {"name": name, "arguments": arguments}}

    def _reason(self, finish: Finish) -> str:
        return "tool_calls" if self.tool and finish is not Finish.ABORT else finish.value

    @property
    def _streamed(self) -> str:
        return "chat.completion.chunk" if self.chat else "text_completion"

    def _body(self, kind: str, choices: Sequence[Json]) -> Json:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": list(choices),
        }
