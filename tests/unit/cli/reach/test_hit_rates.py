import pytest

from promptgroup_cli.reach.hit_rates import HIT_RATE_SECONDS, share_of, status_hit_rate


@pytest.mark.parametrize(("percent", "share"), [("93%", 0.93), ("0%", 0.0), ("100%", 1.0), ("", None)])
def test_a_percentage_of_a_status_is_a_share(percent, share):
    assert share_of(percent) == share


def test_a_hit_rate_is_told_with_its_window():
    assert HIT_RATE_SECONDS == 300
    assert status_hit_rate(0.926) == "93% of the prompt tokens of the last 5 min"
    assert status_hit_rate(None) == "not known yet"
