"""The figures of engines that do both and of those that are split."""

import sys

import pytest

from promptgroup_research.disaggregation import __main__ as command
from promptgroup_research.disaggregation import comparison
from promptgroup_research.disaggregation.comparison import ARMS, Arm, Job, Outcome, arms_of, jobs, run, sheets
from promptgroup_research.experiments import catalogue


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    monkeypatch.setattr(catalogue, "QUICK_LENGTH", 10.0)


def arm(title):
    return next(item for item in ARMS if item.title.startswith(title))


def test_a_split_keeps_prefill_from_answers_and_computes_no_less():
    both, apart = (
        run(Job("documents", 0.3, item, 11, quick=True)) for item in (arm("both, 8,192"), Arm("a", prefillers=3))
    )
    assert (both.apart, both.copied) == (0.0, 0.0)
    assert apart.apart > 0.05
    assert apart.copied > 0.05
    assert apart.gap < both.gap
    assert apart.mean > both.mean


def test_pairs_with_larger_caches_copy_less():
    small, large = (
        run(Job("documents", 0.2, Arm("a", prefillers=3), 11, quick=True, caches=caches)) for caches in (0.5, 2.0)
    )
    assert large.copied < small.copied


def test_a_slower_link_is_a_later_first_token():
    fast, slow = (
        run(Job("documents", 0.2, Arm("a", prefillers=2, link=link), 11, quick=True))
        for link in (comparison.RDMA, comparison.TCP)
    )
    assert slow.mean > fast.mean


def test_documents_alone_are_compared_where_they_disturb_others():
    assert [item.unshared for item in arms_of("long")[len(ARMS) :]] == [3, 4, 5, 6]
    assert arms_of("chat") == ARMS
    assert len({item.title for item in arms_of("long")}) == len(arms_of("long"))


def test_a_table_has_a_row_an_arm_with_means():
    some = jobs(["documents"], [0.5], [1, 2], quick=True)
    assert len(some) == 2 * len(ARMS)
    outcomes = [Outcome(0.5, 0.1 * job.seed, 0.2, 0.03, 0.04, 0.05, 0.06, 0.0, 0.0, 0.01) for job in some]
    (sheet,) = sheets(some, outcomes)
    assert sheet.rows[0] == (
        *("both, 8,192 tokens a step", "50.0%", "150", "200", "50", "30", "40", "60", "0%", "0%", "1.0%"),
    )
    assert "2 + 6 apart" in [row[0] for row in sheet.rows]


def test_the_command_prints_a_table_for_each_workload(monkeypatch, capsys):
    monkeypatch.setattr(comparison, "ARMS", (arm("both, 2,048"), Arm("2 + {} apart", prefillers=2)))
    flags = ("--quick", "--jobs", "1", "--load", "0.1", "--workload", "documents", "agents")
    monkeypatch.setattr(sys, "argv", ["d", *flags])
    assert command.main() == 0
    assert capsys.readouterr().out.count("10% load of 8 engines") == 2
