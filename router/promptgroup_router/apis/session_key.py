"""Derives a session's key of 64 bits, the same on every turn and in every router. Does no I/O and reads no clock.

The first row decides for which a request has a value:

| The client sends                                                   | The key is a hash of         |
|--------------------------------------------------------------------|------------------------------|
| the group's session header, `x-session-id` unless it names another | its value                    |
| body: `conversation` (or its `id`), `session_id`, `session_params.session_id` | its value         |
| header: `x-dynamo-session-id`, `x-session-affinity`, `x-smg-routing-key`      | its value         |
| body: `prompt_cache_key`; of messages also `metadata.user_id`      | its value, and the start     |
| header: `x-claude-code-session-id`, `session-id`                   | its value, and the start     |
| the caller's name, where the group's access rules provide it       | its value, and the start     |
| header: `authorization`, `api-key`, `x-api-key`                    | 16 bits of it, and the start |
| none of these                                                      | the start                    |

Several conversations share a value of the last five rows: those of an application's cache key, of the agents of one
session, of a caller. The start of the conversation distinguishes them. Every turn repeats it; a turn that changes it
cannot use the cache of the conversation anyway. The group is part of every key, since records are stored by key alone.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, Final, NewType, cast

import orjson
import xxhash

from promptgroup_contract.names import HEADER_SESSION
from promptgroup_router.apis.request import SYSTEM_ROLES, ApiKind, ParsedRequest, is_media, text_of

NAMING_FIELDS = (("conversation",), ("conversation", "id"), ("session_id",), ("session_params", "session_id"))
NAMING_HEADERS = (b"x-dynamo-session-id", b"x-session-affinity", b"x-smg-routing-key")
SHARED_FIELDS = (("prompt_cache_key",),)
MESSAGES_SHARED_FIELDS = (*SHARED_FIELDS, ("metadata", "user_id"))
SHARED_HEADERS = (b"x-claude-code-session-id", b"session-id")
CREDENTIALS = (b"authorization", b"api-key", b"x-api-key")
CALLER = "caller"
"""The source of a key that the caller's name is part of: it stays when the caller's keys and tokens change."""
CREDENTIAL_BITS = 16
"""Bits of a credential's hash: enough to distinguish callers, and too few to test a password against, for readers of
keys in logs or messages of peers."""

START_BYTES = 256
"""A chat's start is as many of its first messages as have this many bytes together: `hi` alone distinguishes no
chats."""
TEXT_BYTES = 1024
"""Bytes of a text's start beyond the declared prompt: a text has no messages, and instructions come first."""
TEXT_IDS = 768
"""The same for a prompt of token ids, about four bytes each; 2048 bytes of it stand for a declared prompt."""
MEDIA_BYTES = 256
"""Bytes of an image's or a sound's URL or data, from the end: the start is the same for all of one format."""

MEDIA_PARTS = 64
"""Images and sounds of a message that are inspected: a message of nothing else would block the event loop otherwise."""

_SEED = 0x70726F6D707467
"""Seed that makes keys differ from other hashes of the same bytes."""


SessionKey = NewType("SessionKey", int)
"""Names a session (64 bits). It decides the session's home, and is unique across groups."""
NO_SESSION: Final = SessionKey(0)

_digest = cast("Callable[..., SessionKey]", xxhash.xxh3_64_intdigest)
"""The hash that makes keys. A key is made for every request, and a cast of the function costs nothing at a call."""


@dataclass(slots=True)
class RequestSession:
    """The session that a request belongs to."""

    key: SessionKey
    first: SessionKey
    """The key of the first turn: another one where that turn was too short to distinguish sessions."""
    named: bool
    """True if the client named the session; if not, first turns that begin alike have the same key."""
    source: str
    """The header or the field of the body with the value; empty where the start alone decides."""
    pinned: bool = False
    """True if it stays with the revision that it began with, instead of the one that this request would get."""


def find_session(
    request: ParsedRequest,
    headers: dict[bytes, bytes],
    group: str,
    header: str = HEADER_SESSION,
    declared: int = 0,
    *,
    messages: int = 0,
    caller: str = "",
) -> RequestSession:
    """Return the session of a request.

    Args:
        request: the parsed body.
        headers: fields by name in lower case.
        group: the group, within which keys are unique.
        header: the group's session header.
        declared: bytes of the declared prompt at the start of a text.
        messages: number of declared messages at the start of a chat, with which all sessions begin.
        caller: name of the caller, if the caller is identified.
    """
    within = group.encode()
    name, source = _first_header(headers, (header.encode(),))
    if not name:
        name, source = _first_field(request, NAMING_FIELDS)
    if not name:
        name, source = _first_header(headers, NAMING_HEADERS)
    if name:
        key = _hash([within, b"name", name])
        return RequestSession(key, key, named=True, source=source)
    shared, source = _first_field(
        request, MESSAGES_SHARED_FIELDS if request.kind is ApiKind.MESSAGES else SHARED_FIELDS
    )
    if not shared:
        shared, source = _first_header(headers, SHARED_HEADERS)
    if not shared:
        shared, source = (caller.encode(), CALLER) if caller else _credential(headers)
    if request.kind is ApiKind.TEXT:
        start = first_ids(request, TEXT_IDS) if request.ids else request.system.encode()[: declared + TEXT_BYTES]
        key = _hash([within, b"text", shared, start])
        return RequestSession(key, key, named=False, source=source)
    value, first = chat_start(request, messages)
    scope = [within, b"chat", shared]
    key = _hash(scope + value)
    return RequestSession(key, key if first == len(value) else _hash(scope + value[:first]), named=False, source=source)


def chat_start(request: ParsedRequest, declared: int = 0) -> tuple[list[bytes], int]:
    """Return the start of a chat, and how many parts of it the first turn had.

    The start ends with the message that completes START_BYTES, so that later messages do not change it; never with one
    of the assistant, since many conversations have `hi` and the same welcome in common. Instructions of the model are
    left out, and so are the first `declared` messages behind them. An assistant's message before any user message adds
    no bytes to the count.
    """
    start: list[bytes] = []
    size, first = 0, -1
    requested = False
    for message in request.messages:
        role = message["role"]
        if role in SYSTEM_ROLES:
            continue
        if declared:
            declared -= 1
            continue
        if role == "user":
            requested = True
        elif requested and first < 0:
            first = len(start)
        words = words_of(message)
        start += (role.encode(), words)
        if requested and (size := size + len(words)) >= START_BYTES and role != "assistant":
            break
    return start, first if first >= 0 else len(start)


def first_ids(request: ParsedRequest, most: int) -> bytes:
    """Return the first ids of a prompt of token ids, or of the first of several such prompts."""
    prompt = request.doc["prompt"]
    ids = prompt[0] if isinstance(prompt[0], list) else prompt
    return orjson.dumps([id_ for id_ in ids[:most] if isinstance(id_, int)])


def words_of(message: Mapping[str, Any]) -> bytes:
    """Return the content of a message, the same for every spelling.

    A later turn repeats a message with the same text, but not always with the same JSON: clients turn a text into a
    list of parts, or move `cache_control` from one message to the next.
    """
    content = message.get("content")
    if isinstance(content, str):
        words = content.encode()
    else:
        words = text_of(content).encode()
        if isinstance(content, list):
            media = islice(filter(is_media, content), MEDIA_PARTS)
            words += b"".join(map(media_end, media))
    if calls := message.get("tool_calls"):
        words += orjson.dumps(calls)
    return words


def media_end(part: dict[str, Any]) -> bytes:
    """Return the end of the URL or the data of an image, a sound or a file."""
    # the content of a part is under the name of its type: {"type": "image_url", "image_url": {"url": ...}}
    # or, in Anthropic's API, under source: {"type": "image", "source": {"data": ...}}
    held = part.get(str(part.get("type"))) or part.get("source")
    values = held.values() if isinstance(held, dict) else (held,)
    return b"".join(value[-MEDIA_BYTES:].encode() for value in values if isinstance(value, str))


def _first_field(request: ParsedRequest, paths: tuple[tuple[str, ...], ...]) -> tuple[bytes, str]:
    """Return value and name of the first of these fields that the body has."""
    doc = request.doc
    for path in paths:
        if path[0] not in doc:
            continue
        value: object = doc
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        if value and isinstance(value, str):
            return value.encode(), f"field {'.'.join(path)}"
    return b"", ""


def _first_header(headers: dict[bytes, bytes], names: tuple[bytes, ...]) -> tuple[bytes, str]:
    """Return value and name of the first of these headers that the request has."""
    for name in names:
        if value := headers.get(name):
            return value, _header_source(name)
    return b"", ""


@lru_cache(256)
def _header_source(name: bytes) -> str:
    return f"header {name.decode()}"


def _credential(headers: dict[bytes, bytes]) -> tuple[bytes, str]:
    credential, source = _first_header(headers, CREDENTIALS)
    if not credential:
        return b"", ""
    return (xxhash.xxh3_64_intdigest(credential, seed=_SEED) % (1 << CREDENTIAL_BITS)).to_bytes(2, "little"), source


def _hash(parts: list[bytes]) -> SessionKey:
    return _digest(b"\0".join(parts), seed=_SEED)
