import pytest

from promptgroup_research.experiments import article
from promptgroup_research.experiments.article import ROUTING, SHARED, AffinityGroups, Found, Part, jobs, run, sheets
from promptgroup_research.simulator.measure import Figures
from promptgroup_research.simulator.turns import Session, Turn
from promptgroup_research.simulator.world import World


def test_affinity_groups_keep_the_shared_prefix_on_their_own_replicas():
    policy = AffinityGroups()
    World(policy, [], 8)
    shared = [policy.place(Turn(Session(key, 0, 0, 0.0, group=0), (1,), (10,), 1, 0), 0.0) for key in range(12)]
    others = [policy.place(Turn(Session(key, 0, 0, 0.0), (1,), (10,), 1, 0), 0.0) for key in range(4)]
    assert (set(shared), set(others)) == (set(range(6)), {6, 7})


def test_every_table_has_its_runs_and_every_row_its_columns():
    parts = jobs((1, 2))
    some = Found(Figures(*[1.0] * 11), history=0.5)
    found = sheets(parts, [some] * len(parts))
    assert [len(sheet.rows) for sheet in found] == [5, 5, 7, 3, 4, 4, 5]
    assert all(len(row) == len(sheet.columns) for sheet in found for row in sheet.rows)


def test_round_robin_finds_the_shared_prompt_but_little_of_a_history(monkeypatch):
    monkeypatch.setattr(article, "LENGTH", 120.0)
    robin = run(Part(SHARED[1], "round robin", 1))
    ours = run(Part(SHARED[1], "promptgroup", 1))
    assert set(ROUTING) >= {"round robin", "promptgroup"}
    assert robin.figures.hit > 0.6
    assert robin.history < 0.3
    assert ours.history == pytest.approx(1.0, abs=0.05)
