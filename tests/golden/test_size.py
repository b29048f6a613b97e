"""Every `console` block of docs/how-to/size.md is what the command prints. GOLDEN_UPDATE=1 rewrites the page."""

import os
import re
import shlex
from pathlib import Path

import pytest

from promptgroup_cli.__main__ import main

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "size.md"
BLOCK = re.compile(r"```console\n\$ (?P<command>[^\n]+)\n(?P<output>.*?)```", re.DOTALL)


@pytest.fixture
def printed(monkeypatch, capsys):
    def run(command):
        monkeypatch.setattr("sys.argv", shlex.split(command))
        assert main() == 0
        return capsys.readouterr().out

    return run


def test_the_page_shows_what_the_command_prints(printed):
    page = PAGE.read_text()
    assert BLOCK.search(page)
    fresh = BLOCK.sub(lambda block: f"```console\n$ {block['command']}\n{printed(block['command'])}```", page)
    if os.environ.get("GOLDEN_UPDATE"):
        PAGE.write_text(fresh)
    assert page == fresh
