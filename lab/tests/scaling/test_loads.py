import pytest

from promptgroup_research.scaling.loads import HOUR, TURN, day, drift, scenes, thrash


def rate(sessions, begin, end):
    return sum(begin <= session.began < end for session in sessions) / (end - begin)


def test_a_day_rises_and_falls():
    sessions = day(HOUR, 1)
    night, noon = rate(sessions, 0, 300), rate(sessions, HOUR / 2 - 300, HOUR / 2 + 300)
    assert noon > 3 * night
    assert {session.turns[0].prompt > 8000 for session in sessions} == {True, False}


def test_the_same_seed_gives_the_same_day():
    assert [s.began for s in day(600, 4)] == [s.began for s in day(600, 4)] != [s.began for s in day(600, 5)]


def test_sessions_that_thrash_are_as_many_but_long():
    sessions = thrash(HOUR, 1)
    turning = TURN * HOUR
    early = [s for s in sessions if s.began < turning]
    late = [s for s in sessions if s.began >= turning]
    assert rate(late, turning, HOUR) == pytest.approx(rate(early, 0, turning), rel=0.4)
    length = [sum(s.turns[-1].prompt for s in some) / len(some) for some in (early, late)]
    assert length[1] > 3 * length[0]


def test_prompts_that_drift_share_nothing_not_even_within_a_session():
    sessions = drift(HOUR, 1)
    late = [s for s in sessions if s.began >= TURN * HOUR]
    heads = [turn.nodes[0] for session in late for turn in session.turns]
    assert len(set(heads)) == len(heads)
    assert all(turn.nodes[0] >= 0 for s in sessions if s.began < TURN * HOUR for turn in s.turns)


def test_a_quick_scene_is_a_sixth_as_long():
    whole, quick = scenes(), scenes(quick=True)
    assert quick["day"].length == whole["day"].length / 6
    assert max(s.began for s in quick["trace"].write(quick["trace"].length, 1)) < quick["trace"].length
