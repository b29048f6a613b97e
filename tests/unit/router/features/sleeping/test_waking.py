"""What a request is told that finds its group without any replica on purpose."""

import pytest

from promptgroup_contract.table import Sleep
from promptgroup_router.base.errors import NO_REPLICA_SECONDS
from promptgroup_router.features.sleeping import waking

SINCE = "2026-11-03T11:00:00Z"


@pytest.mark.parametrize(
    ("sleep", "words"),
    [
        (Sleep(300, SINCE), None),
        (Sleep(300, woken=SINCE), None),
        (Sleep(0, SINCE), "it is scaled to zero"),
        (Sleep(300, woken=SINCE, problem="exceeded quota: gpus"), "exceeded quota: gpus"),
    ],
)
def test_who_would_wait_in_vain_is_refused(sleep, words):
    error = waking.refusal(sleep, "chat/a")
    assert (error is None) == (words is None)
    if error is not None:
        assert error.status == 503
        assert words in str(error)


@pytest.mark.parametrize(("start", "seconds"), [(0, NO_REPLICA_SECONDS), (140, 140)])
def test_clients_are_told_to_come_back_when_a_start_is_over(start, seconds):
    error = waking.too_late(Sleep(300, start=start), "chat/a", 300.0)
    assert (b"retry-after", b"%d" % seconds) in error.headers()


def test_a_time_out_says_whether_anybody_has_asked_for_a_replica():
    assert "whether the operator runs" in str(waking.too_late(Sleep(300, SINCE), "chat/a", 300.0))
    assert "whether the operator runs" not in str(waking.too_late(Sleep(300, woken=SINCE), "chat/a", 300.0))


def test_a_request_that_cannot_be_held_may_come_back():
    assert waking.starting(Sleep(300, SINCE, start=7), "chat/a").retry_after == 7


def test_a_full_room_is_an_error_that_passes():
    assert waking.full(Sleep(300, SINCE), "chat/a").status == 503


@pytest.mark.parametrize(("sleep", "words"), [(Sleep(300, SINCE, start=9), "wakes it"), (Sleep(300), "was asked for")])
def test_what_becomes_of_a_request_in_words(sleep, words):
    assert words in waking.in_words(sleep)
    assert "300 s" in waking.in_words(sleep)
