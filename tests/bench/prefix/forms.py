"""How clients ask: a stream of the chat and text APIs, or the same in another encoding, or over another API.

A form that has no way for a request, such as token ids for a chat, leaves it as it is.
"""

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

Json = dict[str, Any]
TOKEN_IDS = 30_000
"""Number of token ids that words have; vocabularies of real models are larger."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a client reads of an answer."""

    text: str
    prompt: int = 0
    """Tokens, if the answer has its usage."""
    cached: int = 0


@dataclass(frozen=True, slots=True)
class Form:
    """A way to ask."""

    title: str
    write: Callable[[str, Json], tuple[str, Json]]
    """Path and body of a streamed chat or text → those of this form."""
    read: Callable[[bytes], Answer]


def _events(stream: bytes) -> Iterator[Json]:
    for line in stream.splitlines():
        if line.startswith(b"data: {"):
            yield orjson.loads(line[6:])


def _read_stream(stream: bytes) -> Answer:
    text, prompt, cached = [], 0, 0
    for event in _events(stream):
        choice, usage = (event.get("choices") or [{}])[0], event.get("usage") or {}
        text.append((choice.get("delta") or {}).get("content") or choice.get("text") or "")
        prompt += usage.get("prompt_tokens", 0)
        cached += (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    return Answer("".join(text), prompt, cached)


def _read_whole(body: bytes) -> Answer:
    choice = orjson.loads(body)["choices"][0]
    return Answer((choice.get("message") or {}).get("content") or choice.get("text") or "")


def _read_messages(stream: bytes) -> Answer:
    deltas = (event["delta"] for event in _events(stream) if event.get("type") == "content_block_delta")
    return Answer("".join(delta.get("text", "") for delta in deltas))


def _read_responses(stream: bytes) -> Answer:
    deltas = (event["delta"] for event in _events(stream) if event.get("type") == "response.output_text.delta")
    return Answer("".join(deltas))


def _whole(path: str, body: Json) -> tuple[str, Json]:
    return path, {**body, "stream": False}


def _parts(path: str, body: Json) -> tuple[str, Json]:
    if "messages" not in body:
        return path, body
    messages = [{**message, "content": [{"type": "text", "text": message["content"]}]} for message in body["messages"]]
    return path, {**body, "messages": messages}


def _token_ids(path: str, body: Json) -> tuple[str, Json]:
    """Write a text as the ids of its tokens, as where the client has the model's tokenizer."""
    if "prompt" not in body:
        return path, body
    return path, {**body, "prompt": [zlib.crc32(word.encode()) % TOKEN_IDS for word in body["prompt"].split()]}


def _split(body: Mapping[str, Any]) -> tuple[str, list[Json]]:
    """Return the system text, and the messages behind it."""
    system = [message["content"] for message in body["messages"] if message["role"] == "system"]
    return "".join(system), [message for message in body["messages"] if message["role"] != "system"]


def _messages(path: str, body: Json) -> tuple[str, Json]:
    if "messages" not in body:
        return path, body
    system, messages = _split(body)
    asked = {"model": body["model"], "max_tokens": body["max_tokens"], "stream": True, "messages": messages}
    return "/v1/messages", asked | ({"system": system} if system else {})


def _responses(path: str, body: Json) -> tuple[str, Json]:
    if "messages" not in body:
        return path, body
    system, messages = _split(body)
    asked = {"model": body["model"], "max_output_tokens": body["max_tokens"], "stream": True, "store": False}
    return "/v1/responses", asked | {"input": messages} | ({"instructions": system} if system else {})


STREAMED = Form("streamed chats and texts", lambda path, body: (path, body), _read_stream)
FORMS = {
    "streamed": STREAMED,
    "whole": Form("answers at once, without a stream", _whole, _read_whole),
    "parts": Form("messages of content parts", _parts, _read_stream),
    "tokens": Form("texts as token ids", _token_ids, _read_stream),
    "messages": Form("chats over Anthropic's Messages", _messages, _read_messages),
    "responses": Form("chats over OpenAI's Responses", _responses, _read_responses),
}
