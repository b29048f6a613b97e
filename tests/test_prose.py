"""The language of docs, docstrings and messages: full sentences, in the words of the glossary.

ruff's D401 checks that docstrings begin with a verb; this file checks words. `python tests/test_prose.py` prints what
it finds.
"""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("contract", "operator", "router", "picker", "cli", "lab/promptgroup_local", "charts", "scripts")
"""Folders that are read. `tests`, `e2e`, `docs` and the rest of `lab` are left out: they hold experiments, tests
whose names are the sentences, and code that writes tables. Their pages are read as all pages are."""
PAGES = (
    "*.md",
    "docs/**/*.md",
    ".github/**/*.md",
    "manifests/**/*.md",
    "e2e/*.md",
    "tests/*.md",
    "lab/*.md",
    "lab/promptgroup_local/**/*.md",
)

RECORDS = "docs/development/decisions"
"""Decisions keep the words of their time: a record is superseded, not rewritten."""

FRAGMENT = re.compile(r"(What|Whether|Which|How|Of|Why|When|Who)\b(?![^.]*\?)")
"""First word of a docstring that is a fragment instead of a sentence or a noun phrase."""

WORDS = {
    r"\bPure\.": "say what holds: 'Does no I/O and reads no clock.'",
    r"\bdoes again\b": "name the action that is repeated",
    r"\blooks? again\b": "reconcile again; the next pass is due",
    r"\barms?\b": "revision",
    r"\brivals?\b": "groups of the same model, or older group",
    r"\bsightings?\b": "last seen",
    r"\bkin\b": "cohort",
    r"(?<!registry )\bmirrors?\b": "store, or in-memory cache",
    r"\bdepartures?\b|\bdeparted\b": "near miss, or prompt drift",
    r"\bledgers?\b": "load estimate",
    r"\bettft\b": "expected TTFT",
    r"\bby who may\b": "name the role, as in 'a cluster administrator'",
    r"\bis on nobody's list\b": "say which rule is missing",
    r"\ba touch\b|\bthe touch\b|\btouches (?:are|of|and|that)\b|\bof touches\b": "refresh",
    r"\bnear neighbours?\b": "near miss",
    r"\bstrangers?\b": "objects that the group does not own",
}
"""Pattern → what to write instead. Each is a word that only this project's authors would understand."""


def prose_of_page(text: str) -> str:
    """Return a page's text without code, links' targets and front matter."""
    text = re.sub(r"^(```|~~~).*?^\1", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^(?: {4}|\t).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"`[^`\n]*`", "", text)
    return re.sub(r"\]\([^)]*\)", "]", text)


def problems_of_module(path: Path) -> list[str]:
    """Return what is wrong with a module's docstrings and messages, one line each."""
    found = []
    tree = ast.parse(path.read_text())
    texts = []
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            for each in body:  # docstrings, those of constants and fields too
                if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant):
                    text = each.value.value
                    if isinstance(text, str) and FRAGMENT.match(text):
                        found.append(f"{each.lineno}: begins as a fragment: {text.splitlines()[0]!r}")
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            texts.append((node.lineno, re.sub(r"`[^`\n]*`", "", node.value)))
    return found + [f"{line}: {said}" for line, text in texts for said in words_in(text)]


def words_in(text: str) -> list[str]:
    """Return the private words of a text, each with what to write instead."""
    return [f"{found[0]!r}: {instead}" for pattern, instead in WORDS.items() for found in re.finditer(pattern, text)]


def problems() -> dict[str, list[str]]:
    """Return file → what is wrong with it, for each file with a fault."""
    found: dict[str, list[str]] = {}
    for folder in PACKAGES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            found[path.relative_to(ROOT).as_posix()] = problems_of_module(path)
    pages = {path for pattern in PAGES for path in ROOT.glob(pattern)} - set((ROOT / RECORDS).glob("*.md"))
    for path in sorted(pages):
        found[path.relative_to(ROOT).as_posix()] = words_in(prose_of_page(path.read_text()))
    return {name: said for name, said in found.items() if said}


@pytest.mark.heavy
def test_texts_use_the_projects_words_and_full_sentences():
    assert problems() == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('"""Whether it may go."""', True),
        ('"""Why it ended."""', True),
        ('"""What is due?"""', False),
        ('"""Return the slots. Pure."""', True),
        ('"""Return the slots."""', False),
        ('LIMIT = 3\n"""Of tries."""', True),
        ('raise ValueError("the rival is older")', True),
        ('name = "arms"', False),  # a value, no sentence
    ],
)
def test_a_fault_in_a_module_is_found(text, found, tmp_path):
    path = tmp_path / "module.py"
    path.write_text(text)
    assert bool(problems_of_module(path)) is found


def test_code_in_a_page_is_no_prose():
    assert words_in(prose_of_page("Say `a touch`.\n\n```\nthe ledger\n```\n\n    arms\n")) == []
    assert words_in(prose_of_page("The ledger of arms.")) != []


if __name__ == "__main__":
    for file, lines in problems().items():
        print(file, *lines, sep="\n  ")  # noqa: T201 - a command's output
