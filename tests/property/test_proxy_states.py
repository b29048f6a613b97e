"""Clients and engines that are slow, stop or vanish, in every order: no byte is lost, none is hoarded, none waits.

`support.proxymachine` says what holds after each step. `make fuzz-connections STEPS=1000000` makes a million of them.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.plantedfaults import FAULTS
from support.proxymachine import run

ROOT = Path(__file__).parents[2]
SEED = 16


@pytest.mark.heavy
def test_nothing_is_lost_hoarded_or_forgotten():
    counts = run(3_000, SEED + 1)
    assert counts["answer 200"] > 1000
    assert counts["answer 502"] + counts["answer 504"] > 0


@pytest.mark.slow
def test_nothing_is_lost_hoarded_or_forgotten_in_many_steps():
    run(30_000, SEED)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault):
    command = [sys.executable, "-m", "support.plantedfaults", fault, "support.proxymachine"]
    ended = subprocess.run(
        [*command, "--steps", "40000", "--seed", str(SEED)],
        env=os.environ | {"PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 1, ended.stdout
    assert "EpisodeError" in ended.stderr, ended.stderr
