from dataclasses import replace

from promptgroup_contract.table import ModelAlias
from promptgroup_router.decision.composition import router_state
from promptgroup_router.features.near_miss import NearMiss
from promptgroup_router.policy.demand import Demand
from promptgroup_router.policy.sessions import SESSION_SECONDS
from promptgroup_router.routing.state import SERIES_SECONDS
from support.tables import group, revision, table


def test_installing_a_table_tells_new_conflicts_once():
    state = router_state()
    assert not state.loaded
    both = table(group("a"), group("b", created="2027"))
    assert [conflict.group for conflict in state.install(both, "file", 0.0)] == ["chat/b"]
    assert state.install(both, "file", 1.0) == ()
    assert state.loaded
    assert 'conflicts{group="chat/b"} 1' in state.exposition(1.0, 0)


def test_gauges_are_those_of_the_moment():
    state = router_state()
    state.install(table(group("a", revision(slots=2))), "file", 10.0)
    pool = state.index.names["a"].revisions[0].candidates
    pick = state.balancer.pick(pool, Demand(1, 1), 10.0)
    text = state.exposition(12.5, connections=3)
    short = pick.member.fingerprint[:8]
    assert f'inflight{{group="chat/a",revision="{short}",slot="{pick.member.slot}"}} 1' in text
    assert f'inflight{{group="chat/a",revision="{short}",slot="{1 - pick.member.slot}"}} 0' in text
    assert "table_age_seconds 2.5" in text
    assert "connections 3" in text
    assert 'table_info{version="v1",source="file"} 1' in text


def test_a_table_that_grows_says_how_many_keys_moved():
    state = router_state()
    state.install(table(group("a", revision(slots=1))), "file", 0.0)
    state.install(table(group("a", revision(slots=2))), "file", 0.0)
    assert 0.4 < state.metrics.keys_moved.values["chat/a",] < 0.6


def test_what_the_table_has_no_more_is_forgotten():
    state = router_state()
    state.install(table(group("a")), "file", 0.0)
    member = state.index.names["a"].revisions[0].candidates.ready[0]
    state.health.failed(member.id, "a", 0.0)
    state.install(table(group("b")), "file", 0.0)
    assert state.health.no_failures()


def test_health_outlives_a_slot_that_is_away_for_a_while():
    state = router_state()
    state.install(table(group("a", revision(slots=2))), "file", 0.0)
    member = state.index.names["a"].revisions[0].candidates.ready[0]
    state.health.failed(member.id, "a", 0.0)
    state.install(table(group("a", revision(slots=3))), "file", 0.0)
    assert not state.health.available(member.id, "a", 0.5)


class Waits:
    def __init__(self, revision):
        self.revision = revision


def test_sessions_and_waiting_requests_are_told_by_revision():
    state = router_state()
    state.install(table(group("a", revision(slots=2))), "file", 0.0)
    found = state.index.names["a"].revisions[0]
    pool, label = found.candidates, f'group="chat/a",revision="{found.short}"'
    assert f"revision_sessions{{{label}}} 0" in state.exposition(0.0, 0)
    demand = Demand(1, found.prefix, prompt=3400, tier1=2000, history=3150, turn=3)
    state.balancer.placed.first_token(state.balancer.pick(pool, demand, 10.0), 10.0)
    state.admission_queue.put(Waits(("chat/a", found.short)), 10.0, new=True)
    state.admission_queue.put(Waits(("-", "")), 10.0, new=True)
    gone = state.admission_queue.put(Waits(("chat/a", found.short)), 10.0, new=True)
    state.admission_queue.withdraw(gone)
    text = state.exposition(12.0, 0)
    assert f"revision_sessions{{{label}}} 1" in text
    assert f"revision_session_tokens{{{label}}} 1400" in text
    assert f"revision_waiting{{{label}}} 1" in text


def test_sessions_are_told_by_the_slot_that_served_them_last():
    state = router_state()
    state.install(table(group("a", revision(slots=2))), "file", 0.0)
    found = state.index.names["a"].revisions[0]
    pool, label = found.candidates, f'group="chat/a",revision="{found.short}"'
    demand = Demand(1, found.prefix, prompt=3400, tier1=2000, history=3150, turn=3)
    pick = state.balancer.pick(pool, demand, 10.0)
    state.balancer.placed.first_token(pick, 10.0)
    text = state.exposition(12.0, 0)
    here, there = pick.member.slot, 1 - pick.member.slot
    assert f'slot_sessions{{{label},slot="{here}"}} 1' in text
    assert f'slot_session_tokens{{{label},slot="{here}"}} 1400' in text
    assert f'slot_sessions{{{label},slot="{there}"}} 0' in text
    state.balancer.placed.end(pick, None, 13.0)
    assert f'slot_sessions{{{label},slot="{here}"}} 1' in state.exposition(13.0 + SESSION_SECONDS, 0)
    assert f'slot_sessions{{{label},slot="{here}"}} 0' in state.exposition(13.1 + SESSION_SECONDS, 0)


def test_a_process_that_takes_a_slot_over_holds_no_sessions():
    state = router_state()
    state.install(table(group("a", revision(slots=1))), "file", 0.0)
    found = state.index.names["a"].revisions[0]
    (before,) = found.revision.slots
    demand = Demand(1, found.prefix, prompt=3400, tier1=2000, history=3150, turn=3)
    state.balancer.placed.first_token(state.balancer.pick(found.candidates, demand, 10.0), 10.0)
    state.install(table(group("a", revision(slots=(replace(before, incarnation="b"),)))), "file", 11.0)
    assert f'slot_sessions{{group="chat/a",revision="{found.short}",slot="0"}} 0' in state.exposition(12.0, 0)


def test_series_of_what_left_the_table_are_told_for_an_hour_and_then_forgotten():
    state = router_state()
    for prompt in range(100):
        now = prompt * 60.0
        state.install(table(group("a", revision(str(prompt)))), "file", now)
        label = state.index.names["a"].revisions[0].short
        stratum = "chat/a", label, "first", "content", "whole"
        state.metrics.revision_requests.add(*stratum, "ok")
        state.metrics.revision_first_token.observe(*stratum, value=1.0)
    state.metrics.requests.add("-", "404")
    state.metrics.requests.add("chat/a", "200")
    text = state.exposition(now, 0)
    assert text.count("\npromptgroup_router_revision_requests_total{") == 62  # the last 3600 s of them
    assert text.count("\npromptgroup_router_revision_first_token_seconds_count{") == 62  # the last 3600 s of them
    state.install(table(group("b")), "file", now)
    text = state.exposition(now + SERIES_SECONDS + 1, 0)
    assert 'group="chat/a"' not in text
    assert 'requests_total{group="-",code="404"} 1' in text


def test_a_group_that_comes_back_counts_anew_also_beside_a_request_that_outlived_its_series():
    state = router_state()
    state.install(table(group("a")), "file", 0.0)
    label = state.index.names["a"].revisions[0].short

    def series():
        return state.metrics.of_requests("chat/a", label, turn="first", how="content", streamed=True)

    before = series()
    before.ok.add()
    state.install(table(group("b")), "file", 1.0)
    assert 'group="chat/a"' in state.exposition(2.0, 0)
    assert series() is before
    assert 'group="chat/a"' not in state.exposition(SERIES_SECONDS + 2.0, 0)
    before.ok.add()
    assert 'group="chat/a"' not in state.exposition(SERIES_SECONDS + 3.0, 0)
    state.install(table(group("a")), "file", SERIES_SECONDS + 4.0)
    series().ok.add()
    before.ok.add()
    assert state.metrics.revision_requests.values == {("chat/a", label, "first", "content", "true", "ok"): 1}


def test_where_prompts_were_left_is_told_as_long_as_the_other_series_of_a_group():
    state = router_state()
    state.install(table(group("old"), group("new", revision("x"))), "file", 0.0)
    state.features.unmatched.near_misses.add(NearMiss("chat/old", 7))
    state.features.unmatched.near_misses.add(NearMiss("chat/new", 8))
    state.install(table(group("new", revision("x"))), "file", 1.0)
    told = 'near_miss_offset_bytes{group="chat/old"} 7'
    assert told in state.exposition(SERIES_SECONDS, 0)
    assert told not in state.exposition(SERIES_SECONDS + 2.0, 0)
    state.features.unmatched.near_misses.add(NearMiss("chat/old", 7))  # by a request that began with the first table
    text = state.exposition(SERIES_SECONDS + 3.0, 0)
    assert told not in text
    assert 'near_miss_offset_bytes{group="chat/new"} 8' in text


def test_an_alias_that_something_else_has_is_told_once():
    state = router_state()
    both = table(group("a", aliases=(ModelAlias("b"),)), group("b", revision("z")))
    assert [conflict.alias for conflict in state.install(both, "file", 0.0)] == ["b"]
    assert state.install(both, "file", 1.0) == ()
    assert 'alias_conflicts{group="chat/a"} 1' in state.exposition(1.0, 0)
