"""Which replica leaves, and what is counted of it."""

from promptgroup_operator.world.samples import SlotUse
from promptgroup_research.experiments import leaving
from promptgroup_research.experiments.leaving import COLDEST, HIGHEST, KNOWING, NOBODY, Job
from promptgroup_research.simulator.turns import Session, Turn


def turn(session, number, arrived, replica, cached):
    made = Turn(session, (1,) * (number + 1), (100,) * (number + 1), 20, number)
    made.arrived, made.first, made.replica, made.cached = arrived, arrived + 0.1, replica, cached
    session.turns.append(made)
    return made


def test_the_operators_choice_decides_who_stays():
    told = {0: SlotUse(tokens=9), 1: SlotUse(tokens=1), 2: SlotUse(tokens=5)}
    assert leaving.stay((0, 1, 2), told, 2) == {0, 2}
    assert leaving.stay((0, 1, 2), {}, 2) == {0, 1}


def test_only_the_first_turn_after_the_event_of_sessions_whose_slot_left_counts():
    left, stays = Session(1, 1, 0, 0.0), Session(2, 1, 0, 0.0)
    turns = [turn(left, 0, 5.0, 3, 0), turn(stays, 0, 6.0, 2, 0)]
    turns += [turn(left, 1, 11.0, 2, 30), turn(stays, 1, 12.0, 2, 0), turn(left, 2, 13.0, 2, 0)]
    found = leaving.loss(turns, 10.0, {3}, 10.0)
    assert (found.sessions, found.tokens) == (1, 70)
    assert {number: len(seconds) for number, seconds in found.bins.items()} == {0: 3}


def test_what_is_foreseen_is_the_tokens_of_those_who_come_back():
    back, ended = Session(1, 1, 0, 0.0), Session(2, 1, 0, 0.0)
    turns = [turn(back, 0, 5.0, 3, 0), turn(ended, 0, 6.0, 2, 0)]
    turn(back, 1, -1.0, -1, -1)
    assert leaving.foreseen(turns, [back, ended]) == {3: SlotUse(1, 120)}


def test_a_replica_that_was_just_replaced_is_the_coldest():
    jobs = [Job("agents", "replaced", choice, 1, None) for choice in (NOBODY, HIGHEST, COLDEST, KNOWING)]
    nobody, highest, coldest, knowing = map(leaving.run, jobs)
    assert (nobody.sessions, nobody.tokens) == (0, 0)
    assert coldest.tokens < 0.5 * highest.tokens
    assert knowing.tokens <= highest.tokens
    sheet = leaving.sheet("agents", jobs, [nobody, highest, coldest, knowing])
    assert [row[1] for row in sheet.rows] == [NOBODY, HIGHEST, COLDEST, KNOWING]
