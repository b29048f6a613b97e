from dataclasses import replace

import pytest

from promptgroup_research.experiments.gates import LIMITS, QUICK, Gate, gates
from promptgroup_research.experiments.runs import Cell
from promptgroup_research.simulator.measure import Figures

BASE = Figures(
    requests=100, hit=0.8, mean=1.0, p50=1.0, p95=1.0, p99=1.0, imbalance=1, refused=0, unfinished=0, wait=0, own=0
)


def cell(policy, workload="chat", load=0.75, **figures):
    return Cell(workload, policy, load, replace(BASE, **figures))


def by_what(cells):
    return {gate.what: gate for gate in gates(cells)}


def test_ours_is_held_against_cache_aware_and_the_best_peer():
    found = by_what([cell("promptgroup", mean=0.5, p99=0.3, hit=0.82), cell("sglang"), cell("dynamo-w30", p99=0.4)])
    assert found["mean TTFT, x cache_aware"] == Gate("chat 75%", "mean TTFT, x cache_aware", 0.5, 0.65)
    assert found["p99 TTFT, x best peer (dynamo-w30)"].figure == pytest.approx(0.75)
    assert found["token hit, above cache_aware"].met
    assert all(gate.met for gate in found.values())


def test_a_gate_is_missed_just_beyond_its_limit():
    limits = LIMITS["chat", 0.75]
    found = by_what([cell("promptgroup", mean=limits.mean + 0.01, p99=0.1, hit=0.805), cell("sglang")])
    assert not found["mean TTFT, x cache_aware"].met
    assert not found["token hit, above cache_aware"].met
    assert found["p99 TTFT, x cache_aware"].met


def test_a_quick_run_has_slack_for_chance_and_no_more():
    limits = LIMITS["chat", 0.75]
    cells = [cell("promptgroup", mean=1.2 * limits.mean, p99=1.9 * limits.p99, hit=0.8), cell("sglang")]
    assert all(gate.met for gate in gates(cells, QUICK) if "best peer" not in gate.what)
    assert not any(gate.met for gate in gates(cells) if "cache_aware" in gate.what)
    worse = [cell("promptgroup", mean=1.3 * limits.mean, p99=2.1 * limits.p99, hit=0.78), cell("sglang")]
    assert not any(gate.met for gate in gates(worse, QUICK) if "cache_aware" in gate.what)


def test_peers_with_events_are_not_among_the_best():
    found = by_what([cell("promptgroup", p99=0.5), cell("sglang"), cell("dynamo-events-w30", p99=0.1)])
    assert "p99 TTFT, x best peer (sglang)" in found


def test_the_trace_is_held_against_round_robin():
    found = by_what([cell("promptgroup", "trace", hit=0.2), cell("round-robin", "trace", hit=0.1)])
    assert found["token hit, x round robin"].met


def test_several_routers_are_held_against_one_and_one_against_the_oracle():
    cells = [cell("promptgroup", p99=1.0), cell("promptgroup-2-routers", p99=1.25, hit=0.79), cell("oracle", p99=0.7)]
    found = by_what(cells)
    assert not found["p99 TTFT, promptgroup-2-routers x one"].met
    assert not found["token hit, promptgroup-2-routers below one"].met
    assert not found["p99 TTFT, x oracle"].met


def test_without_ours_there_is_nothing_to_hold():
    assert gates([cell("sglang"), cell("oracle")]) == []


def test_undeclared_prefixes_are_held_against_the_oracle_and_nobody_is_refused():
    others = [cell("oracle", "documents", hit=0.95), cell("gie", "documents", mean=0.9)]
    met = by_what([cell("promptgroup", "documents", hit=0.945, mean=0.9), *others])
    assert all(gate.met for gate in met.values())
    missed = by_what([cell("promptgroup", "documents", hit=0.93, mean=1.0, refused=1), *others])
    assert [what for what, gate in missed.items() if not gate.met] == [
        "requests refused", "token hit, below oracle", "mean TTFT, x best peer (gie)"
    ]  # fmt: skip
