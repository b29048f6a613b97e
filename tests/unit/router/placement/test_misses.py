import pytest

from promptgroup_contract.fingerprint import Fingerprint
from promptgroup_router.apis.session_key import SessionKey
from promptgroup_router.apis.usage import Usage
from promptgroup_router.placement.misses import expect_miss, find_miss, seconds_saved
from promptgroup_router.placement.pick import Pick
from promptgroup_router.policy.costs import EngineCosts
from promptgroup_router.policy.demand import Demand
from promptgroup_router.policy.replica_load import ReplicaLoad
from promptgroup_router.policy.session_locations import Placement
from promptgroup_router.rings.ids import MemberId, PrefixKey, member_hash
from promptgroup_router.rings.index import Member
from support.changed import changed

HERE, THERE = MemberId("chat/support/0123abcdef/0"), MemberId("chat/support/0123abcdef/1")
DEMAND = Demand(SessionKey(7), PrefixKey(1), prompt=10_000, tier1=4000, history=9000, turn=5)
LAST = Placement(HERE, PrefixKey(1), 3, 8500.0, 0.0, 50.0)
"""The session's last turn, served by the same slot: 8,500 tokens are in its cache."""


def pick(demand=DEMAND, before=LAST, cached=8500.0, inherited=-1.0):
    replica = ReplicaLoad(member_hash(HERE), "c", EngineCosts(100_000, 1000), now=0.0)
    replica.inherited = inherited
    made = Pick(
        Member(HERE, "chat/support", Fingerprint("0123abcdef"), 0, "10.0.0.1:8000", "c"), replica, demand, 100.0
    )
    made.before, made.cached = before, cached
    return made


CASES = {
    "found": (pick(), 8500, None),
    "found but for a block or two": (pick(), 8100, None),
    "evicted": (pick(), 4000, ("evicted", 4500)),
    "the declared prefix as well": (pick(), 0, ("evicted", 8500)),
    "moved": (pick(before=changed(LAST, member=THERE), cached=4000.0), 4000, ("moved", 4500)),
    "the process is another one": (pick(inherited=60.0, cached=4000.0), 4000, ("replaced", 4500)),
    "a new session": (pick(before=None, cached=4000.0), 4000, None),
    "a new session, the prefix evicted": (pick(before=None, cached=4000.0), 0, ("evicted", 4000)),
    "a new session on a replica that is lent": (pick(before=None, cached=0.0), 0, ("cold", 4000)),
    "a prompt without a group": (pick(changed(DEMAND, tier1=0, history=0), None, 0.0), 0, None),
    "a request that nothing is kept of": (pick(changed(DEMAND, cached=False)), 0, None),
    "an estimate that was too long": (pick(changed(DEMAND, prompt=20_000, history=18_000)), 8500, None),
}


@pytest.mark.parametrize("case", CASES)
def test_what_repeats_and_was_not_found_has_a_cause(case):
    made, cached, expected = CASES[case]
    found = find_miss(made, Usage(10_000, cached, 100))
    assert (found and (found.cause, round(found.tokens))) == expected


def test_what_is_expected_to_be_missed_is_told_before_the_engine_answers():
    assert expect_miss(pick()) is None
    moved = expect_miss(pick(before=changed(LAST, member=THERE), cached=4000.0))
    assert (moved.cause, moved.tokens) == ("moved", 4500)
    assert expect_miss(pick(before=None, cached=0.0)).cause == "cold"
    assert expect_miss(pick(changed(DEMAND, cached=False), cached=0.0)) is None


@pytest.mark.parametrize(
    ("written", "within"),
    [(9_000, "more"), (20_000, "2"), (100_000, "2"), (101_000, "4"), (700_000, "8"), (1_500_000, "16"), (9e9, "more")],
)
def test_what_was_evicted_has_the_distance_of_what_was_written_since(written, within):
    made = pick()
    made.written = LAST.written + written
    assert find_miss(made, Usage(10_000, 4000, 100)).within == within


def test_a_distance_that_nobody_knows_is_the_last():
    unsized = pick()
    unsized.replica.costs = EngineCosts()
    unsized.written = 50_000.0
    for made in (unsized, pick(before=None, cached=4000.0), pick(before=changed(LAST, member=THERE), cached=4000.0)):
        assert find_miss(made, Usage(10_000, 0, 100)).within == "more"


def test_of_an_engine_that_does_not_tell_nothing_is_missed():
    assert find_miss(pick(), Usage(10_000, None, 100)) is None


def test_seconds_are_those_of_the_replicas_prefill():
    found = find_miss(pick(), Usage(10_000, 4000, 100))
    assert found.seconds == pytest.approx(4.5 * (1 + (4000 + 2250) / 30_000))
    assert seconds_saved(pick(), Usage(10_000, 4000, 100)) == pytest.approx(
        10 * (1 + 5000 / 30_000) - 6 * (1 + 7000 / 30_000)
    )
    assert seconds_saved(pick(), Usage(10_000, None, 100)) == 0
