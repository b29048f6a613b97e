import threading
from collections import Counter

import pytest

from promptgroup_operator.base import fair_pool
from promptgroup_operator.base.fair_pool import FairPool, may_begin, may_begin_first, share

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


def test_namespaces_that_fill_the_pool_keep_no_other_from_its_first_job():
    running = Counter({"a": 8, "b": 4, "c": 2, "d": 1, "e": 1})
    assert not any(may_begin(16, running, each) or may_begin_first(16, running, each, ()) for each in "abcde")
    assert may_begin_first(16, running, "f", ())
    assert not may_begin_first(16, running + Counter(f=1), "f", ())
    assert not may_begin_first(16, running, "f", {"f"})
    assert not may_begin_first(16, Counter({str(number): 1 for number in range(32)}), "f", ())


def test_hostile_namespaces_fill_the_pool_and_honest_ones_are_read(pool):
    over = threading.Event()
    hanging = [pool.submit(name, lambda: over.wait(SECONDS)) for name in "abcdefgh" for _ in range(20)]
    try:
        for number in range(20):
            assert pool.submit(f"honest-{number}", lambda: "read").result(SECONDS) == "read"
    finally:
        over.set()
    assert all(each.result(SECONDS) for each in hanging)


def test_a_namespace_whose_job_was_slow_waits_for_its_share(pool, monkeypatch):
    monkeypatch.setattr(fair_pool, "SLOW_SECONDS", -1.0)
    pool.submit("slow", lambda: None).result(SECONDS)
    over = threading.Event()
    hanging = [pool.submit(name, lambda: over.wait(SECONDS)) for name in "abcde" for _ in range(20)]
    waits = pool.submit("slow", lambda: "later")
    assert not waits.running()
    over.set()
    assert waits.result(SECONDS) == "later"
    assert all(each.result(SECONDS) for each in hanging)
    monkeypatch.setattr(fair_pool, "SLOW_SECONDS", SECONDS)
    pool.submit("slow", lambda: None).result(SECONDS)
    pool.close()
    assert "slow" not in pool._slow


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
