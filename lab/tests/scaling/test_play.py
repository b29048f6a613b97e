from dataclasses import replace

import pytest

from promptgroup_research.scaling.drawing import over_time
from promptgroup_research.scaling.loads import scenes
from promptgroup_research.scaling.play import play
from promptgroup_research.scaling.scalers import Fixed, Hpa

BURST = replace(scenes()["burst"], length=600.0)


def test_a_fixed_number_is_changed_once():
    course = play(BURST, lambda _: Fixed(3), 1)
    assert [change.wanted for change in course.changes] == [2, 3]
    assert course.replica_seconds == pytest.approx(3 * 600, abs=20)
    assert course.requests > 100
    assert len(course.points) == 10


@pytest.mark.parametrize("scaler", [Hpa.on_queue, Hpa.on_kv_usage])
def test_the_lower_its_target_the_more_replicas_hpa_has(scaler):
    low, high = (0.5, 100.0) if scaler == Hpa.on_queue else (0.002, 0.9)
    many, few = (play(BURST, lambda scene, at=at: scaler(at, scene.least, scene.most), 1) for at in (low, high))
    assert many.replica_seconds > few.replica_seconds


def test_a_plot_has_a_line_a_scaler():
    courses = [play(BURST, lambda _, count=count: Fixed(count), 1) for count in (2, 3)]
    drawing = over_time("burst", courses)
    assert drawing.count("<polyline") == 1 + 3 * 2
    assert "fixed at 3" in drawing
