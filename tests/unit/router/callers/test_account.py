"""The window of one account, against a log of what was used."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_router.callers.account import MOST_DEBT, SLICE_SECONDS, WINDOW_SECONDS, Account

USES = st.lists(st.tuples(st.floats(0, 20), st.integers(1, 3), st.integers(0, 50)), max_size=80)


def moved(account: Account, now: float, day: int = 0) -> Account:
    """As the limiter does: only where a slice has ended."""
    if now >= account.until:
        account.move(now, day)
    return account


def used_by(uses) -> tuple[Account, float, list[tuple[float, int, int]]]:
    account, now, log = Account(1), 1000.0, []
    for pause, requests, tokens in uses:
        now += pause
        moved(account, now).spend(requests, tokens)
        log.append((now, requests, tokens))
    return account, now, log


@given(USES)
def test_the_sums_are_those_of_the_last_minute_to_a_slice(uses):
    account, now, log = Account(1), 1000.0, []
    for pause, requests, tokens in uses:
        now += pause
        moved(account, now).spend(requests, tokens)
        log.append((now, requests, tokens))
        for place, found in ((1, account.minute_requests), (2, account.minute_tokens)):
            surely = sum(each[place] for each in log if now - each[0] <= WINDOW_SECONDS)
            perhaps = sum(each[place] for each in log if now - each[0] <= WINDOW_SECONDS + SLICE_SECONDS)
            assert surely <= found <= perhaps


@given(USES, st.integers(1, 50))
def test_after_the_wait_so_much_has_left_and_not_much_before(uses, room):
    account, now, _ = used_by(uses)
    before = account.minute_tokens
    wait = account.seconds_until(tokens=min(room, before), now=now)
    assert 0 <= wait <= WINDOW_SECONDS + SLICE_SECONDS
    assert moved(account, now + wait).minute_tokens <= before - min(room, before)


def test_the_wait_counts_requests_and_tokens():
    account = moved(Account(1), 10.0)
    account.spend(1, 0)
    moved(account, 20.0).spend(1, 40)
    assert account.seconds_until(requests=1, now=20.0) == 50.5
    assert account.seconds_until(tokens=1, now=20.0) == 60.5
    account.debt = 1000
    assert account.seconds_until(requests=1, now=20.0) == 50.5, "a debt of tokens is no request"
    assert account.seconds_until(tokens=1, now=20.0) == WINDOW_SECONDS


@given(USES, st.data())
def test_what_is_taken_back_was_never_used(uses, data):
    """The sums after a correction are those of a log in which it was never charged, now and at any later time."""
    account, now, charges = Account(1), 1000.0, []
    for pause, requests, tokens in uses:
        now += pause
        moved(account, now).spend(requests, tokens)
        charges.append([now, tokens, account.slice])
        if data.draw(st.booleans()):
            at = data.draw(st.sampled_from(charges))
            back = data.draw(st.integers(0, at[1]))
            account.take_back(back, at[2])
            at[1] -= back
    for later in (0.0, 7.3, 31.0, 59.9, 70.0):
        found = moved(account, now + later).minute_tokens
        surely = sum(tokens for at, tokens, _ in charges if now + later - at <= WINDOW_SECONDS)
        perhaps = sum(tokens for at, tokens, _ in charges if now + later - at <= WINDOW_SECONDS + SLICE_SECONDS)
        assert surely <= found <= perhaps


def test_what_peers_take_back_comes_out_of_the_latest_slices_and_no_sum_is_less_than_nothing():
    account = Account(1)
    for at, tokens in ((0.0, 100), (30.0, 10), (40.0, 20)):
        moved(account, at).spend(1, tokens)
    first = account.slice
    account.take_back_from_latest(45)
    assert moved(account, 59.0).minute_tokens == 85
    account.take_back(20, first)  # a peer's correction has taken them already, in the place of its own
    assert account.minute_tokens == 65
    assert moved(account, 61.0).minute_tokens == 0
    account.take_back_from_latest(10**9)
    assert (account.minute_tokens, account.day_tokens) == (0, 0)


def test_a_day_begins_with_nothing():
    account = moved(Account(1), 10.0, day=3)
    account.spend(1, 40)
    assert moved(account, 11.0, day=3).day_tokens == 40
    assert moved(account, 12.0, day=4).day_tokens == 0


@given(USES)
def test_slices_are_no_more_than_a_minute_has(uses):
    account, now, _ = used_by(uses)
    assert len(account._slices) <= WINDOW_SECONDS / SLICE_SECONDS + 1
    assert moved(account, now + 100).minute_requests == 0
    assert len(account._slices) == 1


def test_a_debt_takes_the_room_of_the_next_windows_until_it_is_paid():
    account = moved(Account(1), 0.0)
    account.bound(100, 0.0)
    account.spend(1, 350)
    account.hold()
    assert (account.minute_tokens, account.debt) == (100, 250)
    for at, window, debt in ((59.0, 100, 250), (61.0, 100, 150), (122.0, 100, 50), (183.0, 50, 0), (244.0, 0, 0)):
        moved(account, at)
        assert (account.minute_tokens, account.debt) == (window, debt)


@pytest.mark.parametrize(("minutes", "left"), [(1, 250), (2, 150), (3, 50), (4, 0), (10, 0)])
def test_a_debt_is_paid_while_nobody_looks(minutes, left):
    account = moved(Account(1), 0.0)
    account.bound(100, 0.0)
    account.spend(1, 450)
    account.hold()
    moved(account, 60.5 * minutes + 0.5)
    assert account.debt == left


def test_what_comes_back_lessens_the_debt_first():
    account = moved(Account(1), 0.0)
    account.bound(100, 0.0)
    account.spend(1, 150)
    account.hold()
    account.take_back(70, account.slice)
    assert (account.minute_tokens, account.debt, account.day_tokens) == (80, 0, 80)


def test_a_debt_is_bounded_and_ends_with_the_limit():
    account = moved(Account(1), 0.0)
    account.bound(100, 0.0)
    account.spend(1, 10**9)
    account.hold()
    assert account.debt == MOST_DEBT * 100
    account.bound(0, 1.0)
    assert account.debt == 0


@pytest.mark.parametrize(("after", "owed"), [(1.0, 899), (60.0, 800), (599.0, 0), (6000.0, 0)])
def test_what_peers_have_told_before_the_limit_was_known_is_owed(after, owed):
    account = moved(Account(1), 100.0)
    account.heard, account.heard_at = 1000, 100.0
    account.bound(100, 100.0 + after)
    assert account.minute_tokens + account.debt == owed


def test_the_longest_answer_counts_half_as_much_with_each_minute():
    account = moved(Account(1), 0.0)
    account.longest = 8000.0
    for at in (30.0, 60.0, 120.0):
        moved(account, at)
    assert account.longest == pytest.approx(2000.0)
