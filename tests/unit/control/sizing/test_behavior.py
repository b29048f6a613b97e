from datetime import timedelta

import pytest

from promptgroup_operator.api.prompt_group import Behavior
from promptgroup_operator.sizing.behavior import pace
from promptgroup_operator.world.sizing_history import LONGEST, NOTHING, Past, Recommendation, SizeChange
from support.builders import NOW, ago


def policies(way, *rules, window=0, select="Max"):
    return Behavior.model_validate(
        {
            way: {
                "stabilizationWindowSeconds": window,
                "selectPolicy": select,
                "policies": [{"type": kind, "value": value, "periodSeconds": period} for kind, value, period in rules],
            }
        }
    )


def changed(*changes):
    return Past(changes=tuple(SizeChange(ago(seconds=seconds), by) for by, seconds in changes))


def recommended(*values):
    return Past(tuple(Recommendation(value, ago(seconds=since), ago(seconds=until)) for value, since, until in values))


UP = {
    "by pods": (changed(), 4, 20, [("Pods", 3, 60)], "Max", 7),
    "by percent, rounded up": (changed(), 5, 20, [("Percent", 50, 60)], "Max", 8),
    "the one that allows most": (changed(), 4, 20, [("Pods", 3, 60), ("Percent", 200, 60)], "Max", 12),
    "the one that allows least": (changed(), 4, 20, [("Pods", 3, 60), ("Percent", 200, 60)], "Min", 7),
    "no further than asked for": (changed(), 4, 5, [("Percent", 100, 60)], "Max", 5),
    "what the period had already": (changed((3, 30)), 7, 20, [("Pods", 4, 60)], "Max", 8),
    "a percentage of what the period began with": (changed((4, 30)), 8, 20, [("Percent", 100, 60)], "Max", 8),
    "what was before the period does not count": (changed((4, 61)), 8, 20, [("Percent", 100, 60)], "Max", 16),
    "what the period took away may come back": (changed((-2, 30)), 4, 20, [("Pods", 1, 60)], "Max", 7),
    "not at all": (changed(), 4, 20, [("Pods", 3, 60)], "Disabled", 4),
}
DOWN = {
    "by pods": (changed(), 9, 1, [("Pods", 3, 60)], "Max", 6),
    "by percent, what is left rounded down": (changed(), 5, 1, [("Percent", 10, 60)], "Max", 4),
    "the one that allows most": (changed(), 20, 1, [("Pods", 1, 60), ("Percent", 10, 60)], "Max", 18),
    "the one that allows least": (changed(), 20, 1, [("Pods", 1, 60), ("Percent", 10, 60)], "Min", 19),
    "what the period had already": (changed((-1, 30)), 8, 1, [("Pods", 1, 60)], "Max", 8),
    "not at all": (changed(), 9, 1, [("Pods", 3, 60)], "Disabled", 9),
    "all of them": (changed(), 9, 0, [("Percent", 100, 15)], "Max", 0),
}


@pytest.mark.parametrize(("way", "case"), [("scaleUp", name) for name in UP] + [("scaleDown", name) for name in DOWN])
def test_policies_let_the_number_change(way, case):
    past, current, wanted, rules, select, value = (UP if way == "scaleUp" else DOWN)[case]
    paced = pace(past, current, wanted, policies(way, *rules, select=select), NOW)
    assert (paced.value, paced.limited) == (value, value != wanted)


WINDOWS = {
    "down to the greatest of the window": (recommended((6, 200, 100), (3, 90, 10)), 8, 2, 6, 200.0),
    "down when all of the window is over": (recommended((6, 600, 300)), 8, 2, 2, None),
    "not above what there is": (recommended((12, 200, 100)), 8, 2, 8, 200.0),
    "up at once": (recommended((2, 200, 0)), 4, 8, 8, None),
}


@pytest.mark.parametrize("case", WINDOWS)
def test_windows_hold_the_number(case):
    past, current, wanted, value, again = WINDOWS[case]
    behavior = policies("scaleDown", ("Pods", 100, 1), window=300)
    paced = pace(past, current, wanted, behavior, NOW)
    assert (paced.value, paced.limited) == (value, False)
    assert paced.requeue_after == (timedelta(seconds=again) if again is not None else None)


def test_a_window_for_rising_takes_the_least():
    behavior = policies("scaleUp", ("Pods", 100, 1), window=60)
    assert pace(recommended((5, 90, 30)), 4, 9, behavior, NOW).value == 5
    assert pace(recommended((2, 90, 30)), 4, 9, behavior, NOW).value == 4


def test_the_next_look_is_when_the_period_of_a_change_ends():
    paced = pace(changed((-1, 40)), 8, 1, policies("scaleDown", ("Pods", 1, 60)), NOW)
    assert (paced.value, paced.requeue_after) == (8, timedelta(seconds=20))


def test_before_the_first_look_what_there_is_counts_as_recommended():
    past = NOTHING.recommending(2, 4, NOW)
    assert past.range(timedelta(seconds=300), NOW) == (2, 4)


def test_a_number_that_stays_is_kept_once_and_what_is_old_not_at_all():
    past = NOTHING
    for look in range(1000):
        past = past.recommending(4 if look % 100 else 5, 4, NOW + look * timedelta(seconds=15)).changing(1, NOW)
    assert len(past.recommended) <= 8
    later = NOW + 1000 * timedelta(seconds=15)
    assert past.recommending(4, 4, later).changing(0, later).changes == ()
    assert all(later - each.until <= LONGEST for each in past.recommending(4, 4, later).recommended)
