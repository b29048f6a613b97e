"""What starts took is recorded once each, in the status."""

from datetime import timedelta

import pytest

from promptgroup_operator.api.starts import LATEST, StartStatus
from promptgroup_operator.base.timestamps import rfc3339
from promptgroup_operator.starts.phase import StartPhase
from promptgroup_operator.starts.start_times import expected, remembered, taken
from promptgroup_operator.world.pod_start import PodStart
from promptgroup_operator.world.snapshot import PodCondition
from support.builders import ago, cold, pod

BEGAN = ago(hours=1)


def after(seconds):
    return BEGAN + timedelta(seconds=seconds)


def started(name="p0", warm=110, **fields):
    """A replica whose start took so many seconds: 2 for a node, 3 for its sandbox, 35 for images, 60 to load."""
    values = {
        "start": PodStart(after(2), after(5), after(40)),
        "containers_ready_since": after(100),
        "warm": PodCondition("True", "PrefixCached", "", after(warm)),
    }
    return pod(name, **(values | fields))


def test_a_start_has_the_seconds_of_its_phases():
    assert taken(started()) == (after(110), dict(zip(StartPhase, (2, 3, 35, 60, 10), strict=True)))
    # older kubelets do not report the sandbox: the time counts as pulling
    older = taken(started(start=PodStart(after(2), None, after(40))))
    assert older == (after(110), dict(zip(StartPhase, (2, 0, 38, 60, 10), strict=True)))


@pytest.mark.parametrize(
    "replica",
    [
        cold(),
        started(start=PodStart(after(2), after(5), after(40), restarts=1)),
        started(start=PodStart()),
        started(containers_ready_since=after(500)),
        started(warm=2 * 86_400),
        started(warm=-100, containers_ready_since=after(-200)),
        started(created="not a time"),
        pod(
            warm=PodCondition("True", "ProceededWithoutProof", "", after(110)), start=PodStart(after(2), None, after(4))
        ),
    ],
)
def test_a_replica_whose_times_tell_no_whole_start_is_left_out(replica):
    assert taken(replica) is None


def test_each_start_is_recorded_once_and_only_the_latest_are_kept():
    first = remembered({}, [started(), cold("p1")])
    assert first == {
        "finishedAt": rfc3339(after(110)),
        "seconds": 110,
        "latestSeconds": [110],
        "phaseSeconds": {"pending": 2, "scheduled": 3, "pulling": 35, "loading": 60, "warming": 10},
    }
    StartStatus.model_validate(first)
    assert remembered(first, [started(), cold("p1")]) is first
    more = [started(f"p{n}", 110 + 10 * n) for n in range(1, 8)]
    later = remembered(first, [started(), *reversed(more)])
    assert later["latestSeconds"] == [140, 150, 160, 170, 180]
    assert len(later["latestSeconds"]) == LATEST
    assert (later["seconds"], later["phaseSeconds"]["warming"]) == (160, 80)
    assert remembered(later, [started(), *more]) is later


def test_a_start_is_added_to_those_that_were_recorded_before():
    first = remembered({}, [started(warm=110)])
    later = remembered(first, [started("p1", warm=140), started(warm=110)])
    assert (later["latestSeconds"], later["seconds"]) == ([110, 140], 125)


def test_sizing_expects_the_median_of_the_latest_starts():
    assert expected({"latestSeconds": [60, 3600, 70]}) == timedelta(seconds=70)
    assert expected({}) is None
    assert expected({"latestSeconds": "what nobody wrote"}) is None
