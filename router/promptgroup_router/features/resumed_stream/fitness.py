"""Decides which requests have an answer that another engine can continue, by the ids of its tokens.

The rest of an answer is requested as a text completion, whose prompt is the tokens so far. It has no other state. So a
request is excluded if its engine needs further state: tools and formats (a grammar would begin anew), stop strings (one
may span the cut), penalties for earlier tokens, a seed of random draws, several choices. A field that is not listed
here excludes it, too.
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
"""Fields that the request for the rest copies from the first request."""
LIMITS = ("max_tokens", "max_completion_tokens", "min_tokens")
"""Fields that limit the tokens of the answer; the request for the rest gets the remaining numbers."""
SHOWS_IDS = "return_token_ids"
"""The field by which a request asks engines for the ids of tokens."""
_SPENT = frozenset(
    (
        "messages", "prompt", "stream", "add_generation_prompt", "add_special_tokens", "continue_final_message",
        "chat_template_kwargs", "documents", "reasoning_effort", "include_stop_str_in_output", "parallel_tool_calls",
        "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", SHOWS_IDS,
    )
)  # fmt: skip
"""Fields that have no effect once the prompt is tokenized, or none in engines at all."""
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
"""Fields that exclude a request unless they have one of these values, which are equivalent to a missing field."""
_SUPPORTED = frozenset((*CARRIED, *LIMITS, *_SPENT, *_NO_EFFECT))


def can_go_on(kind: ApiKind, doc: Mapping[str, Any]) -> bool:
    """Return True if another engine can continue the answer to a request of this API, by the ids of its tokens."""
    if kind not in (ApiKind.CHAT, ApiKind.TEXT) or not _SUPPORTED.issuperset(doc):
        return False
    if any(name in doc and not _says_nothing(doc[name], values) for name, values in _NO_EFFECT.items()):
        return False
    if any(not _is_count(doc.get(name)) for name in LIMITS) or doc.get(SHOWS_IDS, True) is not True:
        return False
    temperature, seed = doc.get("temperature"), doc.get("seed")
    return seed is None or (isinstance(temperature, int | float) and temperature == 0)


def _says_nothing(value: Any, values: tuple[Any, ...]) -> bool:
    # True and 1, and False and 0, are equal, but logprobs=0 requests log probabilities from engines
    return any(value == harmless and isinstance(value, bool) is isinstance(harmless, bool) for harmless in values)


def _is_count(value: Any) -> bool:
    return value is None or (type(value) is int and value >= 0)
