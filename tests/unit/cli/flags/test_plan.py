import argparse

import pytest

from promptgroup_cli.flags import plan


def parsed(*words):
    parser = argparse.ArgumentParser()
    plan.add(parser)
    return parser.parse_args(words)


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "a day", "86401", "²"])
def test_a_start_of_no_length_is_refused(value, capsys):
    with pytest.raises(SystemExit):
        parsed("group.yaml", f"--warm-seconds={value}")
    assert "is not a whole number from 1 to 86400" in capsys.readouterr().err


def test_no_revision_is_there_and_the_analysis_passes_unless_it_is_said():
    found = parsed("group.yaml")
    assert (found.old, found.judge, found.warm_seconds, found.namespace) == (None, "pass", 60, "default")
