"""Requests that wait for a group to have a replica: their order, their bounds, and that each leaves once."""

import pytest

from promptgroup_router.features.sleeping.held_requests import (
    CALLER_SHARE,
    MOST_BYTES,
    MOST_HELD,
    FullError,
    HeldRequests,
)


def hold(held, item, *, group="chat/a", caller="", size=1, until=300.0):
    return held.put(item, group=group, caller=caller, size=size, until=until)


def released(held, goes=lambda item: True):
    found = []

    def take(item):
        if goes(item):
            found.append(item)
            return True
        return False

    held.release(take)
    return found


def test_requests_go_on_in_the_order_in_which_they_came():
    held = HeldRequests()
    for number in range(200):
        hold(held, number, caller=str(number % 3))
    assert released(held) == list(range(200))
    assert len(held) == 0
    assert held.by_group == {}


def test_those_of_a_group_that_still_sleeps_stay():
    held = HeldRequests()
    for number in range(4):
        hold(held, number, group=f"chat/{number % 2}")
    assert released(held, lambda item: item % 2 == 0) == [0, 2]
    assert held.by_group == {"chat/1": 2}
    assert list(held) == [1, 3]


def test_one_whose_client_has_left_is_gone():
    held = HeldRequests()
    ticket = hold(held, "a")
    hold(held, "b")
    held.withdraw(ticket)
    held.withdraw(ticket)
    assert released(held) == ["b"]


def test_one_that_leaves_while_others_go_on_is_not_offered():
    held = HeldRequests()
    hold(held, "a")
    other = hold(held, "b")
    assert released(held, lambda item: held.withdraw(other) is None) == ["a"]


def test_a_request_waits_until_its_time_is_over():
    held = HeldRequests()
    hold(held, "a", until=10.0)
    hold(held, "b", until=20.0)
    assert list(held.expire(9.9)) == []
    assert list(held.expire(10.0)) == ["a"]
    assert list(held) == ["b"]


def test_one_that_leaves_while_others_are_given_up_is_not_given_up_itself():
    held = HeldRequests()
    hold(held, "a", until=10.0)
    other = hold(held, "b", until=10.0)
    given_up = []
    for item in held.expire(10.0):
        given_up.append(item)
        held.withdraw(other)
    assert given_up == ["a"]


def test_a_group_has_room_for_so_many_requests_and_no_more():
    held = HeldRequests()
    for number in range(MOST_HELD):
        hold(held, number)
    with pytest.raises(FullError):
        hold(held, "one more")
    hold(held, "of another", group="chat/b")
    held.withdraw(1)
    hold(held, "in its place")


@pytest.mark.parametrize(("caller", "most"), [("", MOST_BYTES), ("team", MOST_BYTES // CALLER_SHARE)])
def test_bytes_are_bounded_for_a_group_and_for_a_caller(caller, most):
    held = HeldRequests()
    hold(held, "stays", caller=caller, size=1)
    ticket = hold(held, "a", caller=caller, size=most - 1)
    with pytest.raises(FullError):
        hold(held, "b", caller=caller, size=1)
    held.withdraw(ticket)
    hold(held, "b", caller=caller, size=most - 1)


def test_a_caller_leaves_room_for_others():
    held = HeldRequests()
    for number in range(MOST_HELD // CALLER_SHARE):
        hold(held, number, caller="greedy")
    with pytest.raises(FullError):
        hold(held, "more", caller="greedy")
    hold(held, "mine", caller="other")
