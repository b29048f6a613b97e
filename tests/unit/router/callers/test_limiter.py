"""Limits of callers: one router, and several that tell each other."""

import random
from bisect import bisect_left

import pytest

from promptgroup_contract.caller_rules import NO_LIMITS, CallerLimits
from promptgroup_router.apis.usage import Usage
from promptgroup_router.base.errors import ApiError
from promptgroup_router.callers.account import MOST_DEBT, SpendReport
from promptgroup_router.callers.limiter import DAY_SECONDS, MOST_ACCOUNTS, Limiter
from promptgroup_router.callers.longest_answer import UNSTATED
from promptgroup_router.peers.datagram import Datagram, DatagramKind, encode

TICK = 0.05


def admitted(limiter, limits, now, *, prompt=0, longest=0, stated=True, caller="a", group="chat/support"):
    try:
        return limiter.admit(group, caller, limits, prompt=prompt, longest=longest, stated=stated, now=now)
    except ApiError as error:
        return error


def refused(*arguments, **options):
    found = admitted(*arguments, **options)
    assert isinstance(found, ApiError)
    return found


def test_without_limits_nothing_is_counted():
    limiter = Limiter()
    assert admitted(limiter, NO_LIMITS, 0.0) is None
    assert limiter.export(0.0) == []


def test_requests_of_a_minute():
    limiter, limits = Limiter(), CallerLimits(requests_per_minute=3)
    for at in (0.0, 10.0, 20.0):
        limiter.settle(admitted(limiter, limits, at), None, at)
    error = refused(limiter, limits, 30.0)
    assert (error.status, error.code, error.retry_after) == (429, "rate_limit_exceeded", 31)
    assert dict(error.headers()) == {
        b"content-type": b"application/json",
        b"retry-after": b"31",
        b"x-ratelimit-limit-requests": b"3",
        b"x-ratelimit-remaining-requests": b"0",
        b"x-ratelimit-reset-requests": b"31s",
    }
    assert "3 requests a minute" in str(error)
    assert not isinstance(admitted(limiter, limits, 61.0), ApiError)
    refused(limiter, limits, 61.0)


def test_no_time_to_come_back_is_longer_than_clients_believe():
    limiter = Limiter()
    for limits in (CallerLimits(requests_per_minute=1), CallerLimits(tokens_per_minute=1)):
        admitted(limiter, limits, 0.0, prompt=1, caller=str(limits))
        assert refused(limiter, limits, 0.0, prompt=1, caller=str(limits)).retry_after == 60


def test_callers_and_groups_have_accounts_of_their_own():
    limiter, limits = Limiter(), CallerLimits(requests_per_minute=1)
    for options in ({}, {"caller": "b"}, {"group": "chat/other"}):
        assert not isinstance(admitted(limiter, limits, 0.0, **options), ApiError)
        refused(limiter, limits, 0.0, **options)


def test_tokens_are_charged_in_advance_and_settled_by_what_the_engine_reports():
    limiter, limits = Limiter(), CallerLimits(tokens_per_minute=1000)
    first = admitted(limiter, limits, 0.0, prompt=400)
    limiter.settle(first, Usage(300, 0, 100), 1.0)
    assert dict(limiter.headers(first, 1.0))[b"x-ratelimit-remaining-tokens"] == b"600"
    second = admitted(limiter, limits, 2.0, prompt=300, longest=50)
    assert second.reserved == 350
    error = refused(limiter, limits, 2.0, prompt=301, longest=5)
    assert (error.code, error.retry_after) == ("tokens_exceeded", 59)
    limiter.settle(second, Usage(300, 0, 50), 3.0)
    limiter.settle(second, Usage(9999, 0, 50), 3.0)  # only once
    assert dict(limiter.headers(second, 3.0))[b"x-ratelimit-remaining-tokens"] == b"250"


def test_what_no_engine_served_costs_no_tokens():
    limiter, limits = Limiter(), CallerLimits(tokens_per_minute=1000, in_flight=1)
    limiter.give_back(admitted(limiter, limits, 0.0, prompt=900), 0.0)
    assert not isinstance(admitted(limiter, limits, 0.0, prompt=900), ApiError)


def test_a_prompt_larger_than_the_limit_goes_when_nothing_else_does():
    limiter, limits = Limiter(), CallerLimits(tokens_per_minute=1000)
    charge = admitted(limiter, limits, 0.0, prompt=5000)
    assert not isinstance(charge, ApiError)
    refused(limiter, limits, 0.0, prompt=1)


def test_requests_at_a_time():
    limiter, limits = Limiter(), CallerLimits(in_flight=2)
    first = admitted(limiter, limits, 0.0)
    admitted(limiter, limits, 0.0)
    assert refused(limiter, limits, 0.0).retry_after == 1
    limiter.settle(first, None, 1.0)
    assert not isinstance(admitted(limiter, limits, 1.0), ApiError)


def test_tokens_of_a_day_come_back_at_midnight():
    limiter, limits = Limiter(), CallerLimits(tokens_per_day=500)
    limiter.epoch = 3.5 * DAY_SECONDS
    limiter.settle(admitted(limiter, limits, 0.0, prompt=400), Usage(400, 0, 100), 0.0)
    assert refused(limiter, limits, 100.0).retry_after == DAY_SECONDS // 2 - 100
    assert not isinstance(admitted(limiter, limits, DAY_SECONDS / 2 + 1), ApiError)


@pytest.mark.heavy
def test_the_number_of_accounts_is_bounded():
    limiter, limits = Limiter(), CallerLimits(requests_per_minute=1)
    for number in range(MOST_ACCOUNTS + 10):
        admitted(limiter, limits, 0.0, caller=str(number))
    assert len(limiter._accounts) == MOST_ACCOUNTS


def test_a_clock_that_goes_back_neither_raises_nor_opens_the_limit():
    limiter, limits = Limiter(), CallerLimits(requests_per_minute=2, tokens_per_minute=100, tokens_per_day=100)
    for at in (1000.0, 10.0):
        limiter.settle(admitted(limiter, limits, at, prompt=10), Usage(10, 0, 5), at - 5)
    for at in (10.0, 1000.0, 0.0, 1030.0):
        assert refused(limiter, limits, at).retry_after >= 1


def test_a_peer_that_lies_blocks_nobody_beyond_the_day_and_breaks_no_report():
    """Routers believe who has their key; a faulty one must not do lasting harm."""
    limiter = Limiter()
    limits = CallerLimits(requests_per_minute=5, tokens_per_minute=500, in_flight=3, tokens_per_day=10_000)
    limiter.settle(admitted(limiter, limits, 1000.0, prompt=10), None, 1000.0)
    (account,) = limiter._accounts.values()
    for number, (most, tokens) in enumerate([(2**64 - 1, 2**63 - 1), (0, -(2**63)), (2**64 - 1, -1)] * 20):
        lie = SpendReport(account.key, most, tokens, 2**32 - 1, 2**32 - 1, 2**64 - 1, 65535)
        limiter.merge(number % 2, [lie], 1000.0 + number / 100)
        told = limiter.export(1000.0 + number / 100)
        encode(Datagram(DatagramKind.SPEND, 1, number, 0.0, spends=told), b"k" * 32)
    assert account.minute_tokens >= 0
    assert account.day_tokens >= 0
    refused(limiter, limits, 1001.0)
    for peer in (0, 1):
        limiter.drop_peer(peer, 1002.0)
    assert account.peer_in_flight == 0
    assert not isinstance(admitted(limiter, limits, 1000.0 + DAY_SECONDS, prompt=10), ApiError)


# --- bursts ---------------------------------------------------------------------------------------------------

LIMIT = 10_000
TOKENS = CallerLimits(tokens_per_minute=LIMIT)


def burst(limiter, now, count, *, prompt=10, answer=1000, limits=TOKENS, stated=True, whole=True):
    """Send so many requests at once, let all that are admitted end a second later; return the tokens that they took."""
    longest = answer if stated else UNSTATED
    found = [admitted(limiter, limits, now, prompt=prompt, longest=longest, stated=stated) for _ in range(count)]
    charges = [each for each in found if not isinstance(each, ApiError)]
    for each in charges:
        limiter.settle(each, Usage(prompt, 0, answer) if whole else None, now + 1.0)
    return len(charges) * (prompt + answer)


def test_short_answers_do_not_open_the_limit_for_long_ones():
    limiter = Limiter()
    used = sum(burst(limiter, 0.1 * step, 1, answer=1) for step in range(20))
    assert used + burst(limiter, 3.0, 150) <= 1.02 * LIMIT + 1010


@pytest.mark.parametrize("stated", [True, False])
def test_the_first_burst_of_a_new_caller_has_the_limit_and_one_request_at_most(stated):
    assert burst(Limiter(), 0.0, 500, stated=stated) <= LIMIT + 1010


def test_what_was_used_beyond_the_limit_is_paid_before_anything_else():
    """Answers without a stated length that are longer than what was reserved for them: over time it is the limit."""
    limiter = Limiter()
    used = [burst(limiter, 61.0 * cycle, 150, answer=40_000, stated=False) for cycle in range(60)]
    assert used[0] <= 3 * 40_010  # as many as the reserved lengths have room for
    for cycle in range(60):
        assert sum(used[: cycle + 1]) <= (cycle + 1) * LIMIT + 3 * 40_010
    assert sum(used) >= 40 * LIMIT  # and it is paid, once
    paid = 60.5 * (3 * 40_010 / LIMIT + 1)
    assert [at for at, tokens in enumerate(used) if tokens][1] * 61.0 <= paid + 61.0


def test_a_debt_is_paid_at_the_rate_of_the_limit_however_it_came_about():
    limiter = Limiter()
    first = admitted(limiter, TOKENS, 0.0, prompt=LIMIT)
    limiter.settle(first, Usage(LIMIT, 0, 0), 0.0)
    limiter._accounts[first.account.key].spend(0, 20_000)  # as a correction does
    first.account.hold()
    assert (first.account.minute_tokens, first.account.debt) == (LIMIT, 20_000)
    refused(limiter, TOKENS, 61.0)
    refused(limiter, TOKENS, 122.0)
    assert not isinstance(admitted(limiter, TOKENS, 183.0), ApiError)


def test_after_a_long_answer_more_is_reserved_for_the_next_ones_of_unstated_length():
    limiter, limits = Limiter(), CallerLimits(tokens_per_minute=10**6)
    limiter.settle(admitted(limiter, limits, 0.0, longest=UNSTATED, stated=False), Usage(10, 0, 60_000), 1.0)
    for _ in range(50):
        limiter.settle(admitted(limiter, limits, 2.0, longest=UNSTATED, stated=False), Usage(10, 0, 1), 2.0)
    reserved = admitted(limiter, limits, 3.0, prompt=0, longest=UNSTATED, stated=False).reserved
    assert 50_000 <= reserved <= 60_000
    assert admitted(limiter, limits, 3.0, prompt=0, longest=5).reserved == 5
    assert admitted(limiter, limits, 900.0, prompt=0, longest=UNSTATED, stated=False).reserved == UNSTATED


def test_tokens_of_a_day_are_reserved_too():
    limits = CallerLimits(tokens_per_day=LIMIT)
    assert burst(Limiter(), 0.0, 500, limits=limits) <= LIMIT + 1010
    limiter = Limiter()
    assert not isinstance(admitted(limiter, limits, 0.0, prompt=LIMIT - 10, longest=0), ApiError)
    assert refused(limiter, limits, 0.0, prompt=20).code == "tokens_exceeded"


def test_a_caller_with_little_left_waits_for_its_own_answers_and_no_longer():
    limiter = Limiter()
    first = admitted(limiter, TOKENS, 0.0, prompt=10, longest=UNSTATED * 9, stated=False)
    assert first.reserved == LIMIT
    assert refused(limiter, TOKENS, 1.0, prompt=10).retry_after == 1
    limiter.settle(first, Usage(10, 0, 20), 2.0)
    assert not isinstance(admitted(limiter, TOKENS, 2.0, prompt=10, longest=UNSTATED, stated=False), ApiError)


def test_an_answer_that_nobody_saw_stays_charged_and_one_that_was_cut_costs_what_was_seen():
    limiter = Limiter()
    unseen, cut = (admitted(limiter, TOKENS, 0.0, prompt=100, longest=1000) for _ in range(2))
    limiter.settle(cut, None, 1.0, seen=7)
    limiter.settle(unseen, None, 1.0)
    assert (unseen.account.minute_tokens, unseen.account.open_tokens) == (107 + 1100, 0)


@pytest.mark.parametrize(("after", "lets_in"), [(2.0, False), (100.0, False), (400.0, False), (700.0, True)])
def test_a_debt_is_known_to_routers_that_have_not_seen_the_caller(after, lets_in):
    one, other = Limiter(), Limiter()
    charge = admitted(one, TOKENS, 0.0, prompt=10, longest=UNSTATED, stated=False)
    other.merge(1, one.export(0.0), 0.0)
    one.settle(charge, Usage(10, 0, 100_000), 1.0)
    other.merge(1, one.export(1.0), 1.0)
    assert isinstance(admitted(other, TOKENS, after, prompt=10), ApiError) is not lets_in


def test_a_caller_cannot_go_round_three_routers_with_bursts():
    routers, used = Routers(3), 0
    for cycle in range(20):
        now = 1000.0 + 61.0 * cycle
        charges = []
        for number in range(450):
            router = number % 3
            charge = admitted(routers.live[router], TOKENS, now, prompt=10, longest=1000)
            if not isinstance(charge, ApiError):
                charges.append((router, charge))
            if number % 30 == 0:
                routers.tick(now)
        used += 1010 * len(charges)
        assert len(charges) * 1010 <= LIMIT + 3 * 1010  # one request for each router
        for router, charge in charges:
            routers.live[router].settle(charge, Usage(10, 0, 1000), now + 1.0)
        for step in range(4):
            routers.tick(now + 1.0 + step * TICK)
    assert 0.95 * 20 * LIMIT <= used <= 1.02 * 20 * LIMIT + 3 * 1010


# --- several routers -----------------------------------------------------------------------------------------


class Routers:
    """Routers that exchange what they have charged in each tick, and lose some of it."""

    def __init__(self, count, *, lost=0.0, seed=1):
        self.live = {number: Limiter() for number in range(count)}
        self._random = random.Random(seed)
        self._lost = lost
        self.join()

    def join(self):
        for each in self.live.values():
            each.routers = len(self.live)

    def tick(self, now):
        for sender, limiter in self.live.items():
            reports = limiter.export(now)
            for other in self.live.values():
                if other is not limiter and self._random.random() >= self._lost:
                    other.merge(sender, reports, now)

    def kill(self, number, now=1000.0):
        del self.live[number]
        for each in self.live.values():
            each.drop_peer(number, now)
        self.join()


def drive(routers, limits, *, rate, seconds, kill_at=None, prompt=0, answer=0, stated=True, seed=1):
    """Offer `rate` requests a second to random routers; return the times at which they were admitted, and tokens."""
    chooser, log, now, next_tick, running = random.Random(seed), [], 1000.0, 1000.0, []
    end = now + seconds
    while now < end:
        now += chooser.expovariate(rate)
        while next_tick <= now:
            routers.tick(next_tick)
            next_tick += TICK
        if kill_at is not None and now - 1000.0 >= kill_at:
            routers.kill(0)
            kill_at = None
        while running and running[0][0] <= now:
            _, router, charge = running.pop(0)
            routers.live.get(router, Limiter()).settle(charge, Usage(prompt, 0, answer), now)
        number = chooser.choice(list(routers.live))
        longest = answer if stated else UNSTATED
        charge = admitted(routers.live[number], limits, now, prompt=prompt, longest=longest, stated=stated)
        if not isinstance(charge, ApiError):
            log.append(now)
            running.append((now + 1.0, number, charge))
    return log


def worst_minute(log):
    """Most admissions of any 60 seconds; the log is in order."""
    return max(bisect_left(log, at + 60) - bisect_left(log, at) for at in log)


class Late(Routers):
    """Routers whose datagrams wait behind a burst, up to half a second; each second all say that they are there."""

    def __init__(self, count, *, seed=1):
        super().__init__(count, seed=seed)
        self._way, self._heard, self._hello = [], {}, 0.0
        for sender in self.live:
            self._heard |= {(other, sender): 0.0 for other in self.live if other != sender}

    def tick(self, now):
        hello, self._hello = now >= self._hello, self._hello if now < self._hello else now + 1.0
        for sender, limiter in self.live.items():
            reports = limiter.export(now)
            for other in self.live.keys() - {sender} if reports or hello else ():
                before = max((at for at, *ends, _ in self._way if ends == [sender, other]), default=now)
                self._way.append((max(before, now + self._random.random() / 2), sender, other, reports))
        for at, sender, other, reports in sorted(self._way, key=lambda each: each[0]):
            if at <= now:
                self.live[other].merge(sender, reports, now)
                self._heard[other, sender] = now
        self._way = [each for each in self._way if each[0] > now]
        for number, limiter in self.live.items():
            limiter.heard = min((at for (other, _), at in self._heard.items() if other == number), default=now)


def burst_over(routers, limits, **tokens):
    """Send 400 requests in a tenth of a second, and go on asking for a minute; return when some were let in."""
    admissions, now, due = [], 1000.0, [1000.0 + number / 4000 for number in range(400)]
    due += [1000.1 + number / 20 for number in range(1000)]
    next_tick = 1000.0
    for number, now in enumerate(due):
        while next_tick <= now:
            routers.tick(next_tick)
            next_tick += TICK
        if not isinstance(admitted(routers.live[number % len(routers.live)], limits, now, **tokens), ApiError):
            admissions.append(now)
    return admissions


@pytest.mark.parametrize("began", [-1000.0, 999.0])
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize(
    ("limits", "tokens", "most"),
    [
        (CallerLimits(requests_per_minute=200), {}, 200),
        (CallerLimits(tokens_per_minute=20_000), {"prompt": 50, "longest": 50}, 200),
        (CallerLimits(tokens_per_day=20_000), {"prompt": 50, "longest": 50}, 200),
        (CallerLimits(in_flight=200), {}, 200),
    ],
    ids=["requests", "tokens", "tokens of a day", "in flight"],
)
def test_a_burst_exceeds_a_limit_by_one_for_each_further_router_though_reports_are_late(
    began, count, limits, tokens, most
):
    for seed in range(3):
        routers = Late(count, seed=seed)
        for each in routers.live.values():
            each.began = began
        admissions = burst_over(routers, limits, **tokens)
        assert 0.95 * most <= len(admissions) <= most + count - 1
        assert sum(at < 1000.1 for at in admissions) >= most - count, "a burst over all routers has all of it at once"


@pytest.mark.parametrize("count", [2, 4])
def test_a_client_of_one_router_has_its_share_at_once_and_all_but_a_hundredth_within_half_a_minute(count):
    routers, limits, now = Late(count), CallerLimits(requests_per_minute=200), 1000.0
    admissions = []
    while now < 1030.0:
        routers.tick(now)
        asked = [admitted(routers.live[0], limits, now) for _ in range(200 if now == 1000.0 else 20)]
        admissions.append(sum(not isinstance(answer, ApiError) for answer in asked))
        now += TICK
    assert admissions[0] == 200 // count
    assert 198 <= sum(admissions) <= 200


@pytest.mark.heavy
@pytest.mark.parametrize("rate", [20, 300])
@pytest.mark.parametrize("lost", [0.0, 0.2])
def test_three_routers_keep_a_limit_within_two_percent_although_one_is_killed(rate, lost):
    limits = CallerLimits(requests_per_minute=600)
    log = drive(Routers(3, lost=lost), limits, rate=rate, seconds=130, kill_at=30)
    assert worst_minute(log) <= 612
    first, second = (sum(1 for at in log if start <= at - 1000.0 < start + 60) for start in (0, 60))
    assert first >= 588
    assert second >= 588


def test_three_routers_keep_a_limit_of_tokens_within_two_percent():
    limits = CallerLimits(tokens_per_minute=120_000)
    log = drive(Routers(3), limits, rate=50, seconds=130, kill_at=30, prompt=180, answer=20)
    assert 0.98 * 600 <= worst_minute(log) <= 1.02 * 600


def test_three_routers_keep_a_limit_of_tokens_of_answers_without_a_stated_length():
    """Twenty times as much is reserved as is used: callers have their limit all the same."""
    limits = CallerLimits(tokens_per_minute=120_000)
    log = drive(Routers(3), limits, rate=50, seconds=130, kill_at=30, prompt=180, answer=20, stated=False)
    assert 0.98 * 600 <= worst_minute(log) <= 1.02 * 600


def test_a_router_that_starts_takes_over_what_was_used():
    routers, limits = Routers(2), CallerLimits(requests_per_minute=100, tokens_per_day=5000)
    for number in range(40):
        admitted(routers.live[number % 2], limits, 1000.0 + number / 10, prompt=10)
        routers.tick(1000.0 + number / 10)
    started = Limiter()
    started.began, started.routers = 1010.0, 3
    for sender in (0, 1):
        routers.live[sender].announce()
        started.merge(sender, routers.live[sender].export(1011.0), 1011.0)
    charge = admitted(started, limits, 1012.0)
    assert dict(started.headers(charge, 1012.0))[b"x-ratelimit-remaining-requests"] == b"59"
    assert charge.account.day_tokens == 400


def test_requests_at_a_time_are_counted_over_routers_and_end_with_one_that_is_gone():
    routers, limits = Routers(2), CallerLimits(in_flight=2)
    for each in routers.live.values():
        admitted(each, limits, 0.0)
    routers.tick(0.1)
    refused(routers.live[1], limits, 0.2)
    routers.kill(0)
    assert not isinstance(admitted(routers.live[1], limits, 0.2), ApiError)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("most", [1, 2, 4, 10, 100])
@pytest.mark.parametrize("lost", [0.0, 0.1])
def test_requests_at_a_time_are_exceeded_by_one_for_each_further_router_at_most(count, most, lost):
    routers, limits, chooser = Routers(count, lost=lost), CallerLimits(in_flight=most), random.Random(7)
    running = []
    for step in range(60):
        now = 1000.0 + step * TICK
        for each in routers.live.values():
            for _ in range(2 * most):
                charge = admitted(each, limits, now)
                if not isinstance(charge, ApiError):
                    running.append((each, charge))
        if not lost:
            assert len(running) <= most + count - 1
        if step % 20 == 10:
            for each, charge in [running.pop(chooser.randrange(len(running))) for _ in range(len(running) // 2)]:
                each.settle(charge, None, now)
        routers.tick(now)
    assert most <= len(running) <= most + count - 1


def test_a_request_takes_the_place_of_one_that_ended_at_the_same_router_at_once():
    """A caller with as many workers as it may have requests is not refused while they work."""
    routers, limits = Routers(3), CallerLimits(in_flight=4)
    router, now, running = routers.live[0], 1000.0, []
    while len(running) < 4:
        charge = admitted(router, limits, now)
        if isinstance(charge, ApiError):
            routers.tick(now)
            now += TICK
        else:
            running.append(charge)
    assert now <= 1000.0 + 4 * TICK
    for _ in range(2):
        routers.tick(now)
    for _ in range(50):
        now += TICK / 3
        router.settle(running.pop(0), None, now)
        running.append(admitted(router, limits, now))
        assert not isinstance(running[-1], ApiError)
        routers.tick(now)


class Parted:
    """Two routers that a caller used before the network parted them, and meanwhile."""

    def __init__(self, limits, start=1000.0):
        self.limits, self.now = limits, start
        self.routers = Routers(2)
        self.one, self.other = self.routers.live.values()
        self.use(1)
        self.tell()

    def use(self, times, *, every=0.0, tokens=500):
        """Let each router admit requests."""
        for _ in range(times):
            self.now += every
            for each in (self.one, self.other):
                charge = admitted(each, self.limits, self.now, prompt=tokens)
                assert not isinstance(charge, ApiError)
                each.settle(charge, Usage(tokens, 0, 0), self.now)

    def tell(self):
        for _ in range(3):
            self.routers.tick(self.now)

    def part(self, *, minutes):
        """Let each admit ten requests a minute while neither hears the other: the limit, together."""
        for number, each in self.routers.live.items():
            each.drop_peer(1 - number, self.now)
            each.routers = 1
        for _ in range(10 * minutes):
            self.use(1, every=6.0)
            for each in (self.one, self.other):
                each.export(self.now)
        self.routers.join()


@pytest.mark.parametrize("minutes", [1, 60])
def test_who_kept_the_limit_while_routers_were_parted_is_served_within_a_minute_after(minutes):
    parted = Parted(CallerLimits(requests_per_minute=100, tokens_per_minute=10_000))
    parted.part(minutes=minutes)
    parted.use(1)
    parted.tell()
    for each in (parted.one, parted.other):
        (account,) = each._accounts.values()
        assert account.debt <= 2000  # both ends of the minute, and the request after it
        assert account.minute_requests <= 24
        assert not isinstance(admitted(each, parted.limits, parted.now + 61.0, prompt=500), ApiError)


def test_accounts_are_told_of_one_by_one_after_a_partition():
    """What is charged first after it does not open the account of another caller for all that came before."""
    parted = Parted(CallerLimits(tokens_per_minute=10_000))
    others = [admitted(parted.one, parted.limits, parted.now, prompt=1, caller="b")]
    parted.tell()
    parted.part(minutes=30)
    for _ in range(30):
        others.append(admitted(parted.one, parted.limits, parted.now, prompt=300, caller="b"))
        parted.one.export(parted.now)
        parted.now += 60.5
    parted.use(1)
    parted.tell()
    others.append(admitted(parted.one, parted.limits, parted.now + 30.0, prompt=300, caller="b"))
    parted.routers.tick(parted.now + 30.0)
    account = parted.other._accounts[others[-1].account.key]
    assert account.minute_tokens + account.debt <= 600


@pytest.mark.parametrize("hour", [12.0, 23.5])
def test_a_partition_takes_nothing_from_the_days_account(hour):
    limits = CallerLimits(tokens_per_day=10**7)
    parted = Parted(limits, start=hour * 3600.0)
    parted.part(minutes=60)
    parted.use(1)
    parted.tell()
    days = [account.day_tokens for each in (parted.one, parted.other) for account in each._accounts.values()]
    if hour == 12.0:
        assert days == [2 * 602 * 500] * 2
    else:  # half of it is of the day before
        assert days == [pytest.approx(2 * 301 * 500, abs=1000)] * 2


def test_what_a_parted_peer_says_is_believed_only_so_far():
    limiter, limits = Limiter(), CallerLimits(tokens_per_minute=100)
    admitted(limiter, limits, 0.0, prompt=10)
    (report,) = limiter.export(0.0)
    limiter.merge(9, [report], 1.0)
    limiter.drop_peer(9, 1.0)
    limiter.merge(9, [report._replace(tokens=2**62, minute_tokens=2**32 - 1, day_tokens=2**63)], 2.0)
    told = limiter.export(2.0)
    encode(Datagram(DatagramKind.SPEND, 1, 1, 0.0, spends=told), b"k" * 32)
    assert not isinstance(admitted(limiter, limits, 60.0 * (MOST_DEBT + 2), prompt=10), ApiError)


def test_a_peer_that_is_broken_is_believed_only_so_far():
    limiter, limits = Limiter(), CallerLimits(requests_per_minute=100, tokens_per_minute=100)
    admitted(limiter, limits, 0.0, prompt=10)
    (report,) = limiter.export(0.0)
    for requests, tokens in ((0, 2**62), (2**62, -(2**62)), (0, 0), (5, 5)):
        limiter.merge(9, [report._replace(requests=requests, tokens=tokens, in_flight=0)], 1.0)
    refused(limiter, limits, 2.0)
    later = 60.0 * (MOST_DEBT + 2)
    assert not isinstance(admitted(limiter, limits, later, prompt=10), ApiError)


@pytest.mark.heavy
def test_a_request_may_end_after_its_account_was_forgotten():
    limiter, limits = Limiter(), CallerLimits(requests_per_minute=10, tokens_per_minute=1000)
    charge = admitted(limiter, limits, 0.0, prompt=100)
    for number in range(MOST_ACCOUNTS):
        admitted(limiter, limits, 0.0, caller=str(number))
    assert charge.account.key not in limiter._accounts
    limiter.headers(charge, 10.0)
    limiter.settle(charge, Usage(50, 0, 5), 20.0)
    assert charge.account.in_flight == 0
    assert admitted(limiter, limits, 20.0).account is not charge.account


@pytest.mark.heavy
def test_peers_are_told_of_an_account_that_was_forgotten_while_it_served_and_opened_anew():
    limiter, limits = Limiter(), CallerLimits(requests_per_minute=10**6)
    old = admitted(limiter, limits, 0.0)
    for number in range(MOST_ACCOUNTS):
        admitted(limiter, limits, 0.0, caller=str(number))
    limiter.export(10.0)
    new = admitted(limiter, limits, 20.0).account
    limiter.settle(old, None, 21.0)
    assert limiter._changed[new.key] is new


@pytest.mark.heavy
def test_those_who_ask_often_are_remembered():
    limiter, limits = Limiter(), CallerLimits(requests_per_minute=10)
    often = admitted(limiter, limits, 0.0).account
    for number in range(MOST_ACCOUNTS + 10):
        admitted(limiter, limits, number / 100, caller=str(number))
        if number % 100 == 0:
            assert admitted(limiter, CallerLimits(in_flight=10**6), number / 100).account is often


def test_what_was_charged_too_much_gives_no_more_room_in_the_next_minute():
    """The minute that begins when an estimate was corrected has the limit, and not the correction beside it."""
    limiter, limits = Limiter(), CallerLimits(tokens_per_minute=1000)
    limiter.settle(admitted(limiter, limits, 0.0, prompt=900), Usage(100, 0, 0), 10.0)
    assert not isinstance(admitted(limiter, limits, 11.0, prompt=900), ApiError)
    refused(limiter, limits, 62.0, prompt=200)  # the first has left the window, and its correction with it


def test_a_tick_of_a_router_that_was_killed_costs_no_more_than_its_share():
    limits = CallerLimits(requests_per_minute=600)
    routers = Routers(3)
    first = sum(not isinstance(admitted(routers.live[0], limits, 1000.0), ApiError) for _ in range(600))
    assert first <= 200
    routers.kill(0)  # before it told
    more = 0
    for step in range(1, 200):
        routers.tick(1000.0 + step * TICK)
        for each in routers.live.values():
            more += not isinstance(admitted(each, limits, 1000.0 + step * TICK), ApiError)
            more += not isinstance(admitted(each, limits, 1000.0 + step * TICK), ApiError)
    assert first + more <= 800
