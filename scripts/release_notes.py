"""Print the changelog's section of a version, as the notes of its release.

python scripts/release_notes.py 1.2.3
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def section(changelog: str, version: str) -> str:
    """Return a version's section, without its heading.

    Raises:
        ValueError: the changelog has none, or nothing stands in it.
    """
    heading = rf"^## \[?{re.escape(version)}\]?(?: [^\n]*)?\n"
    search = re.search(rf"{heading}(?P<text>.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if search is None or not search["text"].strip():
        raise ValueError(f"CHANGELOG.md has no section '## {version}': rename 'Unreleased' before the tag is set")
    return search["text"].strip()


def main(arguments: list[str]) -> int:
    """Print the section, and return the exit status."""
    if len(arguments) != 1:
        sys.stderr.write("usage: release_notes.py VERSION\n")
        return 2
    version = arguments[0]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    try:
        if project != version:
            raise ValueError(f"the tag is of {version}, pyproject.toml says {project}: make them one")  # noqa: TRY301
        text = section((ROOT / "CHANGELOG.md").read_text(), version)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(f"{text}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
