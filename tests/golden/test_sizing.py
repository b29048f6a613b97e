"""Decisions of sizing as YAML to be read: a load, what was before, and the number of replicas with its reason.

`sizing/base.yaml` is a group at rest; a case says only what is otherwise.

    about       what the case shows
    sizing      spec.sizing
    replicas    what the group wanted at the last look; `serving` of them are warm, all of them unless given
    engines, clients, drift     fields of the Load, merged over the base; `none` for what could not be observed
    firstToken  seconds: 95 of 100 requests had their first token by then, as many by half of it as not
    tiers       who can copy from the KV tiers: Replica or Shared; None unless given
    stale       why nothing newer is known; early: whether reading has just begun
    pool        other groups of the pool: name → {replicas, bounds, engines, clients}
    before      recommended: [number, seconds since, seconds until], oldest first; changes: [by, seconds ago];
                wave: [cause, seconds ago, hit rate before]; wanted, serving: at the last look, if otherwise;
                cache: reason that CacheEffective had
    expect      replicas, reason, says (parts of the message), cache (`status, reason`), advice (parts of its message),
                active, able, limited (`status, reason`), requeueAfter (seconds)
"""

from dataclasses import fields
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from promptgroup_operator.api.prompt_group import SizingSpec
from promptgroup_operator.sizing.diagnosis import diagnose
from promptgroup_operator.sizing.recommend import SizingInput, decide
from promptgroup_operator.world.load import ClientLoad, EngineLoad, GroupLoad, PoolMember, PromptDrift, TierReach
from promptgroup_operator.world.samples import Histogram
from promptgroup_operator.world.sizing_history import Cause, GroupShape, History, Past, Recommendation, SizeChange, Wave
from support.yamlfiles import document

FOLDER = Path(__file__).parent / "sizing"
CASES = sorted(path.stem for path in FOLDER.glob("*.yaml") if path.stem != "base")
NOW = datetime(2026, 11, 3, 12, 0, 0, tzinfo=UTC)
REVISION = "a"


@pytest.mark.parametrize("name", CASES)
def test_decision(name):
    case = read(name)
    sizing, group, history = given(case)
    verdict = decide(sizing, group, history, NOW)
    cache = diagnose(group.load, verdict.wave, case.get("before", {}).get("cache", ""))
    expected = case["expect"]
    found = {"replicas": verdict.value, "reason": verdict.reason}
    assert found == {key: expected[key] for key in found}, verdict.message
    for part in expected.get("says", []):
        assert part in verdict.message
    told = {
        "cache": f"{'Unknown' if cache.status is None else cache.status}, {cache.reason}",
        "active": verdict.active,
        "able": f"{verdict.able.status}, {verdict.able.reason}",
        "limited": f"{verdict.limited.status}, {verdict.limited.reason}",
        "requeueAfter": verdict.requeue_after.total_seconds(),
    }
    assert {key: told[key] for key in told if key in expected} == {
        key: expected[key] for key in told if key in expected
    }
    for part in expected.get("advice", []):
        assert part in cache.message


def test_there_are_cases_for_every_row_of_the_diagnosis():
    told = {read(name)["expect"].get("cache", "").partition(", ")[2] for name in CASES}
    assert {"Thrashing", "PromptDrift", "LowSharing", "ScalingWave", "Release", "Healthy", "CarriedByTier"} <= told
    assert len(CASES) >= 30


def read(name):
    return document((FOLDER / f"{name}.yaml").read_text())


def given(case):
    replicas = case.get("replicas", 4)
    load = None if case.get("load") == "none" else load_of(case, replicas)
    sizing = SizingSpec.model_validate(read("base")["sizing"] | case.get("sizing", {}))
    before = case.get("before", {})
    serving = case.get("serving", replicas)
    shape = GroupShape(before.get("wanted", replicas), before.get("serving", serving), REVISION)
    group = SizingInput(
        replicas, serving, REVISION, load, case.get("releasing", False), tuple(members(case.get("pool", {})))
    )
    return sizing, group, History(past(before), shape, wave(before.get("wave")), load and calm(load))


def calm(load):
    return load.engines.hit_rate if load.engines is not None else None


def past(before):
    return Past(
        tuple(Recommendation(value, ago(since), ago(until)) for value, since, until in before.get("recommended", [])),
        tuple(SizeChange(ago(seconds), by) for by, seconds in before.get("changes", [])),
    )


def wave(told):
    return Wave(Cause(told[0]), ago(told[1]), told[2]) if told is not None else None


def members(pool):
    for name, each in pool.items():
        low, high = each["bounds"]
        yield PoolMember(name, load_of(each, each["replicas"]), low, high, each["replicas"])


def load_of(case, replicas):
    base = read("base")
    late = case.get("firstToken", base["firstToken"])
    counts = (0.0, 0.0, 0.0) if late is None else (500.0, 450.0, 50.0)
    first = Histogram((0.0005, 0.001), counts) if late is None else Histogram((late / 2, late), counts)
    return GroupLoad(
        base["seconds"],
        block(EngineLoad, base, case, "engines", {"replicas": replicas, "first_token": first}),
        block(ClientLoad, base, case, "clients", {"first_token": first}),
        block(PromptDrift, base, case, "drift", {}),
        case.get("stale", ""),
        case.get("early", False),
        TierReach(case.get("tiers", "None")),
    )


def block(kind, base, case, name, more):
    told = case.get(name, {})
    if told == "none" or (not told and name not in base):
        return None
    known = {field.name for field in fields(kind)}
    assert told.keys() <= known, f"{name}: {told.keys() - known} is no field of {kind.__name__}"
    return kind(**(more | base.get(name, {}) | told))


def ago(seconds):
    return NOW - timedelta(seconds=seconds)
