import argparse

import pytest

from promptgroup_cli.flags import top


def parsed(*words):
    parser = argparse.ArgumentParser()
    top.add(parser)
    return parser.parse_args(words)


@pytest.mark.parametrize("interval", ["0", "x", "nan", "1e9"])
def test_an_interval_that_is_none(interval, capsys):
    with pytest.raises(SystemExit):
        parsed("--interval", interval)
    assert "0.1 to 3600" in capsys.readouterr().err


def test_a_frame_takes_three_seconds_unless_another_time_is_given():
    assert (parsed().interval, parsed("--interval", "0.5").interval) == (3.0, 0.5)
