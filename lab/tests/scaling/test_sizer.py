from dataclasses import replace

from promptgroup_research.scaling.loads import scenes
from promptgroup_research.scaling.play import play
from promptgroup_research.scaling.sizer import Sizer


def test_sessions_that_outgrow_the_caches_are_followed_for_that_reason():
    course = play(replace(scenes()["thrash"], length=1200.0), Sizer, 1)
    assert course.changes[-1].wanted > 2
    assert any("WorkingSetOutgrewCache" in words for _, words in course.said)


def test_prompts_that_drift_are_told_with_their_offset_and_not_followed():
    course = play(replace(scenes()["drift"], length=1200.0), Sizer, 1)
    assert {change.wanted for change in course.changes} == {2}
    assert any("PromptDrift" in words and "byte 18 of 9000" in words for _, words in course.said)
    assert "byte" not in course.said[0][1]
