from dataclasses import replace

import pytest

from promptgroup_cli.commands.size.answer import MOST, PREFILL, TIER, MeasuredFigure, SizeQuestion, answer
from promptgroup_cli.forecast.catalogue import model
from promptgroup_cli.forecast.estimate import EngineEstimate, replica
from promptgroup_cli.forecast.forecast import Workload
from promptgroup_cli.forecast.gpus import gpu
from promptgroup_cli.forecast.reuse import ReuseCurve
from promptgroup_cli.forecast.tiers import parse
from promptgroup_operator.sizing.limits import Limit

ENGINE = EngineEstimate(model("meta-llama/Llama-3.1-8B"), gpu("H100-80GB"))
ASKED = SizeQuestion(
    name="meta-llama/Llama-3.1-8B",
    engine=ENGINE,
    replica=replica(ENGINE),
    workload=Workload(rate=100, sessions=2000, prefix=3000, history=1200, turn=100, answer=200),
    target=0.3,
    reported=None,
    assumed=(),
)


def by_name(found):
    return {case.what: case for case in found.cases}


def test_the_first_case_is_what_was_asked():
    found = answer(ASKED)
    assert found.replicas == found.cases[0].needed == found.expected.replicas
    assert found.cases[0].expected == found.expected


def test_cases_show_the_given_replicas_and_name_what_would_be_needed():
    found = answer(ASKED)
    cases, given = by_name(found), found.expected.replicas
    assert cases["one replica less"].expected.replicas == given - 1
    assert cases["one replica more"].expected.replicas == given + 1
    assert cases["half the sessions and rate"].needed == pytest.approx(given / 2, abs=1)
    assert cases["twice the sessions and rate"].needed == pytest.approx(given * 2, abs=1)
    for what in ("twice the prompt", "twice the history"):
        assert cases[what].expected.replicas == given
        assert cases[what].needed > given


def test_a_measured_prefill_rate_may_be_as_low_as_its_requests_allow():
    rate = ASKED.replica.prefill_rate
    figures = MeasuredFigure(PREFILL, rate, 0.2, (0.8 * rate, rate)), MeasuredFigure(TIER, 1e5, 0.2, (1e4, 1e5))
    found = answer(replace(ASKED, measured=figures))
    assert by_name(found)["the lowest measured prefill rate"].expected.ttft > found.expected.ttft
    assert len(found.cases) == len(answer(ASKED).cases) + 1


def test_one_replica_cannot_be_one_less():
    small = replace(ASKED, workload=replace(ASKED.workload, rate=1, sessions=20))
    assert "one replica less" not in by_name(answer(small))


def test_what_fewer_would_not_keep_is_named():
    assert answer(ASKED).bound is Limit.UTILISATION
    idle = replace(ASKED, workload=replace(ASKED.workload, rate=1))
    assert answer(idle).bound is Limit.WORKING_SET


@pytest.mark.heavy
def test_a_target_that_no_number_keeps_is_answered_for_what_bears_the_load():
    found = answer(replace(ASKED, target=0.001))
    assert found.replicas is None
    assert found.bound is Limit.FIRST_TOKEN
    assert found.expected.replicas == answer(ASKED).replicas
    assert found.cases[0].needed is None
    assert found.pool is None


def test_a_load_that_no_number_bears_is_answered_for_the_most():
    found = answer(replace(ASKED, workload=replace(ASKED.workload, rate=1e5, sessions=2e6)))
    assert found.replicas is None
    assert found.expected.replicas == MOST


IDLE = replace(ASKED, target=5.0, workload=replace(ASKED.workload, rate=1, history=12_000))


def test_a_pool_is_judged_by_the_replicas_that_it_saves():
    idle = answer(IDLE)
    assert idle.pool.pays is False
    assert "copied in 669 ms over 25 Gbit/s TCP" in idle.pool.message
    assert f"1 instead of {idle.replicas} replicas" in idle.pool.message


def test_tiers_are_answered_in_rows_of_which_each_holds_more():
    found = answer(replace(IDLE, tiers=(parse("dram=64GiB"), parse("rdma=4TiB"))))
    assert found.pool is None
    alone, host, pool = found.tiers
    assert alone.tier is None
    assert alone.needed == found.replicas > host.needed >= pool.needed
    assert alone.hit_rate == found.expected.hit_rate <= host.hit_rate <= pool.hit_rate
    assert host.copy < pool.copy
    assert 0 < host.break_even < pool.break_even


def test_a_trace_is_read_at_the_size_of_each_tier():
    kv = IDLE.replica.kv_tokens * answer(IDLE).expected.replicas
    reuse = ReuseCurve({kv: 30, kv + 1: 20, 10**9: 50}, prompt_tokens=200, requests=2)
    rows = answer(replace(IDLE, tiers=(parse("dram=64GiB"),), reuse=reuse)).tiers
    assert [row.traced for row in rows] == [0.15, 0.25]


def test_a_window_shrinks_the_working_set():
    engine = EngineEstimate(model("openai/gpt-oss-20b"), gpu("H100-80GB"))
    windowed = answer(replace(ASKED, engine=engine, replica=replica(engine)))
    assert windowed.working_set.sessions < 0.6 * answer(ASKED).working_set.sessions
