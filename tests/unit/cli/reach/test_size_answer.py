from dataclasses import replace

import pytest

from promptgroup_cli.forecast.catalogue import model
from promptgroup_cli.forecast.estimate import EngineEstimate, replica
from promptgroup_cli.forecast.forecast import Workload
from promptgroup_cli.forecast.gpus import gpu
from promptgroup_cli.reach.size_answer import MOST, SizeQuestion, answer
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


def test_one_replica_cannot_be_one_less():
    small = replace(ASKED, workload=replace(ASKED.workload, rate=1, sessions=20))
    assert "one replica less" not in by_name(answer(small))


def test_what_fewer_would_not_keep_is_named():
    assert answer(ASKED).bound is Limit.UTILISATION
    idle = replace(ASKED, workload=replace(ASKED.workload, rate=1))
    assert answer(idle).bound is Limit.WORKING_SET


def test_a_target_that_no_number_keeps_is_answered_for_what_bears_the_load():
    found = answer(replace(ASKED, target=0.001))
    assert found.replicas is None
    assert found.bound is Limit.FIRST_TOKEN
    assert found.expected.replicas == answer(ASKED).replicas
    assert found.cases[0].needed is None
    assert found.offload is None


def test_a_load_that_no_number_bears_is_answered_for_the_most():
    found = answer(replace(ASKED, workload=replace(ASKED.workload, rate=1e5, sessions=2e6)))
    assert found.replicas is None
    assert found.expected.replicas == MOST


def test_a_pool_is_judged_by_the_replicas_that_it_saves():
    idle = answer(replace(ASKED, workload=replace(ASKED.workload, rate=1, history=12_000)))
    assert idle.offload.pays is True
    assert f"1 instead of {idle.replicas} replicas" in idle.offload.message


def test_a_window_shrinks_the_working_set():
    engine = EngineEstimate(model("openai/gpt-oss-20b"), gpu("H100-80GB"))
    windowed = answer(replace(ASKED, engine=engine, replica=replica(engine)))
    assert windowed.working_set.sessions < 0.6 * answer(ASKED).working_set.sessions
