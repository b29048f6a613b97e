import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("package", "program"),
    [
        ("promptgroup_cli", "promptgroup"),
        ("promptgroup_operator", "promptgroup-operator"),
        ("promptgroup_router", "promptgroup-router"),
        ("promptgroup_picker", "promptgroup-picker"),
    ],
)
def test_each_program_tells_the_version_of_the_distribution(package, program):
    done = subprocess.run([sys.executable, "-m", package, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"{program} {VERSION}\n"
