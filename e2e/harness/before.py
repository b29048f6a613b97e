"""The source tree that is upgraded from."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.cluster import shell
from harness.images import ROOT

COMMIT = os.environ.get("E2E_UPGRADE_FROM", "HEAD~1")


@contextmanager
def source(folder: Path) -> Iterator[Path]:
    """Check the commit out into a folder, which must not exist, for the block.

    Raises:
        LookupError: this checkout has no such commit.
    """
    added = subprocess.run(
        ["git", "worktree", "add", "--detach", str(folder), COMMIT],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if added.returncode != 0:
        raise LookupError(f"no commit {COMMIT} in this checkout: {added.stderr.strip()}")
    try:
        yield folder
    finally:
        shell("git", "worktree", "remove", "--force", str(folder), cwd=ROOT)
