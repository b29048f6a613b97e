"""Extracts the data that routing needs from a large request, without texts that are compared with nothing.

A route is the same from a request and from its digest, with two exceptions. A value that is a large body by itself is
replaced by its hash, so that a session key from the hash differs from one of the value; every turn has the same key,
since a body with such a value is always routed by its digest. And the length of a system text that is longer than any
declared one is lost. Does no I/O and reads no clock.
"""

from collections.abc import Iterator, Mapping
from copy import copy
from typing import Any

import xxhash

from promptgroup_router.apis.request import SYSTEM_ROLES, ApiKind, ParsedRequest, encoded
from promptgroup_router.apis.responses import BACKGROUND, goes_on
from promptgroup_router.apis.session_key import (
    MESSAGES_SHARED_FIELDS,
    NAMING_FIELDS,
    START_BYTES,
    TEXT_IDS,
    chat_start,
    words_of,
)
from promptgroup_router.apis.structure import LARGE_BYTES
from promptgroup_router.callers.longest_answer import MOST, SAYING
from promptgroup_router.callers.unasked_usage import options_of
from promptgroup_router.documents import lax
from promptgroup_router.features import prompt_digest
from promptgroup_router.features.cache_diagnosis import ANTHROPIC, OPENAI, OPENAI_ID, PREVIOUS, asks
from promptgroup_router.features.secret_prompt import repeating_field
from promptgroup_router.prefixes.prompt_marks import marks_of
from promptgroup_router.routing.engine_fields import CACHE_FIELD, names_in

MOST_SYSTEM = 1 << 20
"""Most characters of a system text in the digest: more than a declared prompt may have."""
END = 2048
"""Characters from the end of a longer system text that are included, too, since a declared prompt may match there."""
MOST_MESSAGES = 1024
"""Most messages in the digest. A conversation is identified by its first 256 bytes."""
MOST_MESSAGE_BYTES = 1 << 20
"""Most bytes of all messages in the digest."""
MOST_QUESTION = 2048
"""Most bytes of a question about the cache; a longer one names no answer, and is refused as an invalid value."""

Digest = dict[str, Any]


def digest(request: ParsedRequest, declared: int, *, asks_by_header: bool = False) -> Digest:
    """Return the digest of a request, as a value of JSON.

    Args:
        request: the whole request.
        declared: most messages that any group of the table declares.
        asks_by_header: whether its client asks, by a header, why its prompt missed the cache.
    """
    return {
        "kind": request.kind.value,
        "model": request.model,
        "system": _system(request.system),
        "has_system": request.has_system,
        "tools": request.tools,
        "tools_in_order": request.tools_in_order,
        "text": request.text,
        "history": request.history,
        "turn": request.turn,
        "ids": request.ids,
        "streamed": request.streamed,
        "media": request.media,
        "doc": _fields(request, declared),
        "messages": _messages(request, declared),
        "content": xxhash.xxh3_64_intdigest(request.raw),
        "marks": tuple(marks_of(request)),
        "prompts": request.prompts,
        "embedded": request.embedded,
        "compared": tuple(prompt_digest.digest(request)) if asks(request, by_header=asks_by_header) else None,
    }


def from_digest(result: Digest) -> ParsedRequest:
    """Return the request of a digest. It has no body, so that it serves only to compute a route."""
    return ParsedRequest(raw=b"", **result | {"kind": ApiKind(result["kind"])})


def _system(text: str) -> str:
    return text if len(text) <= MOST_SYSTEM else f"{text[:MOST_SYSTEM]}\0{_hash(text.encode())}\0{text[-END:]}"


def _hash(words: bytes) -> str:
    return xxhash.xxh3_128_hexdigest(words)


def _short(text: str) -> str:
    """Return a text, or the hash of a long one, padded to START_BYTES, since the text has at least as many."""
    return text if len(text) <= LARGE_BYTES else f"\0{_hash(text.encode())}".ljust(START_BYTES, "\0")


def _fields(request: ParsedRequest, declared: int) -> dict[str, Any]:
    """Return the fields of the body that routing reads."""
    doc = request.doc
    short: dict[str, Any] = {}
    for root, *inner in (*NAMING_FIELDS, *MESSAGES_SHARED_FIELDS, ("previous_response_id",)):
        value = doc.get(root)
        if not inner and isinstance(value, str):
            short[root] = _short(value)
        elif inner and isinstance(value, dict) and isinstance(text := value.get(inner[0]), str):
            short[root] = {inner[0]: _short(text)}
    short |= {name: value for name, value in names_in(doc).items() if name not in short}
    if (repeating := repeating_field(doc)) is not None:
        short[repeating] = short.get(repeating) or True
    short |= options_of(doc)
    short |= _question(doc)
    if CACHE_FIELD in doc:
        short[CACHE_FIELD] = whole if len(encoded(whole := doc[CACHE_FIELD])) <= MOST_QUESTION else True
    short |= {
        name: min(MOST, whole) for name in SAYING if (whole := lax.whole(doc.get(name))) is not None and whole > 0
    }
    if goes_on(request):
        short[BACKGROUND] = True
    if request.ids:
        ids = doc["prompt"][0] if isinstance(doc["prompt"][0], list) else doc["prompt"]
        short["prompt"] = [[id_ for id_ in ids[:TEXT_IDS] if isinstance(id_, int)]]
    if request.kind is ApiKind.RESPONSES:
        given = doc["input"]
        short["input"] = [_item(item) for item in given[: declared + 1]] if isinstance(given, list) else ""
    return short


def _question(doc: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields by which clients ask about the cache, without their other members."""
    short: dict[str, Any] = {}
    if ANTHROPIC in doc:
        given = doc[ANTHROPIC]
        option = {PREVIOUS: given.get(PREVIOUS)} if isinstance(given, dict) else given
        short[ANTHROPIC] = option if len(encoded(option)) <= MOST_QUESTION else True
    options = doc.get(OPENAI)
    if isinstance(options, dict) and OPENAI_ID in options:
        option = options[OPENAI_ID]
        short[OPENAI] = {OPENAI_ID: option if len(encoded(option)) <= MOST_QUESTION else True}
    return short


def _item(item: Mapping[str, Any]) -> Mapping[str, Any]:
    # an item that is longer than any declared message matches none, and only its role is read
    return item if len(encoded(item)) <= LARGE_BYTES else {"role": item.get("role")}


def _messages(request: ParsedRequest, declared: int) -> list[Mapping[str, Any]]:
    """Return the messages up to the end of the chat's start, which follows at most `declared` declared ones."""
    seen = 0

    def counted() -> Iterator[Mapping[str, Any]]:
        nonlocal seen
        for seen, message in enumerate(request.messages, 1):  # noqa: B007 - the enclosing function reads it
            yield message

    once = copy(request)
    once.messages = counted()  # type: ignore[assignment] # it is read once
    chat_start(once, declared)
    result: list[Mapping[str, Any]] = []
    size = 0
    for message in request.messages[: min(MOST_MESSAGES, max(seen, declared + 1))]:
        if message["role"] in SYSTEM_ROLES:
            result.append({"role": message["role"], "content": ""})
            continue
        if len(encoded(message)) <= LARGE_BYTES:
            result.append(message)
            size += len(encoded(message))
        else:
            # a field that no declared message has
            result.append({"role": message["role"], "content": _short(words_of(message).decode()), "shortened": True})
        if size > MOST_MESSAGE_BYTES:
            break
    return result
