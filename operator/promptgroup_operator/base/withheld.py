"""Removes quotations of prompts from texts of other programs. Does no I/O."""

from collections.abc import Iterable

QUOTED = 16
"""Minimum number of consecutive letters and digits in a quotation: fewer are words that any message may contain."""
SHOWN = 300
"""Maximum length of the result in characters."""


def withheld(text: str, secrets: Iterable[str]) -> str:
    """Return a text without its quotations of `secrets`, on one line and at most SHOWN characters long.

    A quotation is detected regardless of spaces, punctuation or escapes: only letters and digits are compared. A secret
    that is shorter than QUOTED must be quoted as a whole.
    """
    text = " ".join(text[: 4 * SHOWN].split())
    places = [place for place, letter in enumerate(text) if letter.isalnum()]
    letters = "".join(text[place] for place in places)
    hidden = [False] * len(text)
    for secret in secrets:
        plain = "".join(letter for letter in secret if letter.isalnum())
        size = min(QUOTED, len(plain))
        if size < QUOTED // 2:
            continue  # it is no secret, and would match in any text
        for start in range(len(letters) - size + 1):
            if letters[start : start + size] in plain:
                first, last = places[start], places[start + size - 1]
                hidden[first : last + 1] = [True] * (last + 1 - first)
    shown = "".join("\0" if hidden[place] else letter for place, letter in enumerate(text))
    parts = [part for part in shown.split("\0") if part]
    quoted = "[withheld]".join(parts)
    if shown.startswith("\0"):
        quoted = f"[withheld]{quoted}"
    if shown.endswith("\0") and len(shown) > 1:
        quoted = f"{quoted}[withheld]"
    return quoted if len(quoted) <= SHOWN else f"{quoted[: SHOWN - 3]}..."
