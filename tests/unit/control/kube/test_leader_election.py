import threading

import pytest

from promptgroup_operator.base.errors import ClusterError, NotLeadingError
from promptgroup_operator.kube.leader_election import LeaderElector, Term
from promptgroup_operator.kube.lease import DURATION, RENEW_DEADLINE, RETRY
from support.fakelease import FakeLeases

PATH = "/apis/coordination.k8s.io/v1/namespaces/system/leases/operator"


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def server():
    return FakeLeases()


def elector(server, clock, identity):
    term = Term(float("-inf"), clock)
    return LeaderElector(server, "system", "operator", identity=identity, term=term, clock=clock), term


@pytest.fixture
def two(server, clock):
    """Two processes of which the first leads."""
    (first, first_term), (second, second_term) = elector(server, clock, "a"), elector(server, clock, "b")
    first.step()
    second.step()
    assert (first_term.is_leader, second_term.is_leader) == (True, False)
    return first, first_term, second, second_term


def test_a_term_without_a_lease_has_no_end():
    assert Term(float("inf")).seconds_left() == float("inf")


def test_nothing_is_written_before_a_term_or_after_it(clock):
    term = Term(float("-inf"), clock)
    with pytest.raises(NotLeadingError):
        term.seconds_left()
    term.extend(clock.now + 10)
    clock.now += 9
    assert term.seconds_left() == 1
    clock.now += 1
    with pytest.raises(NotLeadingError):
        term.seconds_left()


def test_a_closed_term_is_not_extended_and_wakes_who_waits(clock):
    term = Term(float("-inf"), clock)
    woken = []
    waiting = threading.Thread(target=lambda: woken.append(term.wait()))
    waiting.start()
    term.close()
    waiting.join(timeout=5)
    term.extend(clock.now + 10)
    assert (woken, term.is_leader) == ([False], False)


def test_who_waits_to_lead_is_woken_by_the_lease(clock):
    term = Term(float("-inf"), clock)
    woken = []
    waiting = threading.Thread(target=lambda: woken.append(term.wait()))
    waiting.start()
    term.extend(clock.now + 10)
    waiting.join(timeout=5)
    assert woken == [True]


def test_of_two_that_begin_at_once_one_leads(server, clock):
    (first, first_term), (second, second_term) = elector(server, clock, "a"), elector(server, clock, "b")
    answer = server.request

    def between(method, *rest, **options):
        """The first writes between the second's look and its write."""
        try:
            return answer(method, *rest, **options)
        finally:
            if method == "GET":
                server.request = answer
                first.step()

    server.request = between
    second.step()
    assert (first_term.is_leader, second_term.is_leader) == (True, False)
    assert first.holder == second.holder == "a"


def test_the_other_takes_it_when_it_was_not_renewed_for_its_duration(two, clock):
    _, first_term, second, second_term = two
    clock.now += DURATION - 0.1
    second.step()
    assert not second_term.is_leader
    clock.now += 0.1
    second.step()
    assert second_term.is_leader
    assert not first_term.is_leader


def test_a_renewal_by_the_other_is_waited_for_anew(two, clock):
    first, _, second, second_term = two
    clock.now += DURATION - 1
    first.step()
    second.step()
    clock.now += DURATION - 1
    second.step()
    assert not second_term.is_leader
    clock.now += 1
    second.step()
    assert second_term.is_leader


def test_there_is_never_a_moment_in_which_both_may_write(two, clock, server):
    """The leader is cut off at any moment after a renewal; the other looks every 0.1 s."""
    first, first_term, second, second_term = two
    for cut in (0.0, 1.0, RETRY, 5.0):
        clock.now += cut
        for _ in range(200):
            clock.now += 0.1
            second.step()
            assert not (first_term.is_leader and second_term.is_leader)
            if second_term.is_leader:
                break
        assert second_term.is_leader
        first.step()
        first, first_term, second, second_term = second, second_term, first, first_term


def test_a_term_counts_from_before_the_renewal_was_sent(server, clock):
    one, term = elector(server, clock, "a")
    answer = server.request

    def slow(*arguments, **options):
        clock.now += 3
        return answer(*arguments, **options)

    server.request = slow
    one.step()
    assert term.seconds_left() == RENEW_DEADLINE - 3


def test_who_cannot_renew_writes_no_more_after_the_deadline(two, clock, server):
    first, first_term, _, _ = two
    server.down = True
    clock.now += RENEW_DEADLINE - 0.1
    with pytest.raises(ClusterError, match="down"):
        first.step()
    assert first_term.is_leader
    clock.now += 0.1
    with pytest.raises(NotLeadingError):
        first_term.seconds_left()


def test_who_finds_the_lease_taken_stops_at_once(two, clock, server):
    first, first_term, _, _ = two
    server.objects[PATH] = server.objects[PATH] | {
        "metadata": server.objects[PATH]["metadata"] | {"resourceVersion": "99"},
        "spec": server.objects[PATH]["spec"] | {"holderIdentity": "someone"},
    }
    first.step()
    assert not first_term.is_leader
    assert first.holder == "someone"


def test_a_renewal_whose_answer_was_lost_is_still_a_renewal(two, clock, server):
    first, first_term, _, _ = two
    server.lose_answers = True
    with pytest.raises(ClusterError, match="timed out"):
        first.step()
    server.lose_answers = False
    first.step()  # conflict: the record moved on, by our own hand
    assert first_term.is_leader
    clock.now += RENEW_DEADLINE - 1
    first.step()
    assert first_term.seconds_left() == RENEW_DEADLINE


def test_a_deleted_lease_is_made_again(two, server):
    first, _, second, second_term = two
    del server.objects[PATH]
    first.step()
    first.step()
    second.step()
    assert server.objects[PATH]["spec"]["holderIdentity"] == first.holder == second.holder == "a"
    assert not second_term.is_leader


def test_after_an_outage_longer_than_the_lease_one_leads_again(two, clock, server):
    first, first_term, second, second_term = two
    server.down = True
    for _ in range(30):
        clock.now += RETRY
        for each in (first, second):
            with pytest.raises(ClusterError):
                each.step()
    server.down = False
    second.step()
    first.step()
    assert sorted([first_term.is_leader, second_term.is_leader]) == [False, True]


def test_a_stopped_one_releases_and_the_other_takes_it_at_its_next_look(two, clock):
    first, first_term, second, second_term = two
    first.start()
    first_term.close()
    first.stop()
    second.step()
    assert second_term.is_leader
    assert not first_term.is_leader


def test_one_that_does_not_lead_releases_nothing(two, server):
    _, _, second, _ = two
    second.start()
    second.stop()
    assert server.objects[PATH]["spec"]["holderIdentity"] == "a"
