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
END_BLANKS = Rule(
    "end-blanks",
    Severity.NOTE,
    "blanks or a line end after a declared prompt",
    "a request belongs to a group when it begins with the declared text, line end included: clients often strip it",
    "write `system: |-`, which has no line end at its end",
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
RULES = (LINE_ENDS, INVISIBLE, NOT_NFC, END_BLANKS, CHARACTERS_DIFFER, BLANKS_DIFFER, KEY_ORDER_DIFFERS)

_INVISIBLE = re.compile("[\u00a0\u00ad\u200b\u2028\u2029\u2060\ufeff]")
"""No-break and zero-width blanks, soft hyphens, Unicode's line ends, byte order marks. Not what scripts need: joiners,
marks of direction."""


def findings(subject: LintSubject) -> Iterator[Finding]:
    """Yield the dangerous spellings of one prompt: the first place of each rule."""
    for field, text in subject.texts():
        for rule, start in _found(text):
            yield Finding(rule, rule.severity, subject.place(field, text, start), rule.title)
    system = subject.system
    if subject.origin is Origin.MANIFEST and system != (stripped := system.rstrip()):
        place = subject.place("system", system, len(stripped))
        yield Finding(END_BLANKS, END_BLANKS.severity, place, END_BLANKS.title)


def _found(text: str) -> Iterator[tuple[Rule, int]]:
    if (start := text.find("\r\n")) >= 0:
        yield LINE_ENDS, start
    if text.isascii():
        return
    if (match := _INVISIBLE.search(text)) is not None:
        yield INVISIBLE, match.start()
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
