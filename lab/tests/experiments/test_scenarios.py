from dataclasses import replace

import pytest

from promptgroup_research.experiments import scenarios
from promptgroup_research.experiments.scenarios import SCENARIOS, Outcome, Seen, gates, outcome, sheets
from promptgroup_research.policies.ours import Ours
from promptgroup_research.simulator.workloads import chat
from promptgroup_research.simulator.world import World


@pytest.fixture
def soon(monkeypatch):
    """The event after ten seconds, a minute looked at."""
    for name, value in {
        "BEFORE": 5.0,
        "EVENT": 10.0,
        "AFTER": 20.0,
        "NEXT": 4.0,
        "STOP": 2.0,
        "START": 3.0,
        "AWAY": 5.0,
    }.items():
        monkeypatch.setattr(scenarios, name, value)


def played(name):
    scenario = SCENARIOS[name]
    sessions = chat(12, 40, 3)
    world = World(Ours(), sessions, scenario.replicas)
    scenario.play(world, sessions)
    return world, sessions


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_request_ends_whatever_happens(soon, name):
    world, sessions = played(name)
    world.run(2000)
    assert len(world.turns) == sum(len(session.turns) for session in sessions)
    assert all(turn.ended > 0 for turn in world.turns)


@pytest.mark.parametrize(("name", "up"), [("join", 9), ("leave", 8), ("lost", 8), ("restart", 8), ("none", 8)])
def test_what_is_up_in_the_end(soon, name, up):
    world, _ = played(name)
    world.run(60)
    assert len(world.up) == up


def test_a_lost_replica_is_away_and_comes_back_empty(soon):
    world, _ = played("lost")
    world.run(14.9)
    assert (len(world.up), world.engines[3].cache.used) == (7, 0)
    world.run(15.1)
    assert len(world.up) == 8


def test_a_stuck_replica_is_slow_for_a_while_and_keeps_its_cache(soon):
    world, _ = played("stuck")
    held = []
    for until in (9.9, 10.1, 10.0 + scenarios.STUCK_SECONDS + 0.1):
        world.run(until)
        held.append((world.engines[3].pace(until), world.engines[3].cache.used > 0))
    assert held == [(1.0, True), (scenarios.STUCK, True), (1.0, True)]


@pytest.mark.parametrize(("name", "found"), [("join", True), ("join-cold", False)])
def test_warming_puts_every_tier_1_into_the_new_engine(soon, name, found):
    world, sessions = played(name)
    world.run(10.0)
    some = next(session for session in sessions if session.group >= 0)
    # the warm-up leaves whole blocks
    cached = world.engines[8].cache.find((some.turns[0].nodes[0], -1), (some.tier1, 100))
    assert cached == (some.tier1 // 16 * 16 if found else 0)


@pytest.mark.parametrize(("name", "running"), [("prompt-new", False), ("prompt-all", True)])
def test_a_cut_over_changes_new_sessions_and_running_ones_only_where_it_says_so(soon, name, running):
    world, _ = played(name)
    world.run(100)
    later = [turn for turn in world.turns if turn.arrived > 10 and turn.session.group >= 0]
    assert all(turn.nodes[0] < 0 for turn in later if turn.session.began > 10)
    old = [turn for turn in later if turn.session.began < 10]
    assert old
    assert all((turn.nodes[0] < 0) is running for turn in old)


def seen(when, ttft=1.0, cached=80, moved=False):
    return Seen(when, ttft, cached, 100, moved)


def test_an_outcome_compares_the_worst_bin_with_before():
    runs = [seen(when / 10) for when in range(-600, 0)]
    runs += [
        seen(when / 10, 3.0 if 100 <= when < 200 else 1.0, 50 if when < 200 else 80, moved=when < 60)
        for when in range(1200)
    ]
    found = outcome("lost", "chat", "promptgroup", runs)
    assert (found.before, found.worst) == (1.0, 3.0)
    assert found.dip == pytest.approx(0.3)
    assert found.moved == pytest.approx(0.1)
    assert found.recovery == 20


def test_limits_are_held():
    good = Outcome("join", "chat", "promptgroup", 1.0, 1.2, 0.005, 0.0, 0.0, ())
    bad = Outcome("join", "chat", "promptgroup", 1.0, 1.4, 0.02, 0.03, 0.0, ())
    free = Outcome("leave", "chat", "promptgroup", 1.0, 9.9, 0.5, 0.5, 0.0, ())
    theirs = replace(bad, policy="oracle")
    assert [gate.met for gate in gates([good, bad, free, theirs])] == [True] * 3 + [False] * 3


def test_the_oracle_stands_beside_ours():
    ours = Outcome("join", "chat", "promptgroup", 1.0, 1.5, 0.02, 0.0, 10.0, ())
    (sheet,) = sheets([ours, replace(ours, policy="oracle", worst=1.2, dip=0.01)], {"chat": "chat"})
    ((*_, worst, dip),) = sheet.rows
    assert (worst, dip) == ("1.20", "1.0%")
