import pytest

from promptgroup_research.experiments.catalogue import JUDGING, POLICIES, TUNING, WORKLOADS, workload
from promptgroup_research.experiments.runs import Job, at_rate, cells, spread


def test_results_come_in_the_order_of_jobs_however_many_processes():
    told = []
    assert spread(abs, [-3, 2, -1], 1, told.append) == [3, 2, 1]
    assert spread(abs, [-3, 2, -1], 2, told.append) == [3, 2, 1]
    assert told == [1, 2, 3, 1, 2, 3]


def test_a_job_says_the_same_each_time():
    job = Job("agents", "promptgroup", 0.5, 1, quick=True)
    first = at_rate(job, 4.0)
    assert first.requests > 100
    assert at_rate(job, 4.0) == first


def test_cells_are_means_over_seeds():
    jobs = [Job("chat", "oracle", 0.75, seed) for seed in (1, 2)] + [Job("chat", "gie", 0.75, 1)]
    some = [at_rate(Job("agents", "oracle", 0.5, seed, quick=True), 2.0) for seed in (1, 2)]
    found = cells(jobs, [*some, some[0]])
    assert [(cell.policy, cell.figures.mean) for cell in found] == [
        ("oracle", pytest.approx((some[0].mean + some[1].mean) / 2)),
        ("gie", some[0].mean),
    ]


def test_every_policy_can_be_made_and_every_workload_written():
    for make in POLICIES.values():
        assert make(1).name
    for name in WORKLOADS:
        kind = workload(name)
        assert kind.write(1.0, 30.0, 1)
        assert kind.length(2.0, quick=True) < kind.length(2.0, quick=False)


def test_nothing_is_judged_on_the_seeds_it_was_tuned_on():
    assert not set(TUNING) & set(JUDGING)
