"""Lines of the plan's table; tests/golden/plan has whole ones."""

from dataclasses import replace
from datetime import timedelta

import pytest

from promptgroup_cli.rehearsal import report
from promptgroup_cli.rehearsal.manifest import Wanted
from promptgroup_cli.rehearsal.simulated_cluster import SimulatedPace
from promptgroup_cli.rehearsal.timeline import Chapter
from support import builders

PACE = SimulatedPace(timedelta(seconds=60))
MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59, "59s"), (60, "1m00s"), (3599, "59m59s"), (3600, "1h00m00s"), (90061, "25h01m01s")],
)
def test_durations(seconds, text):
    assert report.clock(timedelta(seconds=seconds)) == text


def heading(old=None, pace=PACE, text=None, **fields):
    return list(report.heading(old, Wanted(builders.group(**fields), text or builders.text(), (), ()), pace))


def test_the_heading_says_what_is_wanted_and_assumed():
    lines = heading(replicas=None)
    assert lines[0] == "after     chat/support: 1 replica of llama"
    assert lines[1].endswith(f'bytes: "{builders.TEXT}"')
    assert lines[2:] == [
        "assumed   a replica is warm 1m00s after its creation, and a draining one is idle after 5s",
        "",
    ]


def test_bounds_instead_of_a_size():
    assert "2 to 5 replicas" in heading(replicas=None, sizing={"minReplicas": 2, "maxReplicas": 5})[0]


def test_the_judge_is_named_where_it_judges():
    steps = {"steps": [{"weight": 5}]}
    assert "no worse" in heading(rollout=steps)[-2]
    assert "new revision worse" in heading(rollout=steps, pace=replace(PACE, worse=True))[-2]


def test_a_prompt_is_shown_by_its_beginning_and_only_when_it_is_inline():
    long = builders.text("word " * 100)
    assert heading(text=long)[1].endswith('word word…"')
    for kind, name in (("secretKeyRef", "Secret"), ("configMapKeyRef", "ConfigMap")):
        line = heading(prompt={"systemFrom": {kind: {"name": "p", "key": "k"}}}, text=builders.text("hidden"))[1]
        assert line.endswith(f"(from {name} p)")
        assert "hidden" not in line


def row(*events, revisions=()):
    return list(report.row(Chapter(MINUTE, events, builders.world(revisions)), [builders.FINGERPRINT]))


def test_a_moment_without_events_has_no_row():
    assert row() == []


def test_figures_stand_beside_the_first_event():
    pods = [builders.pod("a", 0), builders.cold("b"), builders.pod("c", 1, deleting=True)]
    first, second = row("one", "two", revisions=[builders.revision(pods=pods, replicas=2)])
    assert first.split() == ["+1m00s", "one", "1/2", "100", "%", "2"]
    assert second.split() == ["two"]


def test_a_revision_without_replicas_has_a_dash():
    assert row("one")[0].split() == ["+1m00s", "one", "-", "0"]
    assert row("one", revisions=[builders.revision()])[0].split() == ["+1m00s", "one", "-", "0"]


def test_long_events_are_wrapped_and_no_name_is_broken():
    name = "support-" + "x" * 60
    lines = row(f"Deployment {name}: 3 → 4 replicas, and more to say about it than a line holds")
    assert max(map(len, lines)) <= report.WIDTH
    assert name in "".join(lines)


def test_the_end_names_what_it_waits_for():
    conditions = [
        {"type": "Degraded", "status": "False", "reason": "A", "message": "fine"},
        {"type": "Progressing", "status": "True", "reason": "Paused", "message": "set rollout.paused to false"},
    ]
    end = builders.world(of=builders.group(status={"conditions": conditions}))
    assert list(report.ending(end, 7, MINUTE))[1:] == [
        "done after 1m00s, with at most 7 pods at a time, not counting those that terminate",
        "Progressing (Paused): set rollout.paused to false",
    ]
