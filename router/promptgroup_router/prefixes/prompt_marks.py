"""Hashes a prompt at positions where other prompts may diverge from it: the marks that identify shared prefixes.

A mark is the hash of the prompt up to a position, so two prompts have a mark in common if they are equal up to there.
Marks are at fixed distances, which grow with the length, and at the ends of messages and of their parts. They depend
on nothing behind them. The prompt is read in the order in which engines read it: tools, system text, messages.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import orjson
import xxhash

from promptgroup_router.apis.request import SYSTEM_ROLES, ParsedRequest
from promptgroup_router.apis.session_key import media_end

STEP = 1024
"""Bytes between the first marks; further on, an eighth of the power of two below the position, 8 KiB at 64 KiB."""
MOST_MARKS = 256
"""Most marks of a prompt. If message ends are not close to each other, this is enough for any body that is accepted."""
MOST_IDS = 131_072
"""Most tokens that are marked in a prompt of token ids."""
NEAR = 4
"""The end of a message or part is marked only if it is at least 1/NEAR of a step behind the mark before it."""
ID_BYTES = 4
"""Bytes of text that a token given as its id counts as."""
LEAST = STEP // NEAR
"""Bytes behind a declared prompt from which on marks count. Nearer ones are the end of that prompt, or a greeting: all
sessions with the prompt would share them, and would therefore have the same home."""

REMEMBERED_BYTES = 2 * STEP
"""Bytes of tools and system text from which on their marks are cached: requests of one application share them."""
REMEMBERED_STARTS = 512
"""Most beginnings of prompts whose marks are cached; the cache is cleared when it is full. One takes 16 KB at most."""

_TOOL_PARTS = frozenset(("tool_use", "tool_result"))
"""Types of the parts that are text in another form: the calls of tools and their results."""

_FOLLOWING = {"user": "assistant", "assistant": "user", "tool": "assistant"}
"""The role of a message → the usual role of the next message. Only a different role is hashed."""

_digest = cast("Callable[[bytes | memoryview, int], int]", xxhash.xxh3_64_intdigest)


class Marks(NamedTuple):
    """The marks of a prompt, the shortest prefix first."""

    hashes: Sequence[int]
    """Hash of each prefix (64 bits), the same in every router."""
    ends: Sequence[int]
    """Bytes of each prefix's text; a token that is given as its id counts as ID_BYTES."""


def step_at(place: int) -> int:
    """Return the bytes from a position to the next fixed one."""
    return max(STEP, (1 << place.bit_length()) >> 4)


def marks_of(request: ParsedRequest) -> Marks:
    """Return the marks of a request; those of its digest if it was parsed elsewhere."""
    if request.marks is not None:
        hashes, ends = request.marks
        return Marks(hashes, ends)
    cut = _Cut()
    if request.ids:
        return _marks_of_ids(cut, request)
    if request.tools or request.system:
        cut = _start(request.tools.encode(), request.system.encode())
    expected, first = "user", True
    for message in request.messages:
        role: str = message["role"]
        if first:
            first = False
            if request.system and role in SYSTEM_ROLES:
                continue  # its text is the system text
        if role != expected:
            cut.begin(role)
        expected = _FOLLOWING.get(role, "user")
        _add_message(cut, message)
        if len(cut.hashes) >= MOST_MARKS:
            break
    return Marks(cut.hashes, cut.ends)


def _start(tools: bytes, system: bytes) -> "_Cut":
    """Return the reader of a prompt behind its tools and its system text.

    The marks of the beginning are cached by a hash of all of it, which takes a fraction of the time of its marks. The
    hash is the one that marks are made of, so that two beginnings with the same hash are no more likely than two
    prompts with the same mark. No text is stored.
    """
    size = len(tools) + len(system)
    if size < REMEMBERED_BYTES:
        return _read_start(tools, system)
    name = _digest(system, _digest(tools, size) if tools else size)
    start = _starts.get(name)
    if start is None or start.place != size:
        start = _read_start(tools, system)
        if len(_starts) >= REMEMBERED_STARTS:
            _starts.clear()
        _starts[name] = start
    return start.copy()


def _read_start(tools: bytes, system: bytes) -> "_Cut":
    cut = _Cut()
    if tools:
        cut.begin("tools")
        cut.add(tools)
    if system:
        cut.begin("system")
        cut.add(system)
    return cut


def _add_message(cut: "_Cut", message: Mapping[str, Any]) -> None:
    content = message.get("content")
    if isinstance(content, str):
        cut.add(content.encode())
    elif isinstance(content, list) and content:
        for part in content:
            cut.add(_words(part))
    else:
        cut.add(b"")
    if calls := message.get("tool_calls"):
        cut.begin("calls")
        cut.add(orjson.dumps(calls))


def _marks_of_ids(cut: "_Cut", request: ParsedRequest) -> Marks:
    prompt = request.doc["prompt"]
    ids = (prompt[0] if isinstance(prompt[0], list) else prompt)[:MOST_IDS]
    data = orjson.dumps(ids)
    cut.add(data)
    return Marks(cut.hashes, [ID_BYTES * len(ids) * end // len(data) for end in cut.ends])


def _words(part: object) -> bytes:
    """Return the text of a part of a message; for a part that is not text, bytes that identify it."""
    if not isinstance(part, dict):
        return b""
    text = part.get("text")
    if isinstance(text, str):
        return text.encode()
    if part.get("type") in _TOOL_PARTS:
        return orjson.dumps({name: value for name, value in part.items() if name != "cache_control"})
    return media_end(part)


class _Cut:
    """Reads a prompt part by part, and computes its marks.

    Each hash has the previous one as its seed, so that every byte is hashed once. A part is hashed up to its end even
    if no mark is there, so that no text is copied to join it with the next part.
    """

    __slots__ = ("_chain", "_last", "_step", "ends", "hashes", "place")

    def __init__(self) -> None:
        self.hashes: list[int] = []
        self.ends: list[int] = []
        self.place = 0
        """Bytes that have been read."""
        self._last = self._chain = 0
        self._step = STEP

    def copy(self) -> "_Cut":
        """Return a reader at the same place, which reads on by itself."""
        cut = _Cut()
        cut.hashes, cut.ends = self.hashes.copy(), self.ends.copy()
        cut.place, cut._last, cut._chain, cut._step = self.place, self._last, self._chain, self._step
        return cut

    def begin(self, subject: str) -> None:
        """Begin a part that does not follow from the one before, such as a message with another role."""
        self._chain = _digest(subject.encode(), self._chain)

    def add(self, text: bytes) -> None:
        """Read the text of a part."""
        hashes, ends, chain = self.hashes, self.ends, self._chain
        begin, end, last, step = self.place, self.place + len(text), self._last, self._step
        if last + step > end:
            chain = _digest(text, chain)
        else:
            view = memoryview(text)
            at = 0
            while last + step <= end and len(hashes) < MOST_MARKS:
                last += step
                to = last - begin
                # copying a short piece is faster than creating a view of it
                chain = _digest(text[at:to] if to - at <= STEP else view[at:to], chain)
                hashes.append(chain)
                ends.append(last)
                at = to
                if last >= step << 4:  # as `step_at`
                    step <<= 1
            if begin + at < end:
                chain = _digest(view[at:], chain)
        if end - last >= step // NEAR and len(hashes) < MOST_MARKS:
            hashes.append(chain)
            ends.append(end)
            last = end
            if last >= step << 4:
                step <<= 1
        self.place, self._last, self._step, self._chain = end, last, step, chain


_starts: dict[int, _Cut] = {}
"""Hash of tools and system text → the reader behind them."""
