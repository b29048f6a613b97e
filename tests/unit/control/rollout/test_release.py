from datetime import timedelta

import pytest

from promptgroup_operator.api.prompt_group import RolloutSpec
from promptgroup_operator.rollout.release import policy, step_at


@pytest.mark.parametrize(
    ("surge", "replicas", "expected"),
    [(1, 4, 1), (3, 4, 3), ("25%", 4, 1), ("25%", 5, 2), ("10%", 0, 1), ("100%", 3, 3), (0, 4, 0), ("0%", 4, 0)],
)
def test_the_surge_is_rounded_up(surge, replicas, expected):
    assert policy(RolloutSpec(max_surge=surge), replicas).surge == expected


@pytest.mark.parametrize(
    ("after", "deadline", "seconds"),
    [("30m", None, 7200), ("10s", None, 300), ("30m", "1m", 60), ("1m", "0s", 0)],
)
def test_sessions_have_four_times_as_long_as_a_quiet_revision_unless_it_is_said(after, deadline, seconds):
    read = policy(RolloutSpec(retire_after=after, retire_deadline=deadline), 2)
    assert read.retire_deadline == timedelta(seconds=seconds)


def test_the_take_over_follows_the_steps_where_it_may():
    steps = [{"weight": 5, "pause": "1m"}, {"weight": 25}]
    read = policy(RolloutSpec.model_validate({"steps": steps}), 2)
    assert read.weights == (5, 25, 100)
    assert read.pauses == (timedelta(minutes=1), timedelta(minutes=10))
    assert policy(RolloutSpec.model_validate({"steps": steps, "autoPromote": False}), 2).weights == (5, 25)
    assert policy(RolloutSpec(), 2).weights == (100,)
    assert policy(RolloutSpec(auto_promote=False), 2).weights == (0,)


@pytest.mark.parametrize(
    ("weights", "come_to", "expected"),
    [
        ((100,), 0, 0),
        ((100,), 100, 0),
        ((0,), 40, 0),
        ((5, 25, 100), 0, 0),
        ((5, 25, 100), 5, 0),
        ((5, 25, 100), 6, 1),
        ((5, 25, 100), 99, 1),
        ((5, 25, 100), 100, 2),
        ((5, 25), 6, 1),
        ((5, 25), 100, 1),
    ],
)
def test_a_release_is_at_the_first_step_with_the_weight_that_it_has_come_to(weights, come_to, expected):
    assert step_at(weights, come_to) == expected
