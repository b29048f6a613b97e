"""What simulated engines with a shared tier find, against real ones and by hand."""

from pathlib import Path

import pytest

from promptgroup_research.simulator.recorded import Asked, Recording, Sizes

SIZES = Sizes(kv=4096, block=32, tier=100_000, chunk=256, prefix=640)
REAL = Path(__file__).parent / "real_pair.jsonl"
"""Two vLLM engines on CPU with LMCache, recorded by `tests/integration/test_real_pool.py`."""


def asked(engine, *turns):
    sizes = (640, *(size for _, size in turns))
    return Asked(engine, (0, *(node for node, _ in turns)), sizes, cached=0, copied=0)


def test_what_another_engine_computed_comes_from_the_tier_in_whole_chunks():
    found = Recording(SIZES, [asked(0, (1, 1000)), asked(1, (1, 1000), (2, 100))]).simulated()
    tokens = 1640 + 1740
    assert found.engine == pytest.approx((640 + 640) / tokens)
    assert found.tier == pytest.approx((1640 // 256 * 256 - 640) / tokens)


def test_what_an_engine_evicted_comes_from_the_tier():
    others = [asked(0, (number, 1000)) for number in range(2, 6)]
    found = Recording(SIZES, [asked(0, (1, 1000)), *others, asked(0, (1, 1000))]).simulated()
    assert found.tier > 0


def test_a_recording_is_read_as_it_was_written(tmp_path):
    made = Recording(SIZES, [Asked(1, (0, 5), (640, 70), cached=640, copied=128)])
    made.write(tmp_path / "run")
    read = Recording.read(tmp_path / "run")
    assert read == made
    assert read.seen() == pytest.approx((512 / 710, 128 / 710))


def test_simulated_engines_find_what_real_ones_found():
    recording = Recording.read(REAL)
    seen, simulated = recording.seen(), recording.simulated()
    assert seen.tier > 0.05
    assert simulated.engine == pytest.approx(seen.engine, abs=0.02)
    assert simulated.tier == pytest.approx(seen.tier, abs=0.02)
