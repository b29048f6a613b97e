"""The features of a process, as one."""

from promptgroup_contract.table import Sleep
from promptgroup_router.decision.composition import features_of, router_state
from promptgroup_router.routing.process_points import RouterFeature
from support.tables import group, revision, table


def test_a_state_has_all_features():
    state = router_state(pass_paths=frozenset([b"/v1/x"]))
    assert isinstance(features_of(state), RouterFeature)
    assert state.pass_paths == {b"/v1/x"}


def test_gauges_of_all_features_are_in_the_page():
    state = router_state()
    state.install(table(group("a", revision(), sleep=Sleep(wake_timeout=300))), "file", 0.0)
    assert 'wake_waiting{group="chat/a"} 0' in state.exposition(1.0, 0)
