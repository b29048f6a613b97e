"""The workflows of .github/ are what GitHub understands, by actionlint."""

import subprocess

import pytest

from promptgroup_local import lab
from support.install import tool

pytestmark = pytest.mark.integration


def test_actionlint_finds_nothing_to_say_of_the_workflows() -> None:
    command = [tool("actionlint"), "-no-color", "-shellcheck=", "-pyflakes="]
    done = subprocess.run(command, cwd=lab.ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
