"""Check subjects and bodies of commits, so that a history can be searched.

    python scripts/check_commits.py               the commits since the rule began, merges aside
    python scripts/check_commits.py --message F   the message in a file, as Git's hook commit-msg names it

A subject has at most 72 characters, begins with a verb in the imperative and ends without a full stop. A commit that
changes many lines has a body that says why. Prints one line for each problem, and ends with status 1 if there is any.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SINCE = "b26b1851487b6ab7842fb177b41fecaf45089d51"
"""The last commit before the rule."""
MOST_CHARACTERS = 72
TRIVIAL_LINES = 200
"""Most changed lines of a commit whose subject says enough."""
VERB = re.compile(r"[A-Z][a-z-]+$")
NO_VERBS = frozenset(
    """
    A An The This That These Those It Its He She They We You I What Where When Why How Who Whoever Whatever Each Every
    All Any Some No Not Nothing Nobody Both One Two Three Four Five In On At Of For From With Without By To Into After
    Before While If As And Or But So More Less Most Many Few New Old Now Then There Here Also Only
    """.split()  # noqa: SIM905 - a list of words is read more easily so
)
"""Words that no imperative begins with, and that subjects began with."""
ENDINGS = re.compile(r"(?<!e)ed$|ing$|[^sui]s$")
"""Endings of words that tell what is or was done: `Added`, `Adding`, `Adds`, `Tests`."""
IMPERATIVES = frozenset(("Bring", "Embed", "Shed", "String", "Ring", "Swing", "Bed", "Wed"))
"""Imperatives with such an ending."""


class Commit(NamedTuple):
    """A commit, as far as it is judged."""

    name: str
    message: str
    lines: int
    """Lines that it adds and removes, moves aside."""


def problems(commit: Commit) -> Iterator[str]:
    """Yield what is wrong with a commit's message, in few words each."""
    subject, _, rest = commit.message.strip().partition("\n")
    first = subject.partition(" ")[0]
    if len(subject) > MOST_CHARACTERS:
        yield f"the subject has {len(subject)} characters, more than {MOST_CHARACTERS}"
    if subject.endswith("."):
        yield "the subject ends with a full stop"
    if VERB.match(first) is None or first in NO_VERBS or (ENDINGS.search(first) and first not in IMPERATIVES):
        yield f"the subject begins with `{first}`: begin with a verb in the imperative, such as Add, Fix or Refuse"
    if " " not in subject:
        yield "the subject is one word: say what the commit changes"
    if rest.strip() and not rest.startswith("\n"):
        yield "there is no empty line between the subject and the body"
    if commit.lines > TRIVIAL_LINES and not rest.strip():
        yield f"it changes {commit.lines} lines, more than {TRIVIAL_LINES}, and has no body that says why"


def commits() -> Iterator[Commit]:
    """Yield the commits since the rule began; the last one alone where Git has no earlier ones."""
    git = _git("rev-parse", "--verify", "--quiet", f"{SINCE}^{{commit}}", check=False)
    chosen = [f"{SINCE}..HEAD"] if git else ["--max-count=1", "HEAD"]
    for name in _git("rev-list", "--no-merges", *chosen).split():
        changed = _git("show", "--numstat", "--find-renames", "--format=", name).splitlines()
        counts = [row.split("\t")[:2] for row in changed if row]
        yield Commit(
            name[:8],
            _git("show", "--no-patch", "--format=%B", name),
            sum(int(count) for row in counts for count in row if count.isdigit()),
        )


def _git(*arguments: str, check: bool = True) -> str:
    return subprocess.run(("git", *arguments), capture_output=True, text=True, check=check).stdout


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--message", type=Path, metavar="FILE", help="judge the message in this file alone")
    arguments = parser.parse_args()
    judged: Iterator[Commit] = commits()
    if arguments.message is not None:
        written = "\n".join(line for line in arguments.message.read_text().splitlines() if not line.startswith("#"))
        judged = iter(() if written.startswith(("Merge ", "fixup! ", "squash! ")) else (Commit("this", written, 0),))
    count = 0
    for commit in judged:
        for problem in problems(commit):
            count += 1
            print(f"commit {commit.name}: {problem}")
    return min(count, 1)


if __name__ == "__main__":
    sys.exit(main())
