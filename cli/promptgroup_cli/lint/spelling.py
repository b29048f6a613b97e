"""The spelling of a prompt: characters and blanks that look alike and are different bytes."""

import re
import unicodedata
from collections.abc import Iterator

from promptgroup_cli.lint.finding import Finding, Rule, Severity
from promptgroup_cli.lint.subject import LintSubject, Origin

_SPLITS = "a cache is found by bytes: text that looks the same and is spelled otherwise is computed again"
_NORMALISE = "write it one way in one place, and have every client send that text"

LINE_ENDS = Rule(
    "line-ends",
    Severity.WARNING,
    "line ends of Windows (CR LF)",
    _SPLITS,
    "save it with LF, and have Git keep it so (eol=lf)",
)
INVISIBLE = Rule(
    "invisible-characters",
    Severity.WARNING,
    "characters that cannot be seen or look like a blank",
    _SPLITS,
    "delete them, or write a blank",
)
NOT_NFC = Rule(
    "not-nfc", Severity.WARNING, "letters composed of several characters (not NFC)", _SPLITS, "normalise it to NFC"
)
BIDI_OVERRIDE = Rule(
    "bidi-override",
    Severity.WARNING,
    "characters that turn the direction of text (bidirectional overrides and embeddings)",
    "people read another text than the model gets, and programs that strip them send other bytes, which no cache has",
    "delete them; marks of direction (U+200E, U+200F) are enough for names in another script",
)
NUL = Rule(
    "nul",
    Severity.WARNING,
    "a NUL character",
    "programs and databases end a text there or refuse it, so that clients send different prompts",
    "delete it",
)
LINE_BLANKS = Rule(
    "line-blanks",
    Severity.NOTE,
    "blanks at the end of a line",
    "editors and formatters delete them, unasked: from there on the prompt is another one than replicas hold",
    "delete them before the prompt is declared, in clients and in the PromptGroup alike",
)
END_BLANKS = Rule(
    "end-blanks",
    Severity.NOTE,
    "blanks after a declared prompt",
    "a request belongs to a group when it begins with the declared text, blanks included: clients often strip them",
    "delete them, in clients and in the PromptGroup alike",
)
END_LINE = Rule(
    "end-line",
    Severity.ERROR,
    "a line end after a declared prompt, as `system: |` and text files have it",
    "a request belongs to a group when it begins with the declared text, byte for byte: clients that do not send the "
    "line end, which are nearly all, belong to no group and find NOTHING in cache",
    "write `system: |-`, and files without a final line end; keep it only where every client sends it (lint a log of "
    "requests beside this file to see)",
)
CHARACTERS_DIFFER = Rule(
    "characters-differ", Severity.ERROR, "prompts that differ in look-alike characters only", _SPLITS, _NORMALISE
)
BLANKS_DIFFER = Rule(
    "blanks-differ", Severity.ERROR, "prompts that differ in blanks and line ends only", _SPLITS, _NORMALISE
)
KEY_ORDER_DIFFERS = Rule(
    "json-key-order",
    Severity.ERROR,
    "JSON in prompts whose keys come in another order",
    _SPLITS,
    "serialise with sorted keys (`sort_keys=True`), without maps that have no order",
)
RULES = (
    END_LINE,
    LINE_ENDS,
    INVISIBLE,
    BIDI_OVERRIDE,
    NUL,
    NOT_NFC,
    LINE_BLANKS,
    END_BLANKS,
    CHARACTERS_DIFFER,
    BLANKS_DIFFER,
    KEY_ORDER_DIFFERS,
)

_INVISIBLE = re.compile("[\u00a0\u00ad\u200b\u2028\u2029\u2060\ufeff]")
"""No-break and zero-width blanks, soft hyphens, Unicode's line ends, byte order marks. Characters that scripts need are
left out: joiners, marks of direction."""
_TURNS = re.compile("[\u202a-\u202e\u2066-\u2069]")
"""Embeddings, overrides and isolates of Unicode's bidirectional algorithm (UAX #9)."""
_LINE_BLANKS = re.compile(r"(?<![ \t\n])[ \t]++(?=\r?\n[^\s])")
"""Blanks behind words at the end of a line that another one follows; whether the last line has any is another rule."""


def findings(subject: LintSubject) -> Iterator[Finding]:
    """Yield the dangerous spellings of one prompt: the first place of each rule."""
    for field, text in subject.texts():
        for rule, start in _matches(text):
            yield Finding(rule, rule.severity, subject.place(field, text, start), rule.title)
    system = subject.system
    if subject.origin is Origin.MANIFEST and system != (stripped := system.rstrip()):
        place = subject.place("system", system, len(stripped))
        rule = END_LINE if "\n" in system[len(stripped) :] else END_BLANKS
        yield Finding(rule, rule.severity, place, rule.title)


def _matches(text: str) -> Iterator[tuple[Rule, int]]:
    if (start := text.find("\r\n")) >= 0:
        yield LINE_ENDS, start
    if (start := text.find("\0")) >= 0:
        yield NUL, start
    if (match := _LINE_BLANKS.search(text)) is not None:
        yield LINE_BLANKS, match.start()
    if text.isascii():
        return
    if (match := _INVISIBLE.search(text)) is not None:
        yield INVISIBLE, match.start()
    if (match := _TURNS.search(text)) is not None:
        yield BIDI_OVERRIDE, match.start()
    if not unicodedata.is_normalized("NFC", text):
        composed = unicodedata.normalize("NFC", text)
        yield (
            NOT_NFC,
            next((i for i, (a, b) in enumerate(zip(text, composed, strict=False)) if a != b), len(composed) - 1),
        )


# --- Forms that texts are compared in -----------------------------------------------------------------------

_ALIKE = str.maketrans(
    {
        "\u2018": "'",
        "\u2019": "'",
        "\u201c": '"',
        "\u201d": '"',
        "\u2010": "-",
        "\u2011": "-",
        "\u2013": "-",
        "\u2014": "-",
        "\u2026": "...",
        "\u00a0": " ",
    }
)
_BLANKS = re.compile(r"\s+")


def characters(text: str) -> str:
    """Return the text with one spelling of look-alike characters, and without invisible ones."""
    if text.isascii():
        return text
    return _INVISIBLE.sub("", unicodedata.normalize("NFKC", text.translate(_ALIKE)))


def blanks(text: str) -> str:
    """Return the text with one blank between words."""
    return _BLANKS.sub(" ", text).strip()
