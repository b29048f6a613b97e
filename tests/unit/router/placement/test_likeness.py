"""Which requests say something of their revision: the others differ by where their session was."""

import pytest

from promptgroup_contract.fingerprint import Fingerprint
from promptgroup_router.apis.session_key import SessionKey
from promptgroup_router.placement.likeness import is_like, own_tokens, shared_tokens
from promptgroup_router.placement.pick import Pick
from promptgroup_router.policy.costs import EngineCosts
from promptgroup_router.policy.demand import Demand
from promptgroup_router.policy.replica_load import ReplicaLoad
from promptgroup_router.policy.session_locations import Placement
from promptgroup_router.rings.ids import MemberId, PrefixKey, member_hash
from promptgroup_router.rings.index import Member

pytestmark = pytest.mark.interpreted

GROUP, FULL = "chat/support", "0123abcdef"
HERE, THERE = MemberId(f"{GROUP}/{FULL}/0"), MemberId(f"{GROUP}/{FULL}/1")


def pick(*, group=GROUP, revision=FULL, history=80, cached=True, at=HERE, prefix=1, seen=50.0, inherited=0.0):
    """A request of 100 tokens, 50 of them declared, whose session was last served `at`; None for a session unknown."""
    replica = ReplicaLoad(member_hash(HERE), "c", EngineCosts(kv_tokens=10_000, prefill_rate=100), now=0.0)
    replica.inherited = inherited
    member = Member(HERE, group, Fingerprint(revision), 0, "10.0.0.1:8000", "c")
    made = Pick(member, replica, Demand(SessionKey(7), PrefixKey(1), 100, 50, history, cached=cached), now=100.0)
    if at is not None:
        made.before = Placement(at, PrefixKey(prefix), 2, 70.0, 0.0, seen)
        made.moved = at != HERE
    return made


CASES = {
    "it comes back": ({}, True),
    "it begins": ({"history": 0, "at": None}, True),
    "it begins on a replica that another revision lends": ({"history": 0, "at": None, "revision": "7777777777"}, False),
    "it begins on a replica that another group lends": ({"history": 0, "at": None, "group": "chat/sales"}, False),
    "it comes back to a replica that is lent": ({"revision": "7777777777"}, False),
    "another replica had it, as one that was lent": ({"at": THERE}, False),
    "nobody knows who had it": ({"at": None}, False),
    "it comes back with another prompt": ({"prefix": 2}, False),
    "the process that had it is gone": ({"seen": 50.0, "inherited": 60.0}, False),
    "nothing is cached, so that it misses nothing": ({"at": None, "cached": False}, True),
}


@pytest.mark.parametrize("case", CASES)
def test_what_may_be_compared(case):
    fields, like = CASES[case]
    assert is_like(pick(**fields), GROUP, FULL[:8]) is like


def test_what_a_request_brings_is_what_nobody_had_before():
    assert own_tokens(pick(history=0, at=None)) == 50
    assert own_tokens(pick()) == 30
    assert own_tokens(pick(history=60)) == 40, "the answer since, which the client sends back, was computed as well"


def test_what_other_sessions_brought_is_what_is_cached_beyond_the_declared_prompt_and_the_session():
    first, later = pick(history=0, at=None), pick()
    assert [shared_tokens(each) for each in (first, later)] == [0, 0]
    first.cached, later.cached = 90.0, 90.0
    assert [shared_tokens(each) for each in (first, later)] == [40, 20]
