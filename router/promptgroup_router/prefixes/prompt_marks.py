"""Cuts a prompt at places where others may leave it: the marks by which shared prefixes are recognised.

A mark is the hash of everything before a place, so two prompts have a mark in common where they are the same up to
there. Marks stand at fixed distances, which grow with the length, and at the ends of messages and of their parts. They
depend on nothing behind them. What is cut is the prompt as engines read it: tools, system text, messages in order.
Does no I/O and reads no clock.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, cast

import orjson
import xxhash

from promptgroup_router.apis.request import SYSTEM_ROLES, ParsedRequest
from promptgroup_router.apis.session_key import media_end

STEP = 1024
"""Bytes between two marks at first; further on an eighth of the power of two below the place, 8 KiB at 64 KiB."""
MOST_MARKS = 256
"""Most marks of a prompt. Without borders close to each other this is enough for any body that is read."""
MOST_IDS = 131_072
"""Most tokens of a prompt of token ids that are cut."""
NEAR = 4
"""A border is marked only if it is at least this part of a step behind the mark before it."""
LEAST = STEP // NEAR
"""Bytes behind a declared prompt from where on marks count. Nearer ones are the end of that prompt, or a greeting: all
sessions with the prompt would have them in common, and so one home."""
MESSAGE_BYTES = 12
"""Most bytes beside its text with which a message is cut: its role, and what parts it from others."""

_TOOL_PARTS = frozenset(("tool_use", "tool_result"))
"""Types of the parts that are text in another form: what a model asks of a tool, and what that answers."""

_digest = cast("Callable[[memoryview, int], int]", xxhash.xxh3_64_intdigest)


class Marks(NamedTuple):
    """The marks of a prompt, the shortest prefix first."""

    hashes: Sequence[int]
    """Hash of each prefix (64 bits), the same in every router."""
    ends: Sequence[int]
    """Bytes of each prefix."""
    size: int
    """Bytes of the whole prompt."""


NO_MARKS: Final = Marks((), (), 0)


def step_at(place: int) -> int:
    """Return the bytes from a place to the next fixed one."""
    return max(STEP, (1 << place.bit_length()) >> 4)


def marks_of(ask: ParsedRequest) -> Marks:
    """Return the marks of a request; those that its digest has, if it was read elsewhere."""
    if ask.marks is not None:
        hashes, ends, size = ask.marks
        return Marks(hashes, ends, size)
    if ask.ids:
        prompt = ask.doc["prompt"]
        ids = prompt[0] if isinstance(prompt[0], list) else prompt
        data = orjson.dumps(ids[:MOST_IDS])
        return cut(data, [len(data)])
    parts: list[bytes] = [ask.tools.encode(), ask.system.encode()]
    messages = ask.messages
    for index, message in enumerate(messages):
        role: str = message["role"]
        if index == 0 and ask.system and role in SYSTEM_ROLES:
            continue  # its text is the system text
        parts.append(role.encode())
        content = message.get("content")
        if isinstance(content, str):
            parts.append(content.encode())
        elif isinstance(content, list):
            parts += [_words(part) for part in content]
        if calls := message.get("tool_calls"):
            parts.append(orjson.dumps(calls))
    borders: list[int] = []
    at = 0
    for piece in parts:
        at += len(piece) + 1
        borders.append(at)
    return cut(b"\0".join(parts), borders)


def _words(part: object) -> bytes:
    """Return the text of a part of a message; of what is no text, what tells it from others."""
    if not isinstance(part, dict):
        return b""
    text = part.get("text")
    if isinstance(text, str):
        return text.encode()
    if part.get("type") in _TOOL_PARTS:
        return orjson.dumps({name: value for name, value in part.items() if name != "cache_control"})
    return media_end(part)


def cut(data: bytes, borders: Sequence[int]) -> Marks:
    """Return the marks of a prompt.

    Args:
        data: the prompt.
        borders: ends of its parts, in bytes, in ascending order.
    """
    hashes: list[int] = []
    ends: list[int] = []
    size, view = len(data), memoryview(data)
    last = chain = 0
    fixed = STEP
    for border in borders:
        end = min(border, size)
        while fixed <= end and len(hashes) < MOST_MARKS:
            chain = _digest(view[last:fixed], chain)
            hashes.append(chain)
            ends.append(fixed)
            last = fixed
            fixed += step_at(fixed)
        if end - last >= step_at(last) // NEAR and len(hashes) < MOST_MARKS:
            chain = _digest(view[last:end], chain)
            hashes.append(chain)
            ends.append(end)
            last = end
    return Marks(hashes, ends, size)
