from promptgroup_router.prefixes.prefixes_in_use import LEAST_SHARE, LEAST_UNDECLARED_SHARE, LIMIT, PrefixesInUse


def used(count, tokens, *, times=200, written=100):
    prefixes = PrefixesInUse(100_000)
    prefixes.replicas = 4
    for turn in range(times):
        prefixes.use(turn % count, tokens, written, begins=True)
    return prefixes


def test_a_cold_prefix_is_an_investment_while_those_in_use_fit_half_of_a_cache():
    assert used(5, 8000).cold_share(0) == LEAST_SHARE
    assert used(6, 8000).cold_share(0) == LEAST_SHARE
    assert used(7, 8000).cold_share(0) == 1.0


def test_a_prefix_is_worth_an_investment_as_far_as_sessions_have_begun_with_it():
    prefixes = used(1, 8000, times=10)
    assert prefixes.cold_share(7) == 1.0
    shares = []
    for _ in range(6):
        prefixes.use(7, 8000, 100, begins=True)
        shares.append(prefixes.cold_share(7))
    assert shares == [1 / 3, 1 / 5, 1 / 7, 1 / 9, LEAST_SHARE, LEAST_SHARE]


def test_an_undeclared_prefix_is_worth_its_part_of_a_third_of_the_sessions_that_there_were():
    prefixes = used(1, 8000, times=10)
    assert prefixes.cold_share(7, declared=False) == 1.0
    for _ in range(12):
        prefixes.use(7, 8000, 100, begins=True)
    assert prefixes.cold_share(7, declared=False) == 1 / 2  # 4 more are expected, and one of 4 replicas gets one
    for _ in range(32):
        prefixes.use(7, 8000, 100, begins=True)
    assert prefixes.cold_share(7, declared=False) == LEAST_UNDECLARED_SHARE


def test_later_turns_of_a_session_promise_no_further_sessions():
    prefixes = used(1, 8000, times=10)
    prefixes.use(7, 8000, 100, begins=True)
    for _ in range(20):
        prefixes.use(7, 8000, 100, begins=False)
    assert prefixes.cold_share(7) == 1 / 3
    assert prefixes.cold_share(7, declared=False) == 1 / (1 + 1 / 12)


def test_what_nobody_used_while_all_caches_were_written_anew_is_not_in_use():
    prefixes = used(50, 8000)
    assert prefixes.cold_share(1) == 1.0
    for _ in range(10):
        prefixes.use(1, 8000, 50_000, begins=True)
    assert prefixes.cold_share(1) == LEAST_SHARE


def test_a_prefix_may_change_its_length_and_counts_once():
    prefixes = used(1, 30_000)
    prefixes.use(0, 60_000, 0, begins=True)
    assert prefixes.cold_share(0) == 1.0
    prefixes.use(0, 40_000, 0, begins=True)
    assert prefixes.cold_share(0) == LEAST_SHARE
    assert prefixes.mean() == 40_000


def test_prefixes_are_bounded():
    prefixes = used(2 * LIMIT, 1, times=2 * LIMIT, written=0)
    assert len(prefixes._used) == len(prefixes.sessions) == LIMIT
