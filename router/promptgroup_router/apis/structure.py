"""Refuses bodies whose structure would cost far more to parse than their bytes to receive. Does no I/O.

Parsing makes an object of 50 to 300 bytes from two bytes such as `[]`, and all that is done with a body afterwards
takes time for each of its values. Counts of raw bytes are upper bounds, and a body that is too short for a count needs
none: 1 MiB of prose is checked in 0.1 ms, of brackets in 2 ms. Only a body that exceeds a limit by these counts is
counted again without its strings, whose text may hold any character.
"""

from promptgroup_router.base.errors import ApiError

UNCHECKED_BYTES = 65536
"""Bodies up to this size are parsed without a check: they hold too few values to matter."""
LARGE_BYTES = 262_144
"""Bodies above this size are large: to parse one would hold the event loop for a millisecond or more."""
PLAIN_BYTES = 16_384
"""Bodies up to this size never are."""
LARGE_OBJECTS, LARGE_VALUES = 4096, 16_384
"""A body between the two sizes with more objects, arrays or separators than these takes as long as a large one."""
MOST_OBJECTS = 65_536
"""Objects and arrays of a body. A conversation of a thousand messages with a hundred tools has some ten thousand."""
MOST_VALUES = 2_000_000
"""Values of a body, counted by separators: a prompt of a million token ids has as many."""
MOST_VALUES_OF_TEXT = 200_000
"""Values of a body whose prompt is text, as in chats: it has no token ids. A million numbers hold the event loop for a
tenth of a second, ten times as long as a text of the same size."""
MOST_STRINGS = 400_000
"""Strings of a body, names of fields included."""
RARE = 1000
"""Number of searches for a character before all of its occurrences are counted."""


def is_large(body: bytes | bytearray) -> bool:
    """Return True if a body takes too long to parse for a request that all others wait for."""
    size = len(body)
    if size <= PLAIN_BYTES or size > LARGE_BYTES:
        return size > LARGE_BYTES
    return (
        _has_more(body, b"{", LARGE_OBJECTS)
        or _has_more(body, b"[", LARGE_OBJECTS)
        or _has_more(body, b",", LARGE_VALUES)
    )


def check(body: bytes, values: int = MOST_VALUES, objects: int = MOST_OBJECTS) -> None:
    """Check a body before it is parsed.

    Args:
        body: the body, in JSON.
        values: most values that it may have.
        objects: most objects and arrays, each by itself.

    Raises:
        ApiError: 400, the body has more objects, values or strings than any prompt needs.
    """
    if len(body) <= UNCHECKED_BYTES or _within(body, values, objects):
        return
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in body else body
    if _has_more(plain, b'"', 2 * MOST_STRINGS + 1):
        raise _too_many("strings", MOST_STRINGS)
    structure = b"".join(plain.split(b'"')[::2])
    if _has_more(structure, b",", values):
        raise _too_many("values", values)
    if not _within(structure, values, objects):
        raise _too_many("objects or arrays", objects)


def _within(text: bytes, values: int, objects: int) -> bool:
    size = len(text)
    return not (
        _has_more(text, b"{", objects)
        or _has_more(text, b"[", objects)
        # a string takes three bytes at least with what separates it from the next, and any value takes two
        or (size > 3 * MOST_STRINGS and _has_more(text, b'"', 2 * MOST_STRINGS + 1))
        or (size > 2 * values and _has_more(text, b",", values))
    )


def _has_more(text: bytes | bytearray, character: bytes, most: int) -> bool:
    """Return True if a text has a character more than `most` times. Searches for a rare one are faster than a count."""
    at = -1
    for _ in range(RARE):
        at = text.find(character, at + 1)
        if at < 0:
            return False
    return RARE + text.count(character, at + 1) > most


def _too_many(kind: str, most: int) -> ApiError:
    message = f"the body has too many {kind} (more than {most}): send less structure, or more of it as text"
    return ApiError(400, message, code="too_complex")
