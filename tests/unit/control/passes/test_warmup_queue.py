from dataclasses import replace
from datetime import timedelta

from promptgroup_contract.table import Prompt
from promptgroup_operator.api.prompt_group import EngineType
from promptgroup_operator.passes.warmup_queue import FIRST_RETRY, LAST_RETRY, WarmupQueue
from promptgroup_operator.world.snapshot import Key
from promptgroup_operator.world.warming import Warmup
from support.builders import NOW, TEXT

LARGE, SMALL = Key("chat", "large"), Key("chat", "small")


def a_job(name, *, cohort="c", proven=0):
    return Warmup(name, f"uid-{name}", name, "a:1", EngineType.VLLM, "llama", Prompt(TEXT), cohort, proven, False, NOW)


def jobs(count, **fields):
    return [a_job(f"p{number}", **fields) for number in range(count)]


def take_all(turns, now=NOW):
    taken = []
    while (turn := turns.take(now)) is not None:
        taken.append(turn)
    return taken


def names(taken):
    return [job.pod for _, job in taken]


def test_replicas_of_a_kind_warm_in_waves_that_double():
    turns, waves = WarmupQueue(100), []
    turns.want(LARGE, jobs(20), NOW)
    while taken := take_all(turns):
        waves.append(len(taken))
        for key, job in taken:
            turns.finished(key, job, NOW, warm=True)
    assert waves == [1, 2, 4, 8, 5]


def test_a_wave_begins_from_what_is_proven_already():
    turns = WarmupQueue(100)
    turns.want(LARGE, jobs(20, proven=7), NOW)
    assert len(take_all(turns)) == 8


def test_a_broken_prompt_costs_one_replica_at_a_time():
    turns = WarmupQueue(100)
    turns.want(LARGE, jobs(3), NOW)
    tried = []
    for _ in range(3):
        ((key, job),) = take_all(turns)
        tried.append(job.pod)
        turns.finished(key, job, NOW, warm=False)
    assert sorted(tried) == ["p0", "p1", "p2"]  # one broken replica keeps no other from being tried
    assert take_all(turns) == []


def test_kinds_that_warm_beside_each_other_have_waves_of_their_own():
    turns = WarmupQueue(100)
    turns.want(LARGE, [*jobs(3), a_job("other", cohort="another engine")], NOW)
    assert names(take_all(turns)) == ["p0", "other"]


def test_a_large_group_keeps_no_other_waiting():
    turns = WarmupQueue(4)
    turns.want(LARGE, jobs(50, proven=50), NOW)
    running = take_all(turns)
    assert len(running) == 2
    turns.want(SMALL, [a_job("small-0")], NOW)
    turns.finished(*running[0], NOW, warm=True)
    assert take_all(turns) == [(SMALL, a_job("small-0"))]


def test_groups_take_turns():
    turns = WarmupQueue(1)
    turns.want(LARGE, jobs(3, proven=9), NOW)
    turns.want(SMALL, [a_job("s0", proven=9), a_job("s1", proven=9)], NOW)
    order = []
    while taken := take_all(turns):
        order += names(taken)
        turns.finished(*taken[0], NOW, warm=True)
    assert order == ["p0", "s0", "p1", "s1", "p2"]


def test_what_runs_is_not_begun_again_by_the_next_pass():
    turns = WarmupQueue(100)
    turns.want(LARGE, jobs(1, proven=5), NOW)
    (turn,) = take_all(turns)
    turns.want(LARGE, jobs(1, proven=5), NOW)
    assert take_all(turns) == []
    turns.finished(*turn, NOW, warm=True)
    assert take_all(turns) == []


def test_an_attempt_that_failed_is_followed_by_one_that_waits_longer_each_time():
    turns, waits, now = WarmupQueue(1), [], NOW
    turns.want(LARGE, jobs(1), NOW)
    for _ in range(8):
        ((key, job),) = take_all(turns, now)
        turns.finished(key, job, now, warm=False)
        began = now
        while turns.take(now) is None:
            now += timedelta(seconds=1)
        waits.append(now - began)
        turns.finished(key, job, now, warm=False)
        turns.want(LARGE, jobs(1), NOW)
        now += LAST_RETRY
    assert waits[0] == FIRST_RETRY
    assert waits[-1] == LAST_RETRY
    assert waits == sorted(waits)


def test_nothing_is_kept_of_a_container_or_a_group_that_is_gone():
    turns = WarmupQueue(100)
    turns.want(LARGE, jobs(2, proven=5), NOW)
    first, second = take_all(turns)
    turns.finished(*first, NOW, warm=False)
    turns.want(LARGE, (), NOW)
    turns.finished(*second, NOW, warm=False)
    assert turns._groups == {}
    turns.want(LARGE, jobs(2, proven=5), NOW)
    first, second = take_all(turns)
    turns.finished(*first, NOW, warm=False)
    turns.want(LARGE, [a_job("p1"), a_job("new")], NOW)
    assert set(turns._groups[LARGE].failed) <= {"p1"}


def test_a_warm_up_that_ended_after_the_group_was_looked_at_is_not_begun_again():
    turns = WarmupQueue(1)
    turns.want(SMALL, [a_job("p")], NOW)
    ((key, job),) = take_all(turns)
    turns.finished(key, job, NOW + timedelta(seconds=2), warm=True)
    turns.want(SMALL, [a_job("p")], NOW + timedelta(seconds=1))
    assert take_all(turns) == []
    turns.want(SMALL, [a_job("p")], NOW + timedelta(seconds=3))  # its record was lost, or its prefix
    assert names(take_all(turns)) == ["p"]


def test_one_that_failed_is_wanted_as_before():
    turns = WarmupQueue(1)
    turns.want(SMALL, [a_job("p")], NOW)
    ((key, job),) = take_all(turns)
    turns.finished(key, job, NOW + timedelta(seconds=2), warm=False)
    turns.want(SMALL, [a_job("p")], NOW + timedelta(seconds=1))
    assert names(take_all(turns, NOW + timedelta(minutes=1))) == ["p"]


def test_a_namespace_whose_engines_hang_leaves_workers_for_all_others():
    turns = WarmupQueue(16)
    for number in range(50):
        turns.want(Key("hostile", f"g{number}"), jobs(9, proven=9), NOW)
    assert len(take_all(turns)) == 8
    turns.want(Key("sales", "support"), [a_job("a")], NOW)
    turns.want(SMALL, [a_job("b")], NOW)
    assert {key.namespace for key, _ in take_all(turns)} == {"sales", "chat"}


def test_the_guest_with_the_most_traffic_comes_first_and_idle_ones_take_turns():
    turns = WarmupQueue(1)
    for name, traffic in (("idle", 0.0), ("calm", 1.0), ("hot", 9.0), ("rare", 0.0)):
        turns.want(Key("chat", name), [replace(a_job("pool-0", cohort=name), traffic=traffic)], NOW)
    order = []
    while (turn := turns.take(NOW)) is not None:
        order.append(turn[0].name)
        turns.finished(*turn, NOW, warm=True)
    assert order == ["hot", "calm", "idle", "rare"]
