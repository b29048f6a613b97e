from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_cli.dashboard.past import DashboardPast
from promptgroup_cli.dashboard.view import MOST_GROUPS, MOST_SLOTS, MOST_TEXT, cut, view
from promptgroup_contract.fingerprint import short
from support.dashboards import CODE_NEW, CODE_OLD, SUPPORT, WRITE, ScriptedDashboard, cluster, move, reading
from support.rawobjects import condition

LABEL = f"chat/support/{short(SUPPORT)}"


@pytest.fixture(scope="module")
def dashboard():
    return ScriptedDashboard(60)


def shown(dashboard, chosen="", **fields):
    frame = dashboard.frame()
    return view(replace(frame, **fields), chosen)


def test_each_group_has_a_line(dashboard):
    rows = shown(dashboard)["groups"]
    assert [(each["name"], each["state"], each["warm"]) for each in rows] == [
        ("write", "Warming", "2/3"),
        ("code", "Releasing", "2/4"),
        ("support", "Ready", "4/4"),
    ]
    assert rows[1]["reason"] == "A release is under way (Undecided)"
    assert all(0.5 < each["hitRate"] < 1 and each["requestsPerSecond"] > 0 for each in rows)
    assert all(len(each["trend"]) <= 40 and each["trend"][-1] == each["hitRate"] for each in rows)


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        ([condition("Ready", "False", "PodNotStarting"), condition("Degraded", "True", "PodNotStarting")], "NotReady"),
        ([condition("CacheEffective", "False", "PromptDrift")], "Note"),
        ([condition("Ready", "False", "StepPause")], "Releasing"),
        ([condition("PrefixWarm", "False", "WaitingForContainers")], "Ready"),
        ([condition("ScalingActive", "False", "NoMetrics")], "Ready"),
    ],
)
def test_the_state_of_a_group_in_one_word(dashboard, conditions, state):
    objects = cluster()
    group = next(each for each in objects.groups if each["metadata"]["name"] == "support")
    listed = {each["type"]: each for each in [*group["status"]["conditions"], *conditions]}
    group["status"]["conditions"] = list(listed.values())
    rows = shown(dashboard, reading=replace(dashboard.reading, cluster=objects))["groups"]
    row = next(each for each in rows if each["name"] == "support")
    assert row["state"] == (state if conditions[0]["type"] != "PrefixWarm" else "Warming")


def test_a_ring_has_each_slot_with_its_share_of_keys_its_warmth_and_its_load(dashboard):
    (revision,) = shown(dashboard, "chat/support")["group"]["revisions"]
    slots = revision["slots"]
    assert [(each["slot"], each["warm"], each["share"], each["sessions"]) for each in slots] == [
        (number, "warm", 0.25, 12 + 5 * number) for number in range(4)
    ]
    assert (slots[1]["kv"], slots[1]["wait"], slots[1]["pod"][:8]) == (0.22 + 0.17, 0.004, "support-")


def test_slots_that_take_no_requests_have_no_keys(dashboard):
    (revision,) = shown(dashboard, "chat/write")["group"]["revisions"]
    assert [(each["slot"], each["state"], each["warm"], each["share"]) for each in revision["slots"]] == [
        (0, "Ready", "warm", 0.5),
        (1, "Absent", "absent", 0.0),
        (2, "Ready", "warm", 0.5),
        (None, "Cold", "cold", 0.0),
    ]
    cold = revision["slots"][3]
    assert (cold["reason"], cold["inFlight"]) == ("WaitingForContainers", None)


def test_both_revisions_of_a_release_have_a_ring(dashboard):
    group = shown(dashboard, "chat/code")["group"]
    assert [(each["revision"], each["phase"], each["weight"], len(each["slots"])) for each in group["revisions"]] == [
        (short(CODE_NEW), "Canary", 30, 2),
        (short(CODE_OLD), "Serving", 70, 4),
    ]
    assert group["release"]["opinion"]["reason"] == "Undecided"
    assert shown(dashboard, "chat/support")["group"]["release"] is None


def test_moves_since_the_last_look_are_told_once_with_their_number(dashboard):
    moves = (
        move("support", SUPPORT, 0, 2, 1.0), move("support", SUPPORT, 0, 2, 0.1), move("support", SUPPORT, 1, 3, 1.9),
        move("support", SUPPORT, 1, 3, 2.5), move("write", WRITE, 0, 2, 0.5),
    )  # fmt: skip
    told = shown(dashboard, "chat/support", reading=reading(60, dashboard.cluster, moves))["group"]["moves"]
    assert told == [
        {"from": f"{LABEL}/0", "to": f"{LABEL}/2", "sessions": 2},
        {"from": f"{LABEL}/1", "to": f"{LABEL}/3", "sessions": 1},
    ]


def test_the_reason_for_the_number_of_replicas_is_the_operators(dashboard):
    sizing = shown(dashboard, "chat/support")["group"]["sizing"]
    assert (sizing["replicas"], sizing["least"], sizing["most"], sizing["reason"]) == (4, 2, 8, "LoadFits")
    assert "keep 4 replicas busy" in sizing["message"]


def test_events_come_latest_first_and_are_the_groups_own(dashboard):
    assert [each["reason"] for each in shown(dashboard, "chat/code")["group"]["events"]] == [
        "RevisionComing",
        "NotWorse",
    ]
    assert shown(dashboard, "chat/support")["group"]["events"] == []


def test_series_have_a_value_for_each_time(dashboard):
    series = shown(dashboard, "chat/support")["group"]["series"]
    assert {len(each) for each in series.values()} == {59}
    assert series["at"][-1] == "2026-11-22T14:02:00Z"


def test_prompts_without_a_group_have_their_share(dashboard):
    found = shown(dashboard)["unmatched"]
    assert [(each["hash"], each["tokens"], round(each["share"], 2)) for each in found] == [
        ("5f3a90c2b7714e08", 2210, 0.88),
        ("0b94e1d2c3f0a655", 870, 0.12),
    ]


def test_a_group_that_is_gone_gives_way_to_the_worst_one(dashboard):
    assert shown(dashboard, "chat/gone")["group"]["label"] == "chat/write"


def test_of_many_groups_the_worst_are_shown(dashboard):
    objects = cluster()
    support = next(each for each in objects.groups if each["metadata"]["name"] == "support")
    many = [
        support | {"metadata": support["metadata"] | {"name": f"a{number:04}"}} for number in range(MOST_GROUPS + 7)
    ]
    found = shown(
        dashboard, reading=replace(dashboard.reading, cluster=replace(objects, groups=[*many, *objects.groups]))
    )
    assert (len(found["groups"]), found["moreGroups"]) == (MOST_GROUPS, 10)
    assert [each["name"] for each in found["groups"][:3]] == ["write", "code", "a0000"]


def test_what_no_router_was_asked_for_is_not_zero(dashboard):
    found = shown(dashboard, "chat/support", reading=replace(dashboard.reading, clock=9e9))
    figures = ("requestsPerSecond", "hitRate", "inFlight", "waiting")
    assert all(found["group"][each] is None for each in figures)
    assert all(each["inFlight"] is None for each in found["groups"])


def test_nothing_at_all_is_shown_as_nothing():
    dashboard = ScriptedDashboard(1)
    empty = replace(dashboard.reading, cluster=None, routers={}, silent={"r": "router r does not answer"})
    found = shown(dashboard, reading=empty)
    assert (found["groups"], found["group"], found["unmatched"]) == ([], None, [])
    assert found["problems"] == ["router r does not answer"]


def test_without_a_cluster_the_routers_table_is_shown(dashboard):
    routes = {
        "chat/support": {
            "metadata": {"namespace": "chat", "name": "support"},
            "spec": {"model": "llama", "aliases": [{"name": "assistant"}], "revisions": [
                {"fingerprint": SUPPORT, "weight": 100,
                 "slots": [{"slot": 0, "state": "Ready"}, {"slot": 1, "state": "Absent"}]}
            ]},
        }
    }  # fmt: skip
    router = replace(dashboard.reading.routers["router-0"], routes=routes)
    found = shown(dashboard, reading=replace(dashboard.reading, cluster=None, routers={"router-0": router}))
    assert [(each["label"], each["state"]) for each in found["groups"]] == [("chat/support", "Unknown")]
    (revision,) = found["group"]["revisions"]
    assert [(each["warm"], each["share"]) for each in revision["slots"]] == [("warm", 1.0), ("absent", 0.0)]
    assert revision["slots"][0]["sessions"] == 12
    assert (found["group"]["model"], found["group"]["aliases"]) == ("llama", ["assistant"])
    assert found["group"]["sizing"] is None


def test_slots_have_a_limit_and_the_rest_is_counted(dashboard):
    objects = cluster()
    route = next(each for each in objects.routes if each["metadata"]["name"] == "support")
    route["spec"]["revisions"][0]["slots"] = [{"slot": number, "state": "Ready"} for number in range(MOST_SLOTS + 7)]
    found = shown(dashboard, "chat/support", reading=replace(dashboard.reading, cluster=replace(objects, pods=())))
    (revision,) = found["group"]["revisions"]
    assert (len(revision["slots"]), revision["moreSlots"]) == (MOST_SLOTS, 7)


def test_it_is_json_that_a_browser_reads(dashboard):
    told = orjson.loads(orjson.dumps(shown(dashboard, "chat/code")))
    assert told["group"]["label"] == "chat/code"


@pytest.mark.heavy
@given(
    st.recursive(
        st.text() | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_texts_are_cut_and_all_else_stays(value):
    assert cut(value) == value
    long = "x" * (MOST_TEXT + 1)
    assert cut({"a": [long]}) == {"a": [f"{long[:MOST_TEXT]}…"]}


def test_before_the_page_began_a_prometheus_is_believed(dashboard):
    first = int(dashboard.history.points("chat/support")[0].at.timestamp())
    values = {first - 60: 0.5, first - 30: 0.6, first + 30: 0.7}
    past = DashboardPast(lambda *_: values)
    past.refresh("chat/support", dashboard.reading.at, 0.0)
    series = shown(dashboard, "chat/support", past=past)["group"]["series"]
    assert (series["hitRate"][:2], {len(each) for each in series.values()}) == ([0.5, 0.6], {61})
    assert len(shown(dashboard, "chat/code", past=past)["group"]["series"]["at"]) == 59


def test_a_guest_stands_with_its_host(dashboard):
    frame = dashboard.frame()
    groups = [
        {**group, "spec": {**group["spec"], "engineFrom": {"promptGroup": "support"}}}
        if group["metadata"]["name"] == "write"
        else group
        for group in frame.reading.cluster.groups
    ]
    hosted = replace(frame.reading, cluster=replace(frame.reading.cluster, groups=groups))
    found = view(replace(frame, reading=hosted), "chat/support")
    assert {row["name"]: row["host"] for row in found["groups"] if row["host"]} == {"write": "support"}
    assert (found["group"]["host"], found["group"]["guests"]) == (None, ["write"])


def test_moves_between_ranks_are_told_by_their_slots_and_none_within_one(dashboard):
    moves = (move("support", SUPPORT, "0.0", "2.1", 1.0), move("support", SUPPORT, "0.0", "0.1", 0.5))
    told = shown(dashboard, "chat/support", reading=reading(60, dashboard.cluster, moves))["group"]["moves"]
    assert told == [{"from": f"{LABEL}/0", "to": f"{LABEL}/2", "sessions": 1}]
