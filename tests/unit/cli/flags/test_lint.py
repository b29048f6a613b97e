import argparse

import pytest

from promptgroup_cli.flags import lint


def parsed(*words):
    parser = argparse.ArgumentParser()
    lint.add(parser)
    return parser.parse_args(words)


@pytest.mark.parametrize("flag", ["--block-size", "--show"])
@pytest.mark.parametrize("value", ["0", "-1", "1.5", "²", "10001"])
def test_a_number_that_is_none_is_refused(flag, value, capsys):
    with pytest.raises(SystemExit):
        parsed("prompt.txt", f"{flag}={value}")
    assert "is not a whole number from 1 to 10000" in capsys.readouterr().err


def test_warnings_fail_and_nothing_is_quoted_unless_it_is_said():
    found = parsed("prompt.txt")
    assert (found.fail_on, found.show, found.block_size) == ("warning", 0, 16)
