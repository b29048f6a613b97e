import threading
from collections import Counter

import pytest

from promptgroup_operator.base.fair_pool import FairPool, may_begin, share

SECONDS = 30


@pytest.fixture
def pool():
    pool = FairPool(16, "test")
    yield pool
    pool.close()


def test_a_namespace_gets_half_of_what_the_others_leave():
    running = Counter()
    for namespace in ("a", "b", "c", "d"):
        while may_begin(16, running, namespace):
            running[namespace] += 1
    assert running == {"a": 8, "b": 4, "c": 2, "d": 1}
    assert may_begin(16, running, "e")


@pytest.mark.parametrize(("size", "others", "expected"), [(1, 0, 1), (2, 0, 1), (8, 8, 1), (8, 3, 3), (5, 0, 3)])
def test_everybody_has_a_share(size, others, expected):
    assert share(size, others) == expected


def test_work_that_hangs_keeps_no_other_namespace_waiting(pool):
    over = threading.Event()
    hanging = [pool.submit("a", lambda: over.wait(SECONDS)) for _ in range(100)]
    assert pool.submit("b", lambda: "read").result(SECONDS) == "read"
    assert pool.map("b", lambda item: item * 2, [1, 2, 3], SECONDS) == [2, 4, 6]
    over.set()
    assert all(each.result(SECONDS) for each in hanging)


def test_what_is_late_is_missing_and_is_not_begun_afterwards(pool):
    over, begun = threading.Event(), []

    def hang(item):
        begun.append(item)
        over.wait(SECONDS)

    assert pool.map("a", hang, range(20), 0.01) == [None] * 20
    over.set()
    assert pool.submit("a", lambda: "after").result(SECONDS) == "after"
    assert len(begun) <= 8


def test_an_error_of_a_job_is_its_callers(pool):
    with pytest.raises(ZeroDivisionError):
        pool.map("a", lambda item: 1 // item, [0], SECONDS)


def test_a_closed_pool_begins_nothing(pool):
    over = threading.Event()
    waiting = [pool.submit("a", lambda: over.wait(SECONDS)) for _ in range(20)]
    pool.close()
    assert sum(each.cancelled() for each in waiting) == 12
    assert pool.submit("b", over.set).cancelled()
    over.set()
