"""Mutated heads, chunked bodies and event streams: what `tests/fuzz` promises, with few inputs and, as slow, with many.

docs/development/testing.md has the seeds and figures of the longest campaigns.
"""

import pytest

from fuzz import campaign
from fuzz.mutate import Mutator
from fuzz.targets import TARGETS

QUICK, LONG = 500, 30_000


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch, tmp_path):
    monkeypatch.setattr(campaign, "FOUND", tmp_path)


@pytest.mark.parametrize("kind", TARGETS)
def test_mutated_inputs_break_no_promise(kind):
    report = campaign.run(kind, seed=20261122, count=QUICK)
    assert report.compared > QUICK // 10  # mutations leave enough that a second reader reads


@pytest.mark.slow
@pytest.mark.parametrize("kind", TARGETS)
def test_many_mutated_inputs_break_no_promise(kind):
    campaign.run(kind, seed=15, count=LONG)


def test_an_input_follows_from_its_seed_and_number():
    one, other = Mutator("sse"), Mutator("sse")
    for number in range(50):
        assert one.make(3, number)[0] == other.make(3, number)[0]
    assert len({one.make(3, number)[0] for number in range(50)}) > 25


class Broken:
    """A parser that breaks one promise."""

    def observe(self, parts):
        return b"".join(parts)

    def compare(self, data):
        return True


class Raises(Broken):
    def observe(self, parts):
        return {b"": 0}[b"r:99999"] if b"r:99999" in (data := super().observe(parts)) else data


class Cuts(Broken):
    def observe(self, parts):
        return parts[0][:300]


class Squares(Broken):
    def observe(self, parts):
        data = super().observe(parts)
        return sum(data.find(b"\0\0\1", at) for at in range(0, len(data), 16))


class Keeps(Broken):
    def __init__(self):
        self.kept = []

    def observe(self, parts):
        self.kept.append(b"".join(parts))
        return self.kept[-1]


class Disagrees(Broken):
    def compare(self, data):
        assert b"\0" not in data, "read otherwise"
        return True


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (Raises, "KeyError"),
        (Cuts, "another result"),
        (Squares, "times the CPU time"),
        (Keeps, "blocks"),
        (Disagrees, "read otherwise"),
    ],
)
def test_a_parser_that_breaks_a_promise_is_found(broken, said, monkeypatch):
    monkeypatch.setitem(TARGETS, "heads", broken())
    with pytest.raises(AssertionError, match=said):
        campaign.run("heads", seed=1, count=4_000)
