import pytest

from promptgroup_research.scaling.hpa import DOWN_WINDOW, Behavior, replicas


@pytest.mark.parametrize(
    ("what", "wanted", "ready", "total", "expected"),
    [
        ("twice the target doubles", 2, 2, 40, 4),
        ("a broken number is rounded up", 3, 3, 50, 5),
        ("within a tenth above nothing changes", 4, 4, 43, 4),
        ("within a tenth below nothing changes", 4, 4, 37, 4),
        ("half the target halves", 4, 4, 20, 2),
        ("on the way up, pods that start bring the mean down", 6, 3, 60, 6),
        ("on the way up, more than those that start will carry asks for more", 6, 3, 90, 9),
        ("on the way down, pods that start are left out", 6, 4, 20, 2),
        ("without a ready pod nothing is known", 3, 0, 0, 3),
    ],
)
def test_what_the_metric_asks_for(what, wanted, ready, total, expected):
    assert replicas(wanted, ready, total, 10) == expected, what


def test_nothing_goes_down_within_the_first_window():
    behavior = Behavior(1, 10)
    assert behavior.decide(0, 5, 2) == 5
    assert behavior.decide(DOWN_WINDOW - 1, 5, 2) == 5
    assert behavior.decide(DOWN_WINDOW, 5, 2) == 2


def test_the_highest_of_the_window_holds_it_up():
    behavior = Behavior(1, 10)
    behavior.decide(0, 5, 5)
    behavior.decide(290, 5, 4)
    assert behavior.decide(310, 5, 1) == 4


def test_it_doubles_or_adds_four_within_a_period():
    behavior = Behavior(1, 100)
    assert behavior.decide(0, 1, 50) == 5
    # the four of fifteen seconds ago count no more
    assert behavior.decide(5, 5, 50) == 5
    assert behavior.decide(15, 5, 50) == 10


def test_bounds_are_held():
    behavior = Behavior(2, 3)
    assert behavior.decide(0, 2, 50) == 3
    assert behavior.decide(400, 3, 0) == 2
