"""Runs the end-to-end tests against builds that are broken on purpose: each must fail in the file that promises it.

usage: python e2e/mutants/run.py [MUTANT...] [--whole]
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
E2E = FOLDER.parent
ROOT = E2E.parent


@dataclass(frozen=True, slots=True)
class Mutant:
    """A patch that breaks a promise."""

    name: str
    promised: str
    """File of the tests that must fail."""

    @classmethod
    def read(cls, patch: Path) -> "Mutant":
        """A mutant from its patch, whose text before the diff says where its promise is tested."""
        found = re.search(r"^Promised by: (\S+)$", patch.read_text(), re.MULTILINE)
        if found is None or not (E2E / found[1]).is_file():
            raise ValueError(f"{patch}: no line 'Promised by: FILE' that names a file of {E2E}")
        return cls(patch.stem, found[1])


@contextmanager
def broken(mutant: Mutant) -> Iterator[Path]:
    """A source tree with the patch on it."""
    with tempfile.TemporaryDirectory(prefix="promptgroup-mutant-") as folder:
        tree = Path(folder, "tree")
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", tree, "HEAD"], cwd=ROOT, check=True)
        try:
            subprocess.run(["git", "apply", FOLDER / f"{mutant.name}.patch"], cwd=tree, check=True)
            yield tree
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=ROOT, check=True)


def test(mutant: Mutant, *, whole: bool) -> list[str]:
    """Tests that failed."""
    with broken(mutant) as tree:
        chosen = [E2E] if whole else ["-x", E2E / mutant.promised]
        command = [sys.executable, "-m", "pytest", "-q", *chosen]
        environment = {**os.environ, "E2E_SOURCE": str(tree), "E2E_KEEP": "1"}
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    sys.stdout.write(done.stdout)
    # errors of fixtures are none of the tests': a build that does not even install proves nothing
    if done.returncode not in (0, 1) or re.search(r"^ERROR ", done.stdout, re.MULTILINE):
        raise SystemExit(f"{mutant.name}: the tests could not be run")
    return re.findall(r"^FAILED e2e/(\S+)", done.stdout, re.MULTILINE)


def main() -> int:
    """Entry point: 0 when every mutant was caught by the file that promises what it breaks."""
    known = {patch.stem: Mutant.read(patch) for patch in sorted(FOLDER.glob("*.patch"))}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mutants", nargs="*", choices=[*known, []], metavar="MUTANT", help=", ".join(known))
    parser.add_argument("--whole", action="store_true", help="all files, not only the one that promises it")
    arguments = parser.parse_args()
    rows, survivors = [], 0
    for name in arguments.mutants or known:
        began = time.monotonic()
        failed = test(known[name], whole=arguments.whole)
        caught = any(each.startswith(known[name].promised) for each in failed)
        survivors += not caught
        verdict = ", ".join(failed) or "SURVIVED"
        rows.append(f"{name:16} {known[name].promised:28} {time.monotonic() - began:4.0f} s  {verdict}")
    sys.stdout.write("\n".join(["", f"{'mutant':16} {'promised by':28} {'took':6}  failed", *rows, ""]))
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
