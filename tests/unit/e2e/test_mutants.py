import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PATCHES = sorted((ROOT / "e2e" / "mutants").glob("*.patch"))


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.stem)
def test_a_mutant_still_applies(patch):
    done = subprocess.run(["git", "apply", "--check", patch], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"draw the patch anew: {done.stderr}"


def test_there_are_mutants():
    assert len(PATCHES) >= 4
