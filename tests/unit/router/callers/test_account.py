"""The window of one account, against a log of what was used."""

from hypothesis import given
from hypothesis import strategies as st

from promptgroup_router.callers.account import SLICE_SECONDS, WINDOW_SECONDS, Account

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
    account.take_back(20, first)  # taken by the peer's correction already
    assert account.minute_tokens == 85
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
