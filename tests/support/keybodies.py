"""Bodies of requests whose keys are compared: recorded ones of clients, and made-up ones, with small differences.

Each follows from a generator of random numbers. Few values are drawn from, so that bodies with one meaning meet.
"""

import json
import random
from pathlib import Path
from typing import Any, NamedTuple

from support.asks import CHAT, MESSAGES, TEXT

SHAPES = Path(__file__).parents[1] / "compat" / "shapes"
FUNCTION = {"name": "f", "parameters": {"type": "object", "properties": {"b": {"type": "string"}, "a": {"minimum": 0}}}}
TOOLS = {
    CHAT: [{"type": "function", "function": each} for each in (FUNCTION, FUNCTION | {"name": "g"})],
    MESSAGES: [{"name": name, "input_schema": FUNCTION["parameters"]} for name in ("f", "g")],
}
FIELDS: dict[str, list[object]] = {
    "temperature": [0, 0.0, -0.0, None, 1, 1.0, 0.5],
    "top_p": [None, 1, 1.0, 0.5],
    "top_k": [None, 1, 5],
    "min_p": [None, 0, 0.0, 0.1],
    "presence_penalty": [None, 0, 0.0, -0.0, 0.5],
    "frequency_penalty": [None, 0, 1, 1.0],
    "repetition_penalty": [None, 1, 1.0],
    "n": [None, 1, True, 1.0, 2],
    "best_of": [None, 1],
    "seed": [None, 0, 7, 2**63, 2**64 + 1, 2**64 + 3],
    "max_tokens": [None, 5, 6],
    "max_completion_tokens": [None, 5],
    "stream": [None, False, True],
    "stream_options": [None, {"include_usage": True}, {"include_usage": False}],
    "stop": [None, "x", ["x"], [], ["x", "y"], ["y", "x"]],
    "logit_bias": [None, {}, {"5": 1}, {"5": 2}],
    "response_format": [None, {"type": "json_schema", "a": 1, "b": 2}, {"type": "json_schema", "b": 2, "a": 1}],
    "tool_choice": [None, "auto", "none"],
    "chat_template_kwargs": [None, {"enable_thinking": False}],
    "cache_salt": [None, "s"],
    "user": ["ann", "ben"],
    "metadata": [{"a": 1}, {"a": 2}],
    "safety_identifier": ["1", "2"],
    "request_id": ["1", "2"],
    "session_id": ["1", "2"],
    "prompt_cache_key": ["1", "2"],
    "store": [True, False],
    "service_tier": ["auto", "flex"],
    "priority": [0, 1],
    "cache": [{"ttl": 5}, {"no-cache": True}],
}
NAMES = ("nobody_knows_this", "Temperature", "messages ", "top_p\u0000", "stop_token_ids")
"""Fields that nobody knows, and one that engines do and the key does not."""


class Body(NamedTuple):
    """A body as a client sends it, and where to."""

    path: bytes
    text: bytes


def recorded() -> list[tuple[bytes, dict[str, Any]]]:
    """Bodies of clients (`tests/compat`): of OpenAI's, LiteLLM's and LangChain's, and of an agent that has tools."""
    clients = json.loads((SHAPES / "clients.json").read_text())
    agent = json.loads((SHAPES / "claude_code.json").read_text())
    found = [(each["path"].encode(), each["body"]) for each in clients]
    return [*found, (MESSAGES, agent["body"] | {"temperature": 0})]


RECORDED = recorded()


def body(rng: random.Random) -> Body:
    """A recorded or made-up body with up to three changes, its members in any order."""
    path, doc = rng.choice(RECORDED) if rng.random() < 0.5 else _made_up(rng)
    doc = json.loads(json.dumps(doc))
    for _ in range(rng.choice((0, 0, 1, 1, 1, 2, 3))):
        rng.choice(CHANGES)(rng, path, doc)
    doc = dict(rng.sample(list(doc.items()), len(doc)))
    return Body(path, json.dumps(doc, ensure_ascii=rng.random() < 0.5).encode())


def _made_up(rng: random.Random) -> tuple[bytes, dict[str, Any]]:
    path = rng.choice((CHAT, CHAT, TEXT, MESSAGES))
    doc: dict[str, Any] = {"model": "llama", "temperature": 0}
    if path == TEXT:
        return path, doc | {"prompt": rng.choice(("a", "b", "a\n", ["a"], [1, 2], [2, 1]))}
    said = [_message(rng) for _ in range(rng.choice((1, 1, 1, 2)))]
    return path, doc | {"messages": said} | ({"max_tokens": 5} if path == MESSAGES else {})


def _message(rng: random.Random) -> dict[str, Any]:
    text = rng.choice(("a", "b", "a\n", "A", "\u00e4"))
    content: object = text
    if rng.random() < 0.3:
        content = [dict(rng.sample([("type", "text"), ("text", text)], 2))]
    said = [("role", rng.choice(("user", "user", "assistant"))), ("content", content)]
    return dict(rng.sample(said, 2))


def _any_json(rng: random.Random, depth: int = 2) -> object:
    kind = rng.randrange(8 if depth else 6)
    if kind < 6:
        return (None, rng.random() < 0.5, rng.randrange(3), rng.choice((0.0, 1.0, -0.0)), rng.choice("ab"),
                rng.choice((2**64 + 1, 2**64 + 3, -(2**63) - 1, 1e30)))[kind]  # fmt: skip
    if kind == 6:
        return [_any_json(rng, depth - 1) for _ in range(rng.randrange(3))]
    names = rng.sample("ab", rng.randrange(3))
    return {name: _any_json(rng, depth - 1) for name in names}


def _set_a_field(rng: random.Random, _path: bytes, doc: dict[str, Any]) -> None:
    name = rng.choice(list(FIELDS))
    doc[name] = rng.choice(FIELDS[name])


def _set_what_nobody_knows(rng: random.Random, _path: bytes, doc: dict[str, Any]) -> None:
    doc[rng.choice(NAMES)] = _any_json(rng)


def _set_tools(rng: random.Random, path: bytes, doc: dict[str, Any]) -> None:
    if path not in TOOLS:
        return
    tools = rng.choice((TOOLS[path], TOOLS[path][:1], TOOLS[path][::-1], [], None))
    doc["tools"] = tools and [_turned(rng, each) for each in tools]


def _turned(rng: random.Random, value: object) -> object:
    """The same value, with the members of each object in another order at times."""
    if isinstance(value, list):
        return [_turned(rng, each) for each in value]
    if not isinstance(value, dict):
        return value
    members = list(value.items()) if rng.random() < 0.7 else rng.sample(list(value.items()), len(value))
    return {name: _turned(rng, each) for name, each in members}


def _turn_a_message(rng: random.Random, _path: bytes, doc: dict[str, Any]) -> None:
    if doc.get("messages"):
        at = rng.randrange(len(doc["messages"]))
        doc["messages"][at] = _turned(rng, doc["messages"][at])


def _add_a_message(rng: random.Random, _path: bytes, doc: dict[str, Any]) -> None:
    if "messages" in doc:
        doc["messages"].insert(rng.randrange(len(doc["messages"]) + 1), _message(rng))


def _mark_a_message(rng: random.Random, _path: bytes, doc: dict[str, Any]) -> None:
    if "messages" in doc:
        rng.choice(doc["messages"])[rng.choice(("name", "nobody_knows_this"))] = rng.choice(("ann", "ben"))


def _rename(rng: random.Random, _path: bytes, doc: dict[str, Any]) -> None:
    doc["model"] = rng.choice(("llama", "adapter"))


CHANGES = (
    _set_a_field, _set_a_field, _set_a_field, _set_what_nobody_knows, _set_tools, _turn_a_message, _add_a_message,
    _mark_a_message, _rename,
)  # fmt: skip
