from promptgroup_router.policy.gossip import LoadReport, PlacementReport
from support.peers import load, placement


def test_notes_and_loads_are_values():
    assert placement(1) == PlacementReport(session=1, member=1, prefix=2, turn=1, tokens=3000, shared=2000)
    assert load(1) == LoadReport(
        member=1, in_flight=2, context=6000, pending=0.25, age=0.5, written=0, unplaced=1000, waiting=1
    )
    assert len({placement(1), placement(1), placement(2)}) == 2
