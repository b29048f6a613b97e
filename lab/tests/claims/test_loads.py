"""The workloads of the claims: one property of the traffic differs, and nothing else."""

import pytest

from promptgroup_research.claims import loads


def shape(sessions):
    return [(session.began, [(turn.sizes, turn.output) for turn in session.turns]) for session in sessions]


def roots(sessions):
    return {turn.nodes[0] for session in sessions for turn in session.turns}


def test_tenants_differ_in_their_prompts_node_alone():
    many = loads.conversations(5.0, 60.0, 1, prompts=4)
    assert len(roots(many)) == 4
    assert len(roots(loads.conversations(5.0, 60.0, 1))) == 1
    assert {turn.sizes[0] for session in many for turn in session.turns} == {loads.PROMPT}


def test_a_variant_for_each_request_breaks_the_history_and_no_length():
    drawn = loads.assigned_by_request(5.0, 60.0, 1, variants=2)
    assert len(roots(drawn)) == 2
    for session in drawn:
        for one in session.turns:
            for other in session.turns:
                if one.nodes[0] != other.nodes[0]:
                    assert not set(one.nodes) & set(other.nodes)
                elif one.number < other.number:
                    assert other.nodes[: len(one.nodes)] == one.nodes


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_regenerated_answer_has_the_prompt_of_the_one_before(share):
    sessions = loads.regenerated(5.0, 60.0, 1, share=share)
    turns = [turn for session in sessions for turn in session.turns]
    again = sum(
        a.nodes == b.nodes for session in sessions for a, b in zip(session.turns, session.turns[1:], strict=False)
    )
    assert [turn.number for turn in sessions[0].turns] == list(range(len(sessions[0].turns)))
    assert again / len(turns) == pytest.approx(share / (1 + share), abs=0.1)


def test_strangers_share_nothing():
    sessions = loads.with_strangers(5.0, 60.0, 1, strangers=2.0)
    alone = [session for session in sessions if session.group < 0]
    nodes = [node for session in alone for turn in session.turns for node in turn.nodes]
    others = {node for session in sessions if session.group >= 0 for turn in session.turns for node in turn.nodes}
    assert len(set(nodes)) == len(nodes) > 80
    assert not set(nodes) & others
    assert shape([session for session in sessions if session.group >= 0]) == shape(
        sorted(loads.conversations(5.0, 60.0, 1), key=lambda session: session.began)
    )


def test_a_batch_has_its_common_part_computed_before():
    first, *rest = loads.batch(10, 1000, 0.3, 50)
    assert (first.began, {session.began for session in rest}) == (0.0, {loads.BATCH_BEGINS})
    assert {turn.sizes for session in rest for turn in session.turns} == {(300, 700)}
