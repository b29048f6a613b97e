import json
import math

from promptgroup_cli.forecast import measured
from promptgroup_cli.forecast.measured import ReplicaFigures, TierFigures
from promptgroup_cli.render import probe_output

TIER = TierFigures(400_000.0, 0.02, 0.05, 163.3)
FOUND = ReplicaFigures(8000.0, 0.0123, 0.03, 320_000, TIER)


def test_people_read_it():
    text = probe_output.table(FOUND, 2)
    assert "8,000 tokens/s, after 12.3 ms of each request" in text
    assert "400,000 tokens/s, 20.0 ms before the first; a copy pays from 163 tokens on" in text
    assert "within 5% of the line" in text
    assert "2 requests were running" in text
    never = ReplicaFigures(8000.0, 0.0, 0.5, 0, TierFigures(4.0, 0.02, 0.05, math.inf))
    said = probe_output.table(never, 0)
    assert "a copy never pays" in said
    assert "not told by the engine" in said
    assert "too far from it to rely" in said
    assert "running" not in said


def test_size_reads_it():
    found = measured.read(json.loads(probe_output.document(FOUND, 0)))
    assert (found.rate, found.kv_tokens, found.tier.rate, found.tier.latency) == (8000, 320_000, 400_000, 0.02)
    never = ReplicaFigures(8000.0, 0.0, 0.0, 0, TierFigures(4.0, 0.02, 0.05, math.inf))
    assert math.isinf(measured.read(json.loads(probe_output.document(never, 0))).tier.break_even)
