"""Computes cache keys: two requests with the same key would get the same answer. Does no I/O and reads no clock.

A key covers everything on which an engine's answer depends: the path, the group's revision, the engine settings, the
model, the body, and the router's changes to the body. Only those fields of the body are left out that do not change an
answer; an unknown field is part of the key. Below the first levels, the order of members is significant, since engines
render tools and schemas in their order.
"""

import re
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, NewType

from promptgroup_contract.caller_rules import EngineField
from promptgroup_router.apis.request import ApiKind, ParsedRequest, Preamble, encoded

CacheKey = NewType("CacheKey", bytes)
"""Identifies an answer (32 bytes): long enough that two requests with one key cannot be constructed."""

KEY_BYTES = 32
_VERSION = 2
"""Increased when keys of this version must not match those of an earlier one in a shared store."""

NOT_COVERED = frozenset(
    (
        "model",  # `model` of the key is the model that the engine gets
        "tools",  # as below
        "cache",
        # the sender of the request, and its purpose
        "user",
        "metadata",
        "safety_identifier",
        # ids
        "request_id",
        "conversation",
        "session_id",
        "session_params",  # where engines get it, the request has no key
        "prompt_cache_key",
        # effects other than the answer
        "prompt_cache_retention",
        "store",
        "service_tier",
        "priority",
    )
)
"""Fields of a body that change no text of an answer, and those that the key covers in another form."""

_NUMBERS = frozenset(
    (
        "temperature",
        "top_p",
        "min_p",
        "presence_penalty",
        "frequency_penalty",
        "repetition_penalty",
        "length_penalty",
    )
)
"""Fields for which 1 and 1.0 are the same number, as the APIs define them."""

_DEFAULTS: dict[str, tuple[object, ...]] = {
    "n": (1, None),
    "best_of": (1, None),
    "stream": (False, None),
    "stream_options": (None,),
    "presence_penalty": (0.0, None),
    "frequency_penalty": (0.0, None),
    "logit_bias": ({}, None),
    "stop": (None, []),
    "seed": (None,),
    "temperature": (None,),
    "min_p": (None,),
    "repetition_penalty": (None,),
    "top_k": (None,),
    "max_tokens": (None,),
    "max_completion_tokens": (None,),
    "response_format": (None,),
    "tool_choice": (None,),
    "top_p": (None,),
    "top_logprobs": (None,),
    "suffix": (None,),
}
"""Values that are equivalent to a missing field, whatever the engine's own defaults are."""

_BEYOND = re.compile(rb"e\+(?:1[89]|[2-9][0-9]|[0-9]{3})")
"""The form of numbers beyond 64 bits once they are written as doubles."""


def cache_key(
    request: ParsedRequest,
    *,
    path: bytes,
    query: bytes,
    revision: str,
    settings: str,
    model: str,
    preamble: Preamble | None,
    allowed: frozenset[EngineField],
    sharers: bytes,
    space: str,
    headers: Sequence[bytes] = (),
) -> CacheKey:
    """Return the key of a request's answer.

    Args:
        request: the request as the client sent it. The router's changes follow from the other arguments.
        path: of the request.
        query: the part of the query string that engines get.
        revision: `namespace/group/fingerprint`, on whose prompt the answer depends.
        settings: digest of the engine settings.
        model: the model that is requested from engines; an adapter is a model.
        preamble: the prompt of the revision, where the router inserts it; None where the request contains it.
        allowed: the fields of the engine's operator that are not removed from the body.
        sharers: identifier of the callers that share the answer; empty for all.
        space: the namespace that the client chose for its answers, as in LiteLLM.
        headers: lines of the header fields that engines get because the group lists them.

    Raises:
        ApiError: 400: the body is nested too deeply for a key.
    """
    tools: object = request.doc.get("tools") or None
    if tools is not None and request.kind is ApiKind.CHAT:
        tools = request.tools  # engines get them in this form
    # the revision determines the prompt that engines get, but not whether, nor how, the router inserts it
    front = None if preamble is None else preamble.appends
    # the same value of a field has different answers before and after its group allows the field
    passed = sorted(field.value for field in allowed if field in request.doc and field not in NOT_COVERED)
    parts = [
        _VERSION, path.decode("latin-1"), query.decode("latin-1"), revision, settings, model, front, passed,
        sharers.decode("latin-1"), space, tools, _canonical(request.doc),
        *(line.decode("latin-1") for line in headers),
    ]  # fmt: skip
    spelled = encoded(parts)
    if b"e+" in spelled and _BEYOND.search(spelled):
        # two integers may have become the same double here, and stay distinct for an engine that gets the body as it is
        spelled += request.raw
    return CacheKey(blake2b(spelled, digest_size=KEY_BYTES).digest())


def _canonical(doc: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the members of a body on which an answer depends, in canonical form and order."""
    result = []
    for name in sorted(doc.keys() - NOT_COVERED):
        value = doc[name]
        if name in _NUMBERS and isinstance(value, int | float) and not isinstance(value, bool):
            value = value + 0.0  # one type, and no negative zero
        if name == "stop" and isinstance(value, str):
            value = [value]
        if name in _DEFAULTS and _is_one_of(value, _DEFAULTS[name]):
            continue
        if name == "messages" and isinstance(value, list):
            value = [_message(item) for item in value]
        result.append((name, value))
    return result


def _is_one_of(value: object, defaults: tuple[object, ...]) -> bool:
    # by type, too: 1, 1.0 and true are equal in Python, and not all of them are numbers of choices
    return any(type(value) is type(default) and value == default for default in defaults)


def _message(message: object) -> object:
    """Return a message with its members, and those of its parts, sorted: templates access them by name."""
    if not isinstance(message, dict):
        return message
    content = message.get("content")
    if isinstance(content, list):
        message = message | {"content": [_ordered(part) for part in content]}
    return _ordered(message)


def _ordered(value: object) -> object:
    return dict(sorted(value.items())) if isinstance(value, dict) else value
