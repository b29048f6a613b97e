import argparse

import pytest

from promptgroup_cli.flags import completion


def parsed(*words):
    parser = argparse.ArgumentParser()
    completion.add(parser)
    return parser.parse_args(words)


def test_a_shell_without_a_script_is_refused(capsys):
    with pytest.raises(SystemExit):
        parsed("powershell")
    assert "zsh" in capsys.readouterr().err
