"""Refuses bodies whose structure would cost far more to parse than their bytes to receive. Does no I/O.

Parsing makes an object of 50 to 300 bytes from two bytes such as `[]`, and all that is done with a body afterwards
takes time for each of its values. Counts of raw bytes are upper bounds and take under 2 ms for 1 MiB. Only a body that
exceeds one of them is looked at without its strings, whose text may hold any character.
"""

from promptgroup_router.base.errors import ApiError

UNCHECKED_BYTES = 65536
"""Bodies up to this size are parsed without a check: they hold too few values to matter."""
MOST_OBJECTS = 65_536
"""Objects and arrays of a body. A conversation of a thousand messages with a hundred tools has some ten thousand."""
MOST_VALUES = 2_000_000
"""Values of a body, which separators tell: a prompt of a million token ids has as many."""
MOST_STRINGS = 400_000
"""Strings of a body, names of fields included."""


def check(body: bytes) -> None:
    """Check a body before it is parsed.

    Raises:
        ApiError: 400, the body has more objects, values or strings than any prompt needs.
    """
    if len(body) <= UNCHECKED_BYTES or _within(body, body.count(b'"') // 2):
        return
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in body else body
    strings = plain.count(b'"') // 2
    if strings > MOST_STRINGS:
        raise _too_many("strings", MOST_STRINGS)
    outside = b"".join(plain.split(b'"')[::2])
    if not _within(outside, strings):
        raise _too_many("objects, arrays or values", MOST_OBJECTS)


def _within(text: bytes, strings: int) -> bool:
    return (
        strings <= MOST_STRINGS
        and text.count(b"{") + text.count(b"[") <= MOST_OBJECTS
        and text.count(b",") <= MOST_VALUES
    )


def _too_many(kind: str, most: int) -> ApiError:
    message = f"the body has too many {kind} (more than {most}): send less structure, or more of it as text"
    return ApiError(400, message, code="too_complex")
