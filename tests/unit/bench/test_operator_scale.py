"""The gates of the operator's bench, by made-up results, and what its observer notes of a guest's route."""

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest

from bench.operator_scale.phases import PROGRESS_SECONDS, Became, Event, Progress, Result, Size, Spent
from bench.operator_scale.report import misses, table
from support.fleet import Calls, Fleet


def spent(seconds: float, operator: float, server: float, memory: float = 87.0, **verbs: int) -> Spent:
    return Spent(seconds, operator, operator / 3, server, Calls(Counter(verbs)), memory)


def event(*args: float, **verbs: int) -> Event:
    return Event(spent(*args, **verbs), Became([1.0], [1.0], [1.0]), machine=[0.1])


SMALL = Result(
    size=Size(20, 5),
    creation=event(20, 5, 12, get=160, patch=660),
    rest=spent(60, 0.5, 1),
    changes=spent(5, 0.3, 1),
    engines=150.0,
)
LARGE = replace(SMALL, size=Size(100, 5), creation=event(90, 26, 60, get=800, patch=3300), rest=spent(60, 2, 1))


def test_a_run_that_grows_with_its_groups_misses_no_gate() -> None:
    assert list(misses(SMALL, SMALL)) == list(misses(LARGE, SMALL)) == []


def test_each_kind_of_gate_is_missed_by_a_count_a_ratio_or_growth() -> None:
    asks = replace(LARGE, creation=event(90, 26, 60, get=8000, patch=3300))
    writes = replace(LARGE, rest=spent(60, 2, 1, patch=1))
    grows = replace(LARGE, rest=spent(60, 20, 1))
    forgets = replace(LARGE, restart=replace(event(30, 2, 9, patch=700), others=200))
    assert [text for result in (asks, writes, grows, forgets) for text in misses(result, SMALL)] == [
        "100 x 5: creation, a group: reads is 80.00, and at most 11 is expected",
        "100 x 5: rest: writes is 1.00, and at most 0 is expected",
        "100 x 5: rest, CPU of the operator for a group is 8.00 times that of the first size (1.4)",
        "100 x 5: API server restarted: writes of groups that lost no pod is 200.00, and at most 0 is expected",
    ]


def test_the_table_has_the_phases_of_any_size() -> None:
    rolled = replace(SMALL, size=Size(1, 20, 500), roll=event(60, 5, 12, patch=7000))
    rows = list(table([SMALL, rolled]).columns[0].cells)
    assert "rolled: warm to routed, s" in rows
    assert not any(str(row).startswith("API server restarted: replicas") for row in rows)


@pytest.fixture
def fleet(tmp_path) -> Fleet:
    return Fleet(SimpleNamespace(folder=tmp_path, plane=SimpleNamespace(ca="", server="")))


def test_a_guest_is_routed_by_its_route_and_warm_by_the_proof_in_it(fleet: Fleet) -> None:
    proof = {"pod": "pod-0", "container": "c", "reason": "PrefixCached", "since": "2026-11-28T10:00:00Z"}
    memory = {"revisions": [{"fingerprint": "f", "warm": [proof]}]}
    slots = [{"slot": 0, "state": "Ready", "pod": "pod-0"}, {"slot": 1, "state": "Absent"}]
    spec = {"guest": memory, "revisions": [{"fingerprint": "f", "slots": slots}]}
    warm = 1795860000.0
    fleet._route({"metadata": {"name": "guest-1"}, "spec": spec}, warm + 1.5)
    fleet._route({"metadata": {"name": "guest-1"}, "spec": spec}, warm + 60)
    ((key, journey),) = fleet.guests.items()
    assert key == ("guest-1", "f", "pod-0")
    assert (journey.warm, journey.routed) == (warm, warm + 1.5)
    assert not fleet.pods


def test_a_group_is_settled_once_its_newest_spec_is_observed_and_all_its_replicas_are_warm(fleet: Fleet) -> None:
    conditions = [{"type": "Ready", "status": "True"}, {"type": "Progressing", "status": "False"}]
    status = {"observedGeneration": 2, "warm": "5/5", "conditions": conditions}
    cases = {"ended": (2, status), "changed": (3, status), "cold": (2, {**status, "warm": "4/5"}), "new": (1, {})}
    seen = {}
    for name, (generation, content) in cases.items():
        fleet._group({"metadata": {"name": name, "generation": generation}, "status": content}, 0.0)
        seen[name] = fleet._settled[name]
    assert seen == {"ended": True, "changed": False, "cold": False, "new": False}


def test_a_long_phase_says_how_far_it_is(capsys):
    start = 1000.0
    progress = Progress("300 x 30, created", 9000, start)
    for second in (1, PROGRESS_SECONDS + 1, PROGRESS_SECONDS + 2, 3 * PROGRESS_SECONDS):
        progress.tell(int(1000 + second), start + second)
    assert capsys.readouterr().err.splitlines() == [
        "300 x 30, created: 1,031 of 9,000 routed after 31 s",
        "300 x 30, created: 1,090 of 9,000 routed after 90 s",
    ]
