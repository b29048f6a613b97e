"""Keys of answers against an independent reading of the APIs: equal exactly where the engine's answer would be."""

import json
import random
from collections import defaultdict

import pytest

from support.asks import asked, key_of

NEITHER_ASKS_NOR_SAYS = (
    "user", "metadata", "safety_identifier", "request_id", "session_id", "prompt_cache_key", "store", "priority",
    "cache",
)  # fmt: skip
CHOICES: dict[str, list[object]] = {
    "temperature": [0, 0.0, -0.0],
    "top_p": [None, 1, 1.0, 0.5],
    "presence_penalty": [None, 0, 0.0, 0.5],
    "frequency_penalty": [0, 1],
    "n": [None, 1],
    "seed": [None, 0, 7],
    "max_tokens": [None, 5],
    "stream": [None, False, True],
    "stop": [None, "x", ["x"], []],
    "logit_bias": [None, {}, {"5": 1}],
    "tools": [None, [], "ab", "ba", "c"],
    "response_format": [None, {"type": "json_schema", "a": 1, "b": 2}, {"type": "json_schema", "b": 2, "a": 1}],
    "nobody_knows_this": [None, 0, 0.0, False, "", [1, 2], [2, 1], {"a": 1, "b": 2}, {"b": 2, "a": 1}],
    "user": ["ann", "ben"],
    "metadata": [{"a": 1}],
    "request_id": ["1", "2"],
    "priority": [0, 1],
    "cache": [{"ttl": 5}, {}],
}
TOOLS = {
    "ab": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
    "ba": [{"function": {"parameters": {}, "name": "f"}, "type": "function"}],
    "c": [{"type": "function", "function": {"name": "g", "parameters": {}}}],
}


def message(rng: random.Random) -> dict:
    said = {
        "role": rng.choice(["user", "user", "assistant"]),
        "content": rng.choice(["a", "b", "a\n", "A", ["a"], ["b"]]),
    }
    if isinstance(said["content"], list):
        part = [("type", "text"), ("text", said["content"][0])]
        said["content"] = [dict(rng.sample(part, 2))]
    return dict(rng.sample(list(said.items()), 2))


def body(rng: random.Random) -> dict:
    fields = rng.sample(sorted(CHOICES), rng.choice([0, 0, 1, 1, 2, 3]))
    found = {"model": "llama", "messages": [message(rng) for _ in range(rng.choice([1, 1, 1, 2]))], "temperature": 0}
    for field in fields:
        value = rng.choice(CHOICES[field])
        found[field] = TOOLS[value] if isinstance(value, str) and field == "tools" else value
    return dict(rng.sample(list(found.items()), len(found)))


def meaning(doc: dict) -> str:
    """The inputs of the answer, written out: what the APIs' pages say, with every default spelled."""
    said: dict[str, object] = {
        "temperature": 0.0,
        "top_p": "the engine's" if doc.get("top_p") is None else float(doc["top_p"]),
        "presence_penalty": float(doc.get("presence_penalty") or 0),
        "frequency_penalty": float(doc.get("frequency_penalty") or 0),
        "n": 1,
        "stream": bool(doc.get("stream")),
        "seed": doc.get("seed"),
        "max_tokens": doc.get("max_tokens"),
        "stop": doc.get("stop"),
        "logit_bias": doc.get("logit_bias") or {},
        "response_format": json.dumps(doc.get("response_format")),
        "tools": [json.dumps(tool, sort_keys=True) for tool in doc.get("tools") or []],
        "messages": [
            (
                each["role"],
                each["content"] if isinstance(each["content"], str) else [part["text"] for part in each["content"]],
            )
            for each in doc["messages"]
        ],
    }
    known = {*said, *NEITHER_ASKS_NOR_SAYS, "model"}
    unknown = {name: json.dumps(value) for name, value in doc.items() if name not in known}
    return json.dumps([said, unknown], sort_keys=True)


def compare(count: int, seed: int) -> tuple[int, int]:
    """Return how many bodies and meanings were compared."""
    rng = random.Random(seed)
    by_key, by_meaning = defaultdict(set), defaultdict(set)
    for _ in range(count):
        doc = body(rng)
        key, means = key_of(asked(doc)), meaning(doc)
        by_key[key].add(means)
        by_meaning[means].add(key)
    wrong = [means for means in by_key.values() if len(means) > 1]
    assert not wrong, f"one key for different answers: {wrong[0]}"
    parted = [means for means, keys in by_meaning.items() if len(keys) > 1]
    assert not parted, f"several keys for one answer: {parted[0]}"
    return count, len(by_meaning)


def test_keys_are_equal_exactly_where_answers_are():
    assert compare(3000, 1)[1] < 2500, "bodies must meet, or the test says nothing"


@pytest.mark.slow
def test_keys_of_a_hundred_thousand_bodies_are_equal_exactly_where_answers_are():
    assert compare(100_000, 2)[1] < 80_000
