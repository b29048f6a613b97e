import threading
from datetime import timedelta

import pytest

from promptgroup_operator.base.backoff import FIRST_RETRY, LAST_RETRY
from promptgroup_operator.passes.work_queue import WorkQueue
from promptgroup_operator.world.snapshot import Key

A, B = Key("chat", "a"), Key("chat", "b")
SOON = timedelta(seconds=5)


class Clock:
    """Time that passes when told."""

    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        return self.seconds


def drained(queue):
    """Keys that are due, in order: where a take would wait, the queue closes."""
    queue._condition.wait = lambda _=None: setattr(queue, "_closed", True)
    taken = []
    while (key := queue.take()) is not None:
        taken.append(key)
    return taken


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def queue(clock):
    return WorkQueue(clock)


def test_a_key_that_is_added_twice_is_taken_once(queue):
    queue.add(A)
    queue.add(A)
    assert drained(queue) == [A]


def test_keys_come_in_the_order_in_which_they_are_due(queue, clock):
    queue.add(A, timedelta(seconds=2))
    queue.add(B, timedelta(seconds=1))
    clock.seconds = 3
    assert drained(queue) == [B, A]


def test_a_key_is_not_taken_before_it_is_due(queue, clock):
    queue.add(A, SOON)
    clock.seconds = 4.9
    assert drained(queue) == []


def test_the_depth_is_what_is_due_and_does_not_run(queue, clock):
    queue.add(A)
    queue.add(B, SOON)
    assert queue.depth() == 1
    clock.seconds = 5
    assert queue.depth() == 2
    assert queue.take() == A
    queue.add(A)
    assert queue.depth() == 1


def test_a_key_is_due_when_the_first_who_asked_said(queue, clock):
    queue.add(A, SOON)
    queue.add(A)
    queue.add(A, SOON)
    assert drained(queue) == [A]


def test_a_key_that_runs_is_not_taken_a_second_time(queue):
    queue.add(A)
    assert queue.take() == A
    queue.add(A)
    queue.add(B)
    assert drained(queue) == [B]


def test_a_key_that_was_added_while_it_ran_runs_again(queue):
    queue.add(A)
    queue.take()
    queue.add(A)
    queue.done(A, None)
    assert drained(queue) == [A]


def test_a_key_that_is_done_and_gone_is_not_taken_again(queue):
    queue.add(A)
    queue.take()
    queue.done(A, None)
    assert drained(queue) == []


def test_a_key_that_is_done_is_looked_at_again_when_told(queue, clock):
    queue.add(A)
    queue.take()
    queue.done(A, SOON)
    clock.seconds = 5
    assert drained(queue) == [A]


def test_failures_in_a_row_wait_longer_and_a_success_ends_them(queue, clock):
    waits = []
    for _ in range(6):
        queue.add(A)
        queue.take()
        waits.append(queue.failed(A))
        clock.seconds += LAST_RETRY.total_seconds()
    assert all(FIRST_RETRY / 2 * 2**i <= wait <= FIRST_RETRY * 2**i for i, wait in enumerate(waits))
    queue.take()
    queue.done(A, None)
    queue.add(A)
    queue.take()
    assert queue.failed(A) <= FIRST_RETRY


def test_a_failed_key_waits_as_long_as_the_server_asked(queue, clock):
    queue.add(A)
    queue.take()
    assert queue.failed(A, timedelta(minutes=2)) == timedelta(minutes=2)
    clock.seconds = 119
    assert drained(queue) == []


def test_a_failed_key_is_taken_at_once_when_something_new_happened(queue):
    queue.add(A)
    queue.take()
    queue.failed(A)
    queue.add(A)
    assert drained(queue) == [A]


def test_a_failed_key_that_was_added_while_it_ran_waits_for_the_back_off(queue, clock):
    queue.add(A)
    queue.take()
    queue.add(A)  # its own first write, say
    queue.add(A, ahead=True)
    wait = queue.failed(A).total_seconds()
    assert drained(queue) == []
    queue._closed = False
    clock.seconds = wait
    assert drained(queue) == [A]


def test_a_pass_is_told_that_its_key_got_priority_since_it_began(queue):
    queue.add(A, ahead=True)
    assert queue.is_ahead(A)
    queue.take()
    assert not queue.is_ahead(A)
    queue.add(A)
    assert not queue.is_ahead(A)
    queue.add(A, ahead=True)
    assert queue.is_ahead(A)


def test_a_key_that_went_ahead_and_failed_goes_ahead_again_until_a_pass_succeeds(queue, clock):
    queue.add(B, ahead=True)
    assert queue.take() == B
    wait = queue.failed(B).total_seconds()
    queue.add(A)
    clock.seconds = wait
    queue.add(Key("chat", "c"))
    assert queue.take() == B, "though others have waited for longer"
    queue.done(B, timedelta())
    assert drained(queue) == [A, B, Key("chat", "c")]


@pytest.mark.parametrize("ahead", [False, True])
def test_nothing_makes_a_key_due_before_the_server_asked(queue, clock, ahead):
    queue.add(A)
    queue.take()
    queue.add(A, ahead=ahead)
    queue.failed(A, timedelta(seconds=30))
    clock.seconds = 1
    queue.add(A, ahead=ahead)
    clock.seconds = 29.9
    assert drained(queue) == []
    assert queue.depth() == 0
    queue._closed = False
    clock.seconds = 30
    assert queue.depth() == 1
    assert drained(queue) == [A]


def test_the_time_that_a_server_asked_for_holds_for_the_next_pass_only(queue, clock):
    queue.add(A)
    queue.take()
    queue.failed(A, timedelta(seconds=30))
    clock.seconds = 30
    assert queue.take() == A
    queue.done(A, SOON)
    queue.add(A)
    assert drained(queue) == [A]


def test_a_key_that_waits_for_a_server_keeps_no_other_waiting(queue, clock):
    queue.add(A)
    queue.take()
    queue.failed(A, timedelta(seconds=30))
    queue.add(A, ahead=True)
    queue.add(B)
    assert drained(queue) == [B]


def test_closing_wakes_everybody_who_waits():
    queue = WorkQueue()
    taken = []
    waiters = [threading.Thread(target=lambda: taken.append(queue.take())) for _ in range(3)]
    for waiter in waiters:
        waiter.start()
    queue.close()
    for waiter in waiters:
        waiter.join(timeout=5)
    assert taken == [None, None, None]


def test_a_closed_queue_gives_nothing():
    queue = WorkQueue()
    queue.add(A)
    queue.close()
    assert queue.take() is None


def test_adding_wakes_one_who_waits_for_a_later_key():
    queue = WorkQueue()
    queue.add(A, timedelta(hours=1))
    taken = []
    waiter = threading.Thread(target=lambda: taken.append(queue.take()))
    waiter.start()
    queue.add(B)
    waiter.join(timeout=5)
    assert taken == [B]
    queue.close()


def test_passes_of_one_namespace_leave_workers_for_all_others():
    queue = WorkQueue(workers=8)
    for number in range(100):
        queue.add(Key("hostile", f"g{number}"))
    assert {queue.take().namespace for _ in range(4)} == {"hostile"}
    queue.add(Key("chat", "support"))
    queue.add(Key("sales", "support"))
    assert {queue.take().namespace for _ in range(2)} == {"chat", "sales"}


def test_namespaces_whose_passes_hang_leave_a_place_for_each_that_has_none(clock):
    queue = WorkQueue(clock, workers=8)
    for namespace in "abcdefgh":
        for number in range(10):
            queue.add(Key(namespace, f"g{number}"))
    hanging = [queue.take() for _ in range(8)]
    places = [queue.take() for _ in range(8 - len({key.namespace for key in hanging}))]
    assert {key.namespace for key in (*hanging, *places)} == set("abcdefgh")
    chat = Key("chat", "support")
    queue.add(chat)
    assert queue.take() == chat, "though eight passes hang, and each of their namespaces has more to do"
    assert drained(queue) == []
    assert queue._of_namespace["chat"] == 1


@pytest.mark.parametrize(("seconds", "begins"), [(0.1, True), (30.0, False)])
def test_a_namespace_whose_last_pass_was_slow_waits_for_its_share(clock, seconds, begins):
    queue = WorkQueue(clock, workers=2)
    slow = Key("slow", "a")
    queue.add(slow)
    assert queue.take() == slow
    clock.seconds = seconds
    queue.done(slow, timedelta())
    for namespace in "ab":
        queue.add(Key(namespace, "g"), ahead=True)
    assert {queue.take().namespace for _ in range(2)} == {"a", "b"}
    assert drained(queue) == ([slow] if begins else [])


def test_a_namespace_that_has_its_share_goes_on_when_a_pass_ends():
    queue = WorkQueue(workers=2)
    first, second = Key("chat", "a"), Key("chat", "b")
    queue.add(first)
    queue.add(second)
    taken = queue.take()
    found = []
    waiting = threading.Thread(target=lambda: found.append(queue.take()))
    waiting.start()
    queue.done(taken, None)
    waiting.join(10)
    assert {taken, *found} == {first, second}


def test_of_a_namespace_without_a_pass_nothing_is_kept(queue):
    for key in (A, B):
        queue.add(key)
        queue.take()
    assert queue._of_namespace == {A.namespace: 2}
    queue.done(A, None)
    queue.failed(B, timedelta())
    assert not queue._of_namespace


def test_once_the_server_is_back_what_failed_runs_at_once_but_for_what_was_asked_to_wait(queue):
    for key in (A, B):
        queue.add(key)
        queue.take()
    for _ in range(8):
        queue.failed(A)
    queue.failed(B, timedelta(minutes=1))
    queue.retry_failed()
    assert queue.take() == A
    assert queue.depth() == 0
    queue.done(A, timedelta(minutes=1))
    queue.retry_failed()
    assert queue.depth() == 0, "it has not failed"
