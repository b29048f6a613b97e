from dataclasses import replace
from datetime import timedelta

import pytest

from promptgroup_operator.sizing.transient import current_wave, settling_time, without_wave
from promptgroup_operator.world.sizing_history import Cause, GroupShape, Wave
from support.builders import NOW, ago
from support.loads import load

SHAPE = GroupShape(4, 4, "a")
BEFORE = Wave(Cause.SCALING, ago(minutes=3), 0.9)

LOOKS = {
    "nothing changed": (BEFORE, SHAPE, SHAPE, BEFORE),
    "the first look": (None, None, SHAPE, None),
    "a replica was asked for": (BEFORE, SHAPE, replace(SHAPE, wanted=5), Wave(Cause.SCALING, NOW, 0.8)),
    "a replica joined": (BEFORE, SHAPE, replace(SHAPE, serving=5), Wave(Cause.SCALING, NOW, 0.8)),
    "another prompt is wanted": (BEFORE, SHAPE, replace(SHAPE, revision="b"), Wave(Cause.RELEASE, NOW, 0.8)),
    "a release goes on": (None, None, replace(SHAPE, releasing=True), Wave(Cause.RELEASE, NOW, 0.8)),
    "a release ended": (
        Wave(Cause.RELEASE, ago(minutes=1), 0.9), replace(SHAPE, releasing=True), SHAPE, Wave(Cause.RELEASE, NOW, 0.8),
    ),
    "a replica joins after a release": (
        Wave(Cause.RELEASE, ago(minutes=1), 0.9), SHAPE, replace(SHAPE, serving=5), Wave(Cause.SCALING, NOW, 0.8),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", LOOKS)
def test_a_change_of_the_group_begins_a_wave(case):
    wave, before, shape, after = LOOKS[case]
    assert current_wave(wave, before, shape, 0.8, NOW) == after


@pytest.mark.parametrize(
    ("seen", "seconds"),
    [
        (load(16, sessions=160), 60 + 3 * 10),
        (load(1, sessions=1000), 300),
        (load(0, sessions=0), 60 + 3 * 30),
        (None, 90),
    ],
    ids=["three pauses after the window", "no longer than that", "nobody knows the pauses", "nobody knows anything"],
)
def test_it_is_over_once_the_sessions_that_moved_came_back(seen, seconds):
    assert settling_time(seen) == timedelta(seconds=seconds)


def test_what_was_found_before_is_counted_as_found():
    assert without_wave(load(hit_rate=0.6), BEFORE).engines.hit_rate == pytest.approx(0.9)
    assert without_wave(load(hit_rate=0.95), BEFORE).engines.hit_rate == pytest.approx(0.95)
    assert without_wave(load(hit_rate=0.6), replace(BEFORE, hit_rate=None)).engines.hit_rate == pytest.approx(0.6)
