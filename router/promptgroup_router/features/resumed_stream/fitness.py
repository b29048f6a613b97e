"""Decides which requests have an answer that another engine can go on with, by the ids of its tokens.

The rest of an answer is asked for as a text completion, whose prompt is the tokens so far. It has no state but them.
So what an engine keeps beside them excludes a request: tools and formats (a grammar would begin anew), stop strings
(one may lie across the cut), penalties for what was said, a seed of random draws, several choices. A field that is not
known here excludes it too.
"""

from collections.abc import Mapping
from typing import Any

from promptgroup_router.apis.request import ApiKind

CARRIED = (
    "model",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "seed",
    "logit_bias",
    "stop_token_ids",
    "ignore_eos",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "stream_options",
    "cache_salt",
    "priority",
    "user",
)
"""Fields that the request for the rest has as the first one had them."""
LIMITS = ("max_tokens", "max_completion_tokens", "min_tokens")
"""Fields that count tokens of the answer; the rest gets what is left of them."""
SHOWS_IDS = "return_token_ids"
"""The field by which engines tell the ids of tokens."""
_SPENT = frozenset(
    (
        "messages", "prompt", "stream", "add_generation_prompt", "add_special_tokens", "continue_final_message",
        "chat_template_kwargs", "documents", "reasoning_effort", "include_stop_str_in_output", "parallel_tool_calls",
        "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", SHOWS_IDS,
    )
)  # fmt: skip
"""Fields that have done their work once the prompt has become tokens, or that engines do nothing by."""
_CHOICES = (None, "none", "auto")
_NO_EFFECT: Mapping[str, tuple[Any, ...]] = {
    "n": (None, 1),
    "best_of": (None, 1),
    "use_beam_search": (None, False),
    "stop": (None, "", []),
    "presence_penalty": (None, 0),
    "frequency_penalty": (None, 0),
    "logprobs": (None, False),
    "top_logprobs": (None, 0),
    "echo": (None, False),
    "suffix": (None, ""),
    "tools": (None, []),
    "tool_choice": _CHOICES,
    "functions": (None, []),
    "function_call": _CHOICES,
    "response_format": (None, {"type": "text"}),
}
"""Fields that exclude a request unless they have one of these values, which say as much as no field."""
_KNOWN = frozenset((*CARRIED, *LIMITS, *_SPENT, *_NO_EFFECT))


def can_go_on(kind: ApiKind, doc: Mapping[str, Any]) -> bool:
    """Return True if another engine can go on with the answer to a request of this API, by the ids of its tokens."""
    if kind not in (ApiKind.CHAT, ApiKind.TEXT) or not _KNOWN.issuperset(doc):
        return False
    if any(name in doc and not _says_nothing(doc[name], values) for name, values in _NO_EFFECT.items()):
        return False
    if any(not _is_count(doc.get(name)) for name in LIMITS) or doc.get(SHOWS_IDS, True) is not True:
        return False
    temperature, seed = doc.get("temperature"), doc.get("seed")
    return seed is None or (isinstance(temperature, int | float) and temperature == 0)


def _says_nothing(value: Any, values: tuple[Any, ...]) -> bool:
    # True, False, 1 and 0 are equal in pairs, but engines take logprobs=0 for a wish
    return any(value == harmless and isinstance(value, bool) is isinstance(harmless, bool) for harmless in values)


def _is_count(value: Any) -> bool:
    return value is None or (type(value) is int and value >= 0)
