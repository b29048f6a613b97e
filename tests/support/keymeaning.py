"""What an answer follows from, as the pages of the APIs say it: an oracle for keys that knows nothing of them.

It reads bodies by the standard library, as engines in Python do, whose whole numbers have any length. Where an engine
may tell two spellings apart, such as a text and a list with one part, they have two meanings.
"""

import json
from typing import Any

from support.asks import CHAT

SAYS_NOTHING = frozenset(
    (
        "user", "metadata", "safety_identifier", "request_id", "conversation", "session_id", "session_params",
        "prompt_cache_key", "prompt_cache_retention", "store", "service_tier", "priority", "cache",
    )
)  # fmt: skip
"""Who asks, ids, and what happens beside the answer."""
DEFAULTS: dict[str, object] = {
    "n": "1", "best_of": "1", "stream": "false", "presence_penalty": 0.0, "frequency_penalty": 0.0, "logit_bias": {},
    "stop": [], "tools": [],
}  # fmt: skip
"""What a missing field, or null, says where all engines agree: as `meaning` writes it."""
ENGINES_OWN = frozenset(
    (
        "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed", "max_tokens", "max_completion_tokens",
        "stream_options", "response_format", "tool_choice", "top_logprobs", "suffix",
    )
)  # fmt: skip
"""Fields for which null and nothing say the same: the engine's default, whatever it is."""
NUMBERS = frozenset(
    ("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "length_penalty")
)


def meaning(path: bytes, text: bytes) -> str:
    """All that the answer to a request follows from, written out."""
    doc: dict[str, Any] = json.loads(text)
    said: dict[str, object] = {"path": path.decode(), **DEFAULTS}
    for name, value in doc.items():
        if name in SAYS_NOTHING or (value is None and (name in DEFAULTS or name in ENGINES_OWN)):
            continue
        if name in NUMBERS and type(value) in (int, float):
            said[name] = float(value) or 0.0
        elif name == "stop":
            said[name] = [value] if isinstance(value, str) else value
        elif name == "messages":
            said[name] = [_message(each) for each in value]
        elif name == "tools" and (path == CHAT or not value):
            said[name] = [json.dumps(each, sort_keys=True) for each in value]  # the router puts them in order
        elif name == "logit_bias":
            said[name] = sorted(value.items())
        else:
            said[name] = json.dumps(value)  # in its order, which templates and grammars may show
        if _has_a_long_number(value):
            said["as sent"] = text.decode()  # readers of JSON do not agree about it, so nothing is put in order
    said["logit_bias"] = said["logit_bias"] or []
    return json.dumps(said, sort_keys=True)


def _has_a_long_number(value: object) -> bool:
    """True if a value has a whole number of more than 64 bits, or a fraction that is as large."""
    if isinstance(value, int):
        return not -(2**63) <= value < 2**64
    if isinstance(value, float):
        return abs(value) >= 1e18
    if isinstance(value, dict):
        value = list(value.values())
    return isinstance(value, list) and any(map(_has_a_long_number, value))


def _message(message: dict[str, Any]) -> list[tuple[str, str]]:
    """The members of a message, which templates ask for by name, as those of its parts."""
    return sorted((name, _content(value)) for name, value in message.items())


def _content(value: object) -> str:
    if not isinstance(value, list):
        return json.dumps(value)
    return json.dumps([sorted((n, json.dumps(v)) for n, v in p.items()) if isinstance(p, dict) else p for p in value])
