"""Rehearsals: they end, and on their way nothing stands that must not."""

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promptgroup_cli.rehearsal import simulate
from promptgroup_cli.rehearsal.simulate import UnsettledError
from promptgroup_cli.rehearsal.simulated_cluster import SimulatedCluster, SimulatedPace
from promptgroup_operator.rollout.release import RevisionPhase
from support import builders
from support.builders import NOW

PACE = SimulatedPace(timedelta(seconds=60))


def created(replicas=3, pace=PACE, **fields):
    cluster = SimulatedCluster(builders.group(replicas=replicas, **fields), builders.text(), pace, NOW)
    return cluster, list(simulate.run(cluster))


def changed(cluster, text=builders.TEXT, **fields):
    start = cluster.now
    cluster.change(builders.group(**fields), builders.text(text))
    return [((each.at - start).total_seconds(), each.world) for each in simulate.run(cluster)]


def phases(world):
    return {each["fingerprint"]: each["phase"] for each in world.group.status["revisions"]}


def test_a_group_is_warm_when_its_pods_are():
    _, moments = created()
    assert [(each.at - NOW).total_seconds() for each in moments] == [0, 60]
    assert [each.world.revisions[0].ready for each in moments] == [0, 3]


def test_nothing_happens_to_what_is_as_wanted():
    cluster, _ = created()
    (moment,) = changed(cluster, replicas=3)
    assert moment[0] == 0


@pytest.mark.heavy
def test_a_step_lasts_its_pause_to_the_second():
    cluster, _ = created()
    moments = changed(cluster, "new", replicas=3, rollout={"steps": [{"weight": 5, "pause": "7m13s"}]})
    new = builders.text("new").fingerprint
    weights = [(at, each.weight) for at, world in moments for each in world.revisions if each.fingerprint == new]
    assert weights[:3] == [(0, 0), (60, 5), (60 + 433, 34)]


@pytest.mark.heavy
def test_the_old_prompt_retires_after_its_time_to_the_second():
    cluster, _ = created(1)
    moments = changed(cluster, "new", replicas=1, rollout={"retireAfter": "1h"})
    took_over = next(
        at for at, world in moments if world.revisions[0].superseded_at or world.revisions[1].superseded_at
    )
    retires = next(at for at, world in moments if phases(world)[builders.FINGERPRINT] == RevisionPhase.RETIRING)
    assert retires - took_over == 3600


@pytest.mark.heavy
def test_a_worse_prompt_is_rolled_back():
    cluster, _ = created(pace=SimulatedPace(timedelta(seconds=60), worse=True))
    end = changed(cluster, "new", replicas=3, rollout={"steps": [{"weight": 5}]})[-1][1]
    assert phases(end)[builders.FINGERPRINT] == RevisionPhase.SERVING
    assert {each.weight for each in end.revisions} == {0, 100}


def test_one_that_waits_for_somebody_is_at_rest():
    cluster, _ = created()
    end = changed(cluster, "new", replicas=3, rollout={"autoPromote": False})[-1][1]
    (told,) = (each for each in end.group.status["conditions"] if each["type"] == "Progressing")
    assert told["reason"] == "AwaitsPromotion"


def test_one_without_an_end_is_given_up(monkeypatch):
    monkeypatch.setattr(simulate, "MOMENTS", 1)
    with pytest.raises(UnsettledError, match="after 1 moments"):
        created()
    monkeypatch.setattr(simulate, "PASSES", 1)
    with pytest.raises(UnsettledError, match="after 1 passes at once"):
        created()


SPECS = st.fixed_dictionaries(
    {
        "replicas": st.integers(0, 5),
        "engine": st.sampled_from([{"image": "a"}, {"image": "b"}]),
        "rollout": st.fixed_dictionaries(
            {
                "maxSurge": st.sampled_from([0, 1, 2, "50%"]),
                "retireAfter": st.sampled_from(["0s", "30m"]),
                "autoPromote": st.booleans(),
                "paused": st.booleans(),
                "revisionHistoryLimit": st.integers(0, 2),
                "steps": st.sampled_from([[], [{"weight": 5}], [{"weight": 10}, {"weight": 50, "pause": "1h"}]]),
            }
        ),
    }
)


@pytest.mark.slow
@given(
    st.lists(st.tuples(SPECS, st.sampled_from(["one", "two", "three"])), min_size=1, max_size=3),
    st.sampled_from([1, 60, 600]),
    st.booleans(),
)
@settings(max_examples=25, deadline=None)
def test_any_history_of_changes_comes_to_rest(history, seconds, worse):
    cluster = SimulatedCluster(
        builders.group(replicas=2), builders.text(), SimulatedPace(timedelta(seconds=seconds), worse=worse), NOW
    )
    for fields, text in [({"replicas": 2}, builders.TEXT), *history]:
        for _, world in changed(cluster, text, **fields):
            for revision in world.revisions:
                held = [pod.slot for pod in revision.pods if pod.slot is not None and not pod.deleting]
                assert len(held) == len(set(held))
                assert revision.routed <= {pod.slot for pod in revision.pods if pod.is_warm}
            assert sum(each.weight for each in world.revisions) in (0, 100)
