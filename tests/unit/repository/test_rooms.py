"""Figures of the router's structure that may fall and must not grow: `python scripts/measure_rooms.py` prints them."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BOUNDS = {
    "names that the core imports from features": 0,
    "fields of Route": 10,
    "slots of Relay": 16,
    "slots of Processing": 6,
    "most methods of a class": 25,
}


@pytest.fixture(scope="module")
def rooms():
    spec = importlib.util.spec_from_file_location("measure_rooms", ROOT / "scripts" / "measure_rooms.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def measured(rooms):
    return rooms.measured()


@pytest.mark.parametrize("measure", BOUNDS)
def test_the_rooms_do_not_grow_into_each_other(measured, measure):
    assert measured[measure] <= BOUNDS[measure], "python scripts/measure_rooms.py --names says where"
