import tracemalloc

import pytest

from promptgroup_contract.names import UNMATCHED
from promptgroup_router.policy.demand import Demand
from promptgroup_router.rings.ids import PrefixKey
from promptgroup_router.undeclared.decay import HALF_LIFE
from promptgroup_router.undeclared.shared_prefixes import SharedPrefixes, merge, worth_a_group
from promptgroup_router.undeclared.unmatched import CAPACITY

WITHIN = PrefixKey(1 << 60)


def asked(*marks, session, tier1=0, history=0):
    """A request with these prefixes, each 100 tokens longer than the one before."""
    named = [PrefixKey(mark ^ WITHIN) for mark in marks]
    lengths = [tier1 + 100 * number for number in range(1, len(marks) + 1)]
    return Demand(session, PrefixKey(7), 5000, tier1, history, marks=named, lengths=lengths)


def add(sketch, demand, *, known=0, cached=0.0, group=UNMATCHED, instructions=0, now=0.0):
    sketch.add("m", group, demand, within=WITHIN, instructions=instructions, known=known, cached=cached, now=now)


def told(sketch, now=60.0):
    return worth_a_group(merge([sketch.document(now)])["shared"])


def test_what_a_group_would_save_is_what_engines_computed_again():
    sketch = SharedPrefixes()
    add(sketch, asked(1, 2, 30, session=0))
    for session in range(1, 11):
        add(sketch, asked(1, 2, 30 + session, session=session), known=2, cached=50.0 if session < 6 else 900.0)
    (prefix,) = told(sketch)
    assert (prefix["hash"], prefix["prefixTokens"], prefix["sessions"]) == (f"{2:016x}", 200, 10)
    assert prefix["requests"] == pytest.approx(10, rel=0.02)
    assert prefix["computedTokensPerSecond"] / prefix["tokensPerSecond"] == pytest.approx(5 * 150 / 2000)


def test_of_a_prefix_and_its_beginnings_the_longest_that_nearly_all_share_is_told():
    sketch = SharedPrefixes()
    for session in range(40):
        # engines evict the end of a prompt first, so that some find its beginning alone
        add(sketch, asked(1, 2, 3, 100 + session, session=session), known=1 + (session > 3) + (session > 5))
    assert [prefix["hash"] for prefix in told(sketch)] == [f"{3:016x}"]
    for session in range(40, 80):
        add(sketch, asked(1, 2, 4, 100 + session, session=session), known=2 + (session > 40))
    assert {prefix["hash"] for prefix in told(sketch)} == {f"{mark:016x}" for mark in (2, 3, 4)}


def test_the_history_of_a_session_is_shared_with_nobody():
    sketch = SharedPrefixes()
    for turn in range(1, 9):
        add(sketch, asked(*range(10, 10 + turn), session=1, history=100 * (turn - 1)), known=turn - 1)
        # as texts come, which have no turns, and end at a mark that the next one may not have
        add(sketch, asked(*range(50, 50 + turn), 900 + turn, session=2), known=turn - 1)
    assert told(sketch) == []


def test_texts_that_go_on_differently_share_their_beginning_though_it_names_one_session():
    sketch = SharedPrefixes()
    for number in range(4):
        add(sketch, asked(1, 2, 10 + number, session=5), known=2)
    assert [prefix["hash"] for prefix in told(sketch)] == [f"{2:016x}"]


def test_later_turns_count_for_the_prefix_that_their_sessions_share():
    sketch = SharedPrefixes()
    for session in range(3):
        add(sketch, asked(1, 50 + session, session=session), known=1)
    add(sketch, asked(1, 51, 60, session=1, history=200), known=2, cached=0.0)
    (prefix,) = told(sketch)
    assert (prefix["hash"], round(prefix["requests"])) == (f"{1:016x}", 4)


def test_behind_a_declared_prompt_only_what_is_beyond_it_counts():
    sketch = SharedPrefixes()
    for session in range(4):
        add(sketch, asked(1, 9, session=session, tier1=1000), known=1, cached=0.0, group="chat/support")
    (prefix,) = told(sketch)
    assert (prefix["group"], prefix["prefixTokens"]) == ("chat/support", 100)
    assert prefix["computedTokensPerSecond"] == prefix["tokensPerSecond"]


def test_where_a_prefix_ends_is_told():
    sketch = SharedPrefixes()
    for session in range(4):
        add(sketch, asked(1, 9, session=session), known=1, instructions=100)
        add(sketch, asked(2, 9, session=session), known=1, instructions=99)
    assert {prefix["hash"]: prefix["instructions"] for prefix in told(sketch)} == {
        f"{1:016x}": True,
        f"{2:016x}": False,
    }


def test_a_steady_rate_is_told_as_it_is_and_old_requests_count_half():
    sketch = SharedPrefixes()
    for second in range(0, 20 * int(HALF_LIFE), 600):
        add(sketch, asked(1, 1000 + second, session=second), known=1, now=float(second))
    (prefix,) = told(sketch, 20 * HALF_LIFE)
    assert prefix["requestsPerSecond"] == pytest.approx(1 / 600, rel=0.1)
    assert sketch.document(21 * HALF_LIFE)["shared"][0]["requests"] == pytest.approx(prefix["requests"] / 2)


def test_what_is_frequent_stays_however_many_others_pass_in_bounded_memory():
    tracemalloc.start()
    sketch = SharedPrefixes()
    for number in range(2000):
        add(sketch, asked(1, session=number), known=1, now=number * 100.0)
        add(sketch, asked(10_000 + number, session=1), known=1, now=number * 100.0)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < 192 << 10
    assert len(sketch.document(0.0)["shared"]) == CAPACITY
    assert [prefix["hash"] for prefix in told(sketch, 2e5)] == [f"{1:016x}"]


def test_what_several_routers_tell_is_added():
    one, other = SharedPrefixes(), SharedPrefixes()
    for number, sketch in enumerate((one, other, other)):
        add(sketch, asked(1, session=number), known=1)
    merged = merge([one.document(1.0), other.document(1.0), {"unmatched": []}])
    (prefix,) = worth_a_group(merged["shared"])
    assert (prefix["sessions"], round(prefix["requests"])) == (3, 3)
    assert merge([merged])["shared"] == merged["shared"]
