import pytest

from promptgroup_research.experiments.catalogue import OTHERS, workload
from promptgroup_research.simulator import shared_prefixes


def paths(sessions):
    return [turn.nodes for session in sessions for turn in session.turns]


@pytest.mark.parametrize("name", OTHERS)
def test_a_seed_gives_the_same_requests_at_about_the_rate_that_was_asked_for(name):
    write = workload(name).write
    assert paths(write(20, 60, 7)) == paths(write(20, 60, 7)) != paths(write(20, 60, 8))
    if name == "long":  # as many sessions as usually run are in progress at its beginning: they end after it
        return
    turns = sum(len(session.turns) for seed in range(4) for session in write(20, 240, seed))
    assert turns == pytest.approx(4 * 20 * 240, rel=0.15)


@pytest.mark.parametrize("name", OTHERS)
def test_a_node_has_one_length_and_one_path_before_it(name):
    known = {}
    for session in workload(name).write(20, 60, 7):
        turn = session.turns[0]
        for place, node in enumerate(turn.nodes):
            here = turn.nodes[:place], turn.sizes[place]
            assert known.setdefault(node, here) == here


def test_documents_in_another_order_are_another_prefix():
    shared = [nodes[:-1] for nodes in paths(shared_prefixes.retrieval(20, 60, 7))]
    assert {nodes[0] for nodes in shared} == {shared[0][0]}
    assert len(set(shared)) > len(shared) / 2


def test_a_prefix_that_drifts_away_does_not_come_back():
    last, first = {}, {}
    for session in shared_prefixes.drifting(20, 480, 7):
        node = session.turns[0].nodes[0]
        first.setdefault(node, session.began)
        last[node] = session.began
    assert max(last[node] - first[node] for node in first) < 125
