import json
import math
from dataclasses import replace

from promptgroup_cli.forecast import measured
from promptgroup_cli.forecast.measured import ReplicaFigures, TierFigures
from promptgroup_cli.render import probe_output

TIER = TierFigures(400_000.0, 0.02, 0.05, 163.3, (380_000.0, 410_000.0))
FOUND = ReplicaFigures(8000.0, 0.0123, 0.03, 320_000, (7900.0, 8100.0), TIER)
NEVER = TierFigures(4.0, 0.02, 0.05, math.inf, (3.9, 4.1))


def test_people_read_it():
    text = " ".join(probe_output.table(FOUND, 2).split())
    assert "8,000 tokens/s (7,900 to 8,100), after 12.3 ms of each request" in text
    assert "400,000 tokens/s (380,000 to 410,000), 20.0 ms before" in text
    assert "a copy pays from 163 tokens on" in text
    assert "rely" not in text
    assert "within 5% of the line" in text
    assert "2 requests were running" in text
    never = replace(FOUND, error=0.5, kv_tokens=0, tier=NEVER)
    said = " ".join(probe_output.table(never, 0).split())
    assert "a copy never pays" in said
    assert "not told by the engine" in said
    assert "do not rely on it" in said
    assert "running" not in said


def test_size_reads_it():
    found = measured.read(json.loads(probe_output.document(FOUND, 0)))
    assert (found.rate, found.kv_tokens, found.tier.rate, found.tier.latency) == (8000, 320_000, 400_000, 0.02)
    assert (found.error, found.between) == (FOUND.error, FOUND.between)
    assert (found.tier.error, found.tier.between) == (TIER.error, TIER.between)
    never = replace(FOUND, tier=NEVER)
    assert math.isinf(measured.read(json.loads(probe_output.document(never, 0))).tier.break_even)


def test_a_rate_that_other_lengths_do_not_bound_is_not_to_be_relied_on():
    unsure = replace(FOUND, tier=replace(TIER, between=(50_000.0, math.inf)))
    text = " ".join(probe_output.table(unsure, 0).split())
    assert "400,000 tokens/s (at least 50,000)" in text
    assert "do not rely on it" in text
    assert json.loads(probe_output.document(unsure, 0))["tier"]["between"] == [50_000.0, None]
    wide = probe_output.table(replace(FOUND, between=(6000.0, 9100.0)), 0)
    assert "do not rely on it" in " ".join(wide.split())
