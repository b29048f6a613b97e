from promptgroup_router.policy.health import FIRST_BACKOFF, LAST_BACKOFF, TRIAL_SECONDS, Health


def test_a_failure_ejects_for_a_backoff_that_doubles_to_a_limit():
    health, now, backoffs = Health(), 0.0, []
    for _ in range(8):
        assert health.failed("m", "a", now)
        step = FIRST_BACKOFF
        while not health.available("m", "a", now + step):
            step += FIRST_BACKOFF
        backoffs.append(step)
        now += step
    assert backoffs == [1, 2, 4, 8, 16, LAST_BACKOFF, LAST_BACKOFF, LAST_BACKOFF]


def test_requests_that_fail_together_are_one_failure():
    health = Health()
    assert health.failed("m", "a", 0.0)
    assert not health.failed("m", "a", 0.5)
    assert health.available("m", "a", FIRST_BACKOFF)


def test_an_answer_clears_the_record():
    health = Health()
    health.failed("m", "a", 0.0)
    assert not health.no_failures()
    health.succeeded("m")
    assert health.no_failures()
    assert health.available("m", "a", 0.0)


def test_another_incarnation_starts_anew():
    health = Health()
    for now in (0.0, 1.0, 3.0):
        health.failed("m", "a", now)
    assert not health.available("m", "a", 4.0)
    assert health.available("m", "b", 4.0)
    assert health.failed("m", "b", 4.0)
    assert health.available("m", "b", 4.0 + FIRST_BACKOFF)


def test_members_that_the_table_has_no_more_are_forgotten():
    health = Health()
    health.failed("m", "a", 0.0)
    health.failed("n", "a", 0.0)
    health.keep({"n"})
    assert health.available("m", "a", 0.0)
    assert not health.available("n", "a", 0.0)


def half_open() -> Health:
    """A member that failed at 0 and has its trial since 1."""
    health = Health()
    health.failed("m", "a", 0.0)
    assert health.available("m", "a", 1.0)
    health.sent("m", "a", 1.0)
    return health


def test_after_the_backoff_one_request_is_the_trial():
    health = half_open()
    assert not health.available("m", "a", 1.0)
    assert not health.available("m", "a", TRIAL_SECONDS)


def test_a_trial_that_is_answered_closes_the_breaker():
    health = half_open()
    health.succeeded("m")
    assert health.available("m", "a", 1.0)
    assert health.no_failures()


def test_a_trial_that_fails_opens_it_for_twice_as_long():
    health = half_open()
    assert health.failed("m", "a", 1.5)
    assert not health.available("m", "a", 3.4)
    assert health.available("m", "a", 3.5)


def test_a_trial_that_tells_nothing_is_followed_by_another():
    health = half_open()
    assert health.available("m", "a", 1.0 + TRIAL_SECONDS)


def test_a_request_during_the_backoff_is_no_trial():
    health = Health()
    health.failed("m", "a", 0.0)
    health.sent("m", "a", 0.5)  # all members are ejected, so that this one is as good as another
    assert not health.failed("m", "a", 0.6)
    assert health.available("m", "a", 1.0)
