from promptgroup_operator.kube.rate_limit import RateLimit


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_the_first_does_not_wait_and_the_next_waits_for_its_turn():
    limit = RateLimit(2.0, Clock())
    assert [limit.reserve(), limit.reserve(), limit.reserve()] == [0.0, 2.0, 4.0]


def test_one_that_comes_late_does_not_wait():
    clock = Clock()
    limit = RateLimit(2.0, clock)
    limit.reserve()
    clock.now += 300
    assert limit.reserve() == 0.0
