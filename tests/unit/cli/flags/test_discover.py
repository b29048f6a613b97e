import argparse

import pytest

from promptgroup_cli.flags import discover


def parsed(*words):
    parser = argparse.ArgumentParser()
    discover.add(parser)
    return parser.parse_args(words)


@pytest.mark.parametrize("limit", ["0", "x", "-1", "257"])
def test_a_number_of_prefixes_that_is_none(limit, capsys):
    with pytest.raises(SystemExit):
        parsed("--limit", limit)
    assert "a number from 1 to 256" in capsys.readouterr().err


def test_twenty_are_listed_unless_another_number_is_asked_for():
    assert (parsed().limit, parsed("--limit", "256").limit) == (20, 256)
