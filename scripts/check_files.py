"""Check files for what reviews should not be about: spaces at line ends, line ends, conflict marks, YAML that is none.

    python scripts/check_files.py [FILE ...]     without files: all that Git tracks

Prints one line for each problem, and ends with status 1 if there is any.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

LARGEST_BYTES = 1 << 20
"""A larger file belongs elsewhere: a clone has each of its versions for ever."""

BINARY = (".png", ".webp", ".svg", ".gif", ".ico", ".woff2", ".gz", ".patch")
GENERATED = ("tests/golden/", "tests/fuzz/corpus/", "charts/promptgroup/templates/", ".krew.yaml")
"""Golden files hold what programs print, the corpus what peers send; templates are no YAML until they are filled in."""

CONFLICT = re.compile(r"^(<{7} |>{7} )", re.MULTILINE)


class Tagged(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """Reads YAML with tags of its reader's own, as MkDocs' configuration has them."""


Tagged.add_multi_constructor("", lambda _loader, _tag, _node: None)


def problems(name: str, content: bytes) -> Iterator[str]:
    """Yield what is wrong with one file, in few words each."""
    if len(content) > LARGEST_BYTES and not name.endswith("uv.lock"):
        yield f"has {len(content)} bytes, more than {LARGEST_BYTES}"
    if name.endswith(BINARY) or name.startswith(GENERATED) or not content:
        return
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        yield f"is no UTF-8: {error.reason} at byte {error.start}"
        return
    if "\r" in text:
        yield "has carriage returns"
    if not text.endswith("\n") or text.endswith("\n\n"):
        yield "does not end with exactly one newline"
    if not name.endswith(".md"):
        yield from (
            f"line {number} has spaces at its end"
            for number, line in enumerate(text.splitlines(), start=1)
            if line != line.rstrip()
        )
    if CONFLICT.search(text):
        yield "has marks of a merge conflict"
    if name.endswith((".yaml", ".yml")):
        try:
            list(yaml.load_all(text, Loader=Tagged))
        except yaml.YAMLError as error:
            yield f"is no YAML: {' '.join(str(error).split())}"


def tracked() -> list[str]:
    """Return the paths that Git tracks or would track."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()


def main(names: list[str]) -> int:
    """Print the problems of the files, and return the exit status."""
    status = 0
    for name in names or tracked():
        path = Path(name)
        if not path.is_file():
            continue
        for problem in problems(path.as_posix(), path.read_bytes()):
            print(f"{name}: {problem}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
