import os
from dataclasses import replace

import pytest

from bench.peers.report import Run, missed, rows, table, verdicts
from bench.peers.usage import Machine, cpu_seconds, machine

RUN = Run("ours", 1, 100, {}, 0.9, 1.2, [0.1] * 99 + [1.0], 0.001, 0.2, 0.1, 0.3, 0.002)
PEER = replace(RUN, router="peer", hit=0.88, ttfts=[0.1] * 98 + [2.0, 2.0])


def test_seeds_are_put_together() -> None:
    (row,) = rows([RUN, replace(RUN, seed=2, hit=0.8, ttfts=[3.0] * 100, failed={"status 503": 2}, late=0.1)])
    assert (row.requests, row.failed, row.p99, row.late) == (200, 2, 3.0, 0.1)
    assert round(row.hit, 6) == 0.85
    assert row.p50 == 1.0


def test_the_table_has_a_line_a_router() -> None:
    assert table(rows([RUN, PEER, replace(RUN, seed=2)]), "title").row_count == 2


def test_what_holds_is_met_and_what_does_not_is_missed() -> None:
    slow = replace(RUN, ttfts=[0.1] * 98 + [1.8, 1.8], hit=0.87)
    assert [line.rpartition(": ")[2] for line in verdicts(rows([RUN, PEER]), "ours", ["peer"])] == ["met", "met"]
    assert [line.rpartition(": ")[2] for line in verdicts(rows([slow, PEER]), "ours", ["peer"])] == ["MISSED", "MISSED"]


def test_every_peer_counts_by_its_best_figure() -> None:
    quick = replace(RUN, router="quick", hit=0.1, ttfts=[0.1] * 100)
    hits, p99 = verdicts(rows([RUN, PEER, quick]), "ours", ["peer", "quick"])
    assert "(peer)" in hits
    assert "(quick)" in p99
    assert p99.endswith("MISSED")


def simulated(run, hit, mean):
    return replace(run, simulated_hit=hit, simulated_mean=mean, simulated_p99=1.0)


def test_the_simulation_is_held_to_two_points() -> None:
    near, far = simulated(RUN, 0.885, 0.1), simulated(RUN, 0.87, 0.1)
    assert verdicts(rows([near, PEER]), "ours", ["peer"])[2].endswith("met")
    assert verdicts(rows([far, PEER]), "ours", ["peer"])[2].endswith("MISSED")


def test_the_order_is_that_of_the_simulation_where_that_has_one() -> None:
    ours = simulated(RUN, 0.9, 0.1)  # measured means: 0.109 and 0.138 s
    expected = {0.2: "in 1 of 1 pairs: met", 0.11: "in 0 of 0 pairs: met", 0.05: "in 0 of 1 pairs: MISSED"}
    for mean, words in expected.items():
        assert verdicts(rows([ours, simulated(PEER, 0.88, mean)]), "ours", ["peer"])[3].endswith(words)


def test_without_a_peer_there_is_nothing_to_say() -> None:
    assert verdicts(rows([RUN]), "ours", ["peer"]) == []


def test_a_gate_lets_chance_its_part_and_no_more() -> None:
    peer, slow = replace(PEER, hit=0.92), replace(RUN, ttfts=[0.1] * 98 + [2.6, 2.6])
    assert missed(rows([RUN, peer]), "ours", ["peer"], quick=False) == []
    assert missed(rows([replace(RUN, hit=0.88), peer]), "ours", ["peer"], quick=False) == [
        "token hit 88.0% is below 89.0%"
    ]
    assert missed(rows([slow, peer]), "ours", ["peer"], quick=True) == ["p99 TTFT is 1.30 x the best peer's, above 1.2"]
    failed = replace(RUN, failed={"status 503": 2})
    assert missed(rows([failed, peer]), "ours", ["peer"], quick=True) == ["2 requests failed"]


def test_times_of_a_busy_machine_are_no_gate() -> None:
    slow = replace(RUN, ttfts=[0.1] * 98 + [2.6, 2.6])
    for busy in (replace(slow, machine=0.95), replace(slow, late=0.2)):
        assert missed(rows([busy, PEER]), "ours", ["peer"], quick=True) == []


def test_a_gate_without_a_peer_is_no_gate() -> None:
    with pytest.raises(LookupError):
        missed(rows([RUN]), "ours", ["peer"], quick=True)


def test_cpu_is_counted() -> None:
    before = cpu_seconds([os.getpid()])
    while cpu_seconds([os.getpid()]) == before:
        sum(range(100_000))
    assert Machine(150, 300).busy_since(Machine(100, 200)) == 0.5
    assert 0 < machine().busy < machine().all
