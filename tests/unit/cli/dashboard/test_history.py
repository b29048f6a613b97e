from dataclasses import replace
from datetime import timedelta

import pytest

from promptgroup_cli.dashboard import history
from promptgroup_cli.dashboard.history import LONGEST_SECONDS, MOST_POINTS, WINDOW_SECONDS, DashboardHistory
from promptgroup_contract.fingerprint import short
from promptgroup_operator.world.snapshot import Key
from support.dashboards import CODE_NEW, CODE_OLD, INTERVAL, SUPPORT, cluster, move, reading

CODE = Key("chat", "code")


def seen(*numbers, **fields):
    found = DashboardHistory()
    for number in numbers:
        found.add(reading(number, None, **fields))
    return found


def test_one_reading_makes_no_rate_and_two_do():
    assert seen(1).points("chat/support") == []
    (point,) = seen(1, 2).points("chat/support")
    assert 4 < point.rates.requests < 7
    assert 0.9 < point.rates.hit_rate < 1


def test_a_figure_covers_the_window_and_not_more():
    found = seen(*range(1, 60))
    old, new = reading(59 - int(WINDOW_SECONDS / INTERVAL), None), reading(59, None)
    pages = [each.routers["router-0"].page for each in (old, new)]
    expected = (pages[1].requests["chat/support"] - pages[0].requests["chat/support"]) / WINDOW_SECONDS
    assert found.points("chat/support")[-1].rates.requests == expected


def test_points_end_with_their_age_and_groups_with_their_points():
    found = seen(1, 2)
    later = reading(3, None)
    found.add(replace(later, clock=later.clock + LONGEST_SECONDS, routers={}))
    assert found.points("chat/support") == []


@pytest.mark.heavy
def test_points_have_a_limit_whatever_the_interval(monkeypatch):
    found = DashboardHistory()
    for number in range(MOST_POINTS + 20):
        found.add(replace(reading(1, None), clock=number / 100))
    assert len(found.points("chat/support")) == MOST_POINTS


def test_groups_have_a_limit(monkeypatch):
    monkeypatch.setattr(history, "MOST_GROUPS", 2)
    found = seen(1, 2)
    assert [bool(found.points(f"chat/{name}")) for name in ("code", "support", "write")] == [True, True, False]


def test_the_latest_figures_are_not_those_of_before_an_outage():
    found = seen(1, 2)
    assert found.latest("chat/support", reading(2, None).clock) is not None
    assert found.latest("chat/support", reading(3, None).clock) is None
    assert found.latest("chat/nobody", 0.0) is None


def test_moves_count_once():
    found = DashboardHistory()
    for number in (1, 2, 3):
        found.add(reading(number, None, (move("support", SUPPORT, 0, 2, 0.5), move("support", SUPPORT, 0, 2, 3.0))))
    assert [each.moved for each in found.points("chat/support")] == [1, 1]


# --- the step of a release -------------------------------------------------------------------------------------------


def step(number, objects, found):
    found.add(reading(number, objects))
    return found.since_step(CODE, reading(number, objects))


def annotated(objects, **annotations):
    (deployment,) = objects.deployments
    metadata = deployment["metadata"]
    noted = metadata["annotations"] | {
        f"promptgroup.dev/{name.replace('_', '-')}": text for name, text in annotations.items()
    }
    return replace(objects, deployments=({"metadata": metadata | {"annotations": noted}},))


def phased(objects, phase):
    groups = [
        each | {"status": each["status"] | {"revisions": [
            revision | ({"phase": phase} if revision["fingerprint"] == CODE_NEW else {})
            for revision in each["status"]["revisions"]
        ]}}
        for each in objects.groups
    ]  # fmt: skip
    return replace(objects, groups=tuple(groups))


def test_both_revisions_count_from_the_step_on_and_anew_with_the_next_one():
    found, objects = DashboardHistory(), cluster()
    since, totals = step(10, objects, found)
    assert (since, totals[short(CODE_NEW)].requests) == (reading(10, None).at, 0)
    since, totals = step(30, objects, found)
    assert since == reading(10, None).at
    assert round(totals[short(CODE_NEW)].requests, 6) == 38  # 20 looks of 1.9
    assert round(totals[short(CODE_OLD)].requests, 6) == 86
    since, totals = step(40, annotated(objects, release_step="2"), found)
    assert (since, totals[short(CODE_NEW)].requests) == (reading(40, None).at, 0)


def test_after_a_roll_back_the_figures_of_the_step_stay():
    found, objects = DashboardHistory(), cluster()
    step(10, objects, found)
    since, totals = step(30, phased(annotated(objects, release_step="", release_step_since=""), "RolledBack"), found)
    assert since == reading(10, None).at
    assert round(totals[short(CODE_NEW)].requests, 6) == 38


def test_a_router_that_comes_later_counts_from_then_on():
    found, objects = DashboardHistory(), cluster()
    step(10, objects, found)
    both = reading(30, objects)
    both = replace(
        both,
        routers={**both.routers, "router-1": reading(100, None).routers["router-0"]},
        at=both.at + timedelta(seconds=1),
    )
    found.add(both)
    _, totals = found.since_step(CODE, both)
    assert round(totals[short(CODE_NEW)].requests, 6) == 38


def test_a_group_that_releases_nothing_has_no_step():
    found, objects = DashboardHistory(), cluster()
    step(10, objects, found)
    assert step(11, phased(objects, "Retired"), found) is None
    assert found.since_step(Key("chat", "support"), reading(11, objects)) is None
