"""Takes what quotes a prompt out of a text that others wrote. Does no I/O."""

from collections.abc import Iterable

QUOTED = 16
"""Letters and digits in a row that make a quotation: fewer are words that any message may have."""
SHOWN = 300
"""Most characters of a text that are kept."""


def withheld(text: str, secrets: Iterable[str]) -> str:
    """Return a text without its quotations of `secrets`, on one line and at most SHOWN characters long.

    A quotation is found however it is spaced, punctuated or escaped: letters and digits alone are compared. A secret
    that is shorter than QUOTED is one as a whole.
    """
    text = " ".join(text[: 4 * SHOWN].split())
    places = [place for place, letter in enumerate(text) if letter.isalnum()]
    letters = "".join(text[place] for place in places)
    hidden = [False] * len(text)
    for secret in secrets:
        plain = "".join(letter for letter in secret if letter.isalnum())
        size = min(QUOTED, len(plain))
        if size < QUOTED // 2:
            continue  # it says nothing, and would be found in any text
        for start in range(len(letters) - size + 1):
            if letters[start : start + size] in plain:
                first, last = places[start], places[start + size - 1]
                hidden[first : last + 1] = [True] * (last + 1 - first)
    shown = "".join("\0" if hidden[place] else letter for place, letter in enumerate(text))
    parts = [part for part in shown.split("\0") if part]
    kept = "[withheld]".join(parts)
    if shown.startswith("\0"):
        kept = f"[withheld]{kept}"
    if shown.endswith("\0") and len(shown) > 1:
        kept = f"{kept}[withheld]"
    return kept if len(kept) <= SHOWN else f"{kept[: SHOWN - 3]}..."
