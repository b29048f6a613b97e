import argparse

import pytest

from promptgroup_cli.flags import fingerprint


def parsed(*words):
    parser = argparse.ArgumentParser()
    fingerprint.add(parser)
    return parser.parse_args(words)


def test_the_standard_input_is_read_unless_files_are_named():
    assert (parsed().files, parsed("a", "b").files) == (["-"], ["a", "b"])


def test_a_format_that_is_none_is_refused(capsys):
    with pytest.raises(SystemExit):
        parsed("--as", "yaml")
    assert "manifest" in capsys.readouterr().err
