"""What `promptgroup plan` prints: plan/NAME.txt begins with the command line, its files stand beside it.

GOLDEN_UPDATE=1 rewrites what follows, here and in docs/how-to/plan.md; the difference is to be reviewed.
"""

import argparse
import os
import re
import shlex
from pathlib import Path

import pytest

from promptgroup_cli.commands import plan
from support import builders
from support.yamlfiles import documents

FOLDER = Path(__file__).parent / "plan"
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "plan.md"
COMMAND = "$ promptgroup plan "
CASES = sorted(FOLDER.glob("*.txt"))
BLOCK = re.compile(r"^```\n(" + re.escape(COMMAND) + r".*?)^```$", re.MULTILINE | re.DOTALL)


def output(line: str) -> str:
    parser = argparse.ArgumentParser()
    plan.add(parser)
    lines = plan.lines(parser.parse_args(shlex.split(line.removeprefix(COMMAND))), builders.NOW)
    return "\n".join([line, *lines, ""])


@pytest.mark.heavy
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_output_is(path, monkeypatch):
    monkeypatch.chdir(FOLDER)
    expected = path.read_text()
    found = output(expected.splitlines()[0])
    if os.environ.get("GOLDEN_UPDATE"):
        path.write_text(found)
    assert found == path.read_text(), "GOLDEN_UPDATE=1 rewrites it"
    assert max(map(len, found.splitlines())) <= 120
    assert "recovery phrase" not in found


@pytest.mark.heavy
def test_the_page_shows_what_the_command_prints(monkeypatch):
    monkeypatch.chdir(FOLDER)
    page = PAGE.read_text()
    shown = BLOCK.findall(page)
    assert len(shown) >= 4
    made = BLOCK.sub(lambda block: f"```\n{output(block[1].splitlines()[0])}```", page)
    if os.environ.get("GOLDEN_UPDATE"):
        PAGE.write_text(made)
    assert made == PAGE.read_text(), "GOLDEN_UPDATE=1 rewrites it"


@pytest.mark.parametrize(
    "path", [each for each in CASES if each.stem.startswith("objects")], ids=lambda path: path.stem
)
def test_objects_are_manifests(path):
    for made in documents(path.read_text().partition("\n")[2]):
        assert {"apiVersion", "kind", "metadata"} <= made.keys()
        assert not {"uid", "creationTimestamp", "ownerReferences"} & made["metadata"].keys()
