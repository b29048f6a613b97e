"""Makes what others wrote fit for a terminal: what moves a cursor, or turns text around, is written as an escape.

A message or a table shows names and texts of users. An escape sequence (ECMA-48) in one could overwrite what stands
beside it, and a bidirectional control (Unicode Standard Annex 9) could show it in another order.
"""

import re

_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
"""Control characters but tab and line feed, bidirectional and invisible controls, separators of lines, surrogates."""
_ENDS = re.compile("[\t\n]+")


def printable(text: str) -> str:
    r"""Return a text with its control characters as `\u001b` and the like, as JSON and YAML escape them.

    Tabs and line feeds stay.
    """
    return _UNSAFE.sub(lambda result: f"\\u{ord(result[0]):04x}", text)


def in_line(text: str) -> str:
    """Return a text for one line of a message: printable, with blanks for tabs and line feeds."""
    return _ENDS.sub(" ", printable(text))
