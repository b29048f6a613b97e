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
ID_BYTES = 4
"""Bytes of text that stand for a token which is given as its id."""
LEAST = STEP // NEAR
"""Bytes behind a declared prompt from where on marks count. Nearer ones are the end of that prompt, or a greeting: all
sessions with the prompt would have them in common, and so one home."""

_TOOL_PARTS = frozenset(("tool_use", "tool_result"))
"""Types of the parts that are text in another form: what a model asks of a tool, and what that answers."""

_digest = cast("Callable[[bytes | memoryview, int], int]", xxhash.xxh3_64_intdigest)
_KINDS: Final = {
    kind: _digest(kind.encode(), 0) for kind in ("tools", "system", "developer", "user", "assistant", "tool", "calls")
}
"""What begins a part of a prompt → its hash."""
_TOOLS: Final = _KINDS["tools"]
_SYSTEM: Final = _KINDS["system"]
_CALLS: Final = _KINDS["calls"]


class Marks(NamedTuple):
    """The marks of a prompt, the shortest prefix first."""

    hashes: Sequence[int]
    """Hash of each prefix (64 bits), the same in every router."""
    ends: Sequence[int]
    """Bytes of each prefix's text; a token that is given as its id counts as ID_BYTES."""


NO_MARKS: Final = Marks((), ())


def step_at(place: int) -> int:
    """Return the bytes from a place to the next fixed one."""
    return max(STEP, (1 << place.bit_length()) >> 4)


def marks_of(ask: ParsedRequest) -> Marks:
    """Return the marks of a request; those that its digest has, if it was read elsewhere."""
    if ask.marks is not None:
        hashes, ends = ask.marks
        return Marks(hashes, ends)
    cut = _Cut()
    if ask.ids:
        return _marks_of_ids(cut, ask)
    if ask.tools:
        cut.add(ask.tools.encode(), _TOOLS)
    if ask.system:
        cut.add(ask.system.encode(), _SYSTEM)
    first = True
    for message in ask.messages:
        role: str = message["role"]
        if first:
            first = False
            if ask.system and role in SYSTEM_ROLES:
                continue  # its text is the system text
        kind = _KINDS.get(role)
        if kind is None:
            kind = _digest(role.encode(), 0)
        content = message.get("content")
        if isinstance(content, list) and content:
            for part in content:
                cut.add(_words(part), kind)
                kind = 0  # one part is the same prompt as its text
        else:
            cut.add(content.encode() if isinstance(content, str) else b"", kind)
        if calls := message.get("tool_calls"):
            cut.add(orjson.dumps(calls), _CALLS)
        if len(cut.hashes) >= MOST_MARKS:
            break
    return Marks(cut.hashes, cut.ends)


def _marks_of_ids(cut: "_Cut", ask: ParsedRequest) -> Marks:
    prompt = ask.doc["prompt"]
    ids = (prompt[0] if isinstance(prompt[0], list) else prompt)[:MOST_IDS]
    data = orjson.dumps(ids)
    cut.add(data, 0)
    return Marks(cut.hashes, [ID_BYTES * len(ids) * end // len(data) for end in cut.ends])


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


class _Cut:
    """Reads a prompt part by part, and marks it.

    Each hash has the one before it as its seed, so that every byte is hashed once. A part is hashed up to its end even
    if no mark stands there: no text is copied to join it with the next part.
    """

    __slots__ = ("_at", "_chain", "_fixed", "_last", "_step", "ends", "hashes")

    def __init__(self) -> None:
        self.hashes: list[int] = []
        self.ends: list[int] = []
        self._at = self._last = self._chain = 0
        self._fixed = self._step = STEP

    def add(self, text: bytes, kind: int) -> None:
        """Read a part; `kind` is a hash of what begins with it, such as a message of a user."""
        hashes, ends = self.hashes, self.ends
        begin, end, fixed, chain = self._at, self._at + len(text), self._fixed, self._chain ^ kind
        if fixed > end:
            chain = _digest(text, chain)
        else:
            view, at, step = memoryview(text), 0, self._step
            while fixed <= end and len(hashes) < MOST_MARKS:
                chain = _digest(view[at : fixed - begin], chain)
                hashes.append(chain)
                ends.append(fixed)
                at = fixed - begin
                self._last = fixed
                if fixed >= step << 4:  # as `step_at`
                    step <<= 1
                fixed += step
            if begin + at < end:
                chain = _digest(view[at:], chain)
            self._fixed, self._step = fixed, step
        if end - self._last >= self._step // NEAR and len(hashes) < MOST_MARKS:
            hashes.append(chain)
            ends.append(end)
            self._last = end
        self._at, self._chain = end, chain
