import argparse
from datetime import UTC, datetime

import pytest

from promptgroup_cli.flags import usage


def parsed(*words):
    parser = argparse.ArgumentParser()
    usage.add(parser)
    return parser.parse_args(["--prometheus", "http://p:9090", *words])


@pytest.mark.parametrize(("text", "seconds"), [("90m", 5400), ("24h", 86400), ("30d", 2592000)])
def test_a_period(text, seconds):
    assert parsed("--period", text).period == seconds


def test_the_period_is_the_last_day_unless_another_is_given():
    assert (parsed().period, parsed().end) == (86400, None)
    assert parsed("--end", "2026-11-01T00:00:00Z").end == datetime(2026, 11, 1, tzinfo=UTC)
    assert parsed("--end", "2026-11-01").end == datetime(2026, 11, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("flag", "value", "said"),
    [
        ("--period", "0h", "is no period"),
        ("--period", "400d", "at most 366d"),
        ("--period", "1h30m", "write 90m"),
        ("--end", "today", "is no time"),
        ("--group", 'a/b"} or x{', "is not a group"),
        ("--prometheus", "p:9090", "not the address of a server"),
    ],
)
def test_what_cannot_be_used_says_the_way_out(flag, value, said, capsys):
    with pytest.raises(SystemExit):
        parsed(flag, value)
    assert said in capsys.readouterr().err
