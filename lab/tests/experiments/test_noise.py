import pytest

from promptgroup_research.experiments import noise


@pytest.mark.parametrize("workload", list(noise.SLOW_WORKLOADS))
@pytest.mark.parametrize("policy", noise.JUDGED)
def test_slow_engines_whose_pace_varies_and_whose_rate_is_wrong_keep_their_sessions(workload, policy):
    jobs = [job for job in noise.jobs((), (), (11, 12, 13)) if (job.workload, job.policy) == (workload, policy)]
    means = noise.means(jobs, [noise.run(job) for job in jobs])
    assert [gate for gate in noise.gates(means) if not gate.met] == []
    assert means[workload, policy, True].hit > 0.88


def test_a_quick_workload_is_run_with_and_without_noise():
    jobs = [
        job
        for job in noise.jobs(("prefixes",), (11,), ())
        if job.policy == "promptgroup" and job.workload == "prefixes"
    ]
    means = noise.means(jobs, [noise.run(job) for job in jobs])
    assert means["prefixes", "promptgroup", True].mean > means["prefixes", "promptgroup", False].mean + noise.LATE / 2
    assert all(gate.met for gate in noise.gates(means))
    (row,) = noise.sheet(means).rows
    assert row[0] == "prefixes: promptgroup"
