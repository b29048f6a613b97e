"""What names a session: a key of 64 bits, the same on every turn and in every router. Pure.

The first line that a request has something for decides:

| what the client sends                                              | the key is made of           |
|--------------------------------------------------------------------|------------------------------|
| the group's session header, `x-session-id` unless it names another | its value                    |
| body: `conversation` (or its `id`), `session_id`, `session_params.session_id` | its value         |
| header: `x-dynamo-session-id`, `x-session-affinity`, `x-smg-routing-key`      | its value         |
| body: `prompt_cache_key`                                           | its value, and the start     |
| header: `x-claude-code-session-id`, `session-id`                   | its value, and the start     |
| header: `authorization`, `api-key`, `x-api-key`                    | 16 bits of it, and the start |
| nothing of these                                                   | the start                    |

The last four are shared by several conversations: an application's cache key, the agents of one session, a caller.
The start of the conversation tells those apart. It repeats in every turn, or else what is cached of the conversation
is void with it. The group is part of every key, since records are kept by the key alone.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson
import xxhash

from promptgroup_router.apis.request import SYSTEM_ROLES, ApiKind, ParsedRequest, is_media, text_of
from promptgroup_router.contract.names import HEADER_SESSION

NAMING_FIELDS = (("conversation",), ("conversation", "id"), ("session_id",), ("session_params", "session_id"))
NAMING_HEADERS = (b"x-dynamo-session-id", b"x-session-affinity", b"x-smg-routing-key")
SHARED_FIELDS = (("prompt_cache_key",),)
SHARED_HEADERS = (b"x-claude-code-session-id", b"session-id")
CREDENTIALS = (b"authorization", b"api-key", b"x-api-key")
CREDENTIAL_BITS = 16
"""Of a credential's hash: tells callers apart well enough, and tells who sees keys (in logs, from peers) nothing that
a password could be tried against."""

START_BYTES = 256
"""A chat's start is as many of its first messages as have this many bytes: a first message of `hi` tells nothing."""
TEXT_BYTES = 1024
"""The start of a text, beyond what is declared: a text has no messages, and instructions come first."""
TEXT_IDS = 768
"""The same for a prompt of token ids, about four bytes each; 2048 bytes count as declared where nothing is."""
MEDIA_BYTES = 256
"""Of an image or a sound: what it is told by is the end of its URL or of its data, whose start is the format's."""

_SEED = 0x70726F6D707467
"""Keeps keys apart from other hashes of the same bytes."""


class SessionKey(NamedTuple):
    """A session's key."""

    key: int
    first: int
    """The key on the first turn: another one where that turn was too short to tell sessions apart."""
    named: bool
    """Whether the client named the session: else its first turn cannot be told from others that begin alike."""
    source: str
    """What was found in the request: a header, or a field of the body; empty where the start alone decides."""


def session_key(
    ask: ParsedRequest, headers: Mapping[bytes, bytes], group: str, header: str = HEADER_SESSION, declared: int = 0
) -> SessionKey:
    """The key of a request's session.

    Args:
        ask: the request's body.
        headers: names in lower case.
        group: what keys are unique within.
        header: the group's session header.
        declared: bytes at the start of a text that its Tier-1 prefix has.
    """
    within = group.encode()
    name, source = _first_header(headers, (header.encode(),))
    if not name:
        name, source = _first_field(ask, NAMING_FIELDS)
    if not name:
        name, source = _first_header(headers, NAMING_HEADERS)
    if name:
        key = _hash([within, b"name", name])
        return SessionKey(key, key, named=True, source=source)
    shared, source = _first_field(ask, SHARED_FIELDS)
    if not shared:
        shared, source = _first_header(headers, SHARED_HEADERS)
    if not shared:
        shared, source = _caller(headers)
    if ask.kind is ApiKind.TEXT:
        start = first_ids(ask, TEXT_IDS) if ask.ids else ask.system.encode()[: declared + TEXT_BYTES]
        key = _hash([within, b"text", shared, start])
        return SessionKey(key, key, named=False, source=source)
    said, first = chat_start(ask)
    scope = [within, b"chat", shared]
    key = _hash(scope + said)
    return SessionKey(key, key if first == len(said) else _hash(scope + said[:first]), named=False, source=source)


def chat_start(ask: ParsedRequest) -> tuple[list[bytes], int]:
    """The start of a chat, and how many parts of it its first turn had.

    It is fixed once there are START_BYTES, however the conversation goes on. What instructs the model is no part of
    it; what an assistant says before any user counts for nothing, since all conversations may begin with it.
    """
    start: list[bytes] = []
    size, first = 0, -1
    asked = False
    for message in ask.doc["messages"]:
        role = message["role"]
        if role in SYSTEM_ROLES:
            continue
        if role == "user":
            asked = True
        elif asked and first < 0:
            first = len(start)
        words = _words(message)
        start += (role.encode(), words)
        if asked and (size := size + len(words)) >= START_BYTES:
            break
    return start, first if first >= 0 else len(start)


def first_ids(ask: ParsedRequest, most: int) -> bytes:
    """The first ids of a prompt that is given as tokens; of several prompts the first."""
    prompt = ask.doc["prompt"]
    ids = prompt[0] if isinstance(prompt[0], list) else prompt
    return orjson.dumps([each for each in ids[:most] if isinstance(each, int)])


def _words(message: dict[str, Any]) -> bytes:
    """What was said, however it is spelled.

    A later turn repeats a message with the same text, but not always with the same JSON: clients turn a text into a
    list of parts, or move a mark for caching (`cache_control`) from one message to the next.
    """
    content = message.get("content")
    if isinstance(content, str):
        words = content.encode()
    else:
        words = text_of(content).encode()
        if isinstance(content, list):
            words += b"".join(_media_end(part) for part in content if is_media(part))
    if calls := message.get("tool_calls"):
        words += orjson.dumps(calls)
    return words


def _media_end(part: dict[str, Any]) -> bytes:
    # what a part holds stands under the name of its type: {"type": "image_url", "image_url": {"url": ...}}
    held = part.get(str(part.get("type")))
    values = held.values() if isinstance(held, dict) else (held,)
    return b"".join(value[-MEDIA_BYTES:].encode() for value in values if isinstance(value, str))


def _first_field(ask: ParsedRequest, paths: tuple[tuple[str, ...], ...]) -> tuple[bytes, str]:
    """Value and name of the first of these that the body has."""
    doc = ask.doc
    for path in paths:
        if path[0] not in doc:
            continue
        value: object = doc
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        if value and isinstance(value, str):
            return value.encode(), f"field {'.'.join(path)}"
    return b"", ""


def _first_header(headers: Mapping[bytes, bytes], names: tuple[bytes, ...]) -> tuple[bytes, str]:
    """Value and name of the first of these that there is."""
    for name in names:
        if value := headers.get(name):
            return value, f"header {name.decode()}"
    return b"", ""


def _caller(headers: Mapping[bytes, bytes]) -> tuple[bytes, str]:
    credential, source = _first_header(headers, CREDENTIALS)
    if not credential:
        return b"", ""
    return (xxhash.xxh3_64_intdigest(credential, seed=_SEED) % (1 << CREDENTIAL_BITS)).to_bytes(2, "little"), source


def _hash(parts: list[bytes]) -> int:
    return xxhash.xxh3_64_intdigest(b"\0".join(parts), seed=_SEED)
