import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_router.policy.costs import EngineCosts
from promptgroup_router.policy.expected_ttft import MARGIN
from promptgroup_router.policy.gossip import LoadReport
from promptgroup_router.policy.replica_load import UNSEEN_DELAY, ReplicaLoad


def replica():
    return ReplicaLoad(1, "a", EngineCosts(kv_tokens=100_000, prefill_rate=10_000), 0.0)


def send(books, seconds=1.0, now=0.0, **how):
    return books.send(seconds, 1000, now, **({"streamed": True} | how))


def test_a_backlog_adds_up_and_runs_off_with_time():
    books = replica()
    send(books, 1.0)
    send(books, 0.5)
    assert books.wait(0.0) == 1.5
    assert books.wait(1.0) == 0.5


def test_a_backlog_stays_while_an_engine_that_is_full_computes_nothing():
    books = replica()
    first, *rest = [send(books, 0.25) for _ in range(8)]
    step = books.costs.step_tokens / books.costs.rate
    assert books.wait(0.5) == pytest.approx(1.5)
    assert books.wait(60.0) == pytest.approx(2.0 - step)  # at most the prompts of one step can be computed
    books.progress(first, 60.0)
    assert books.wait(60.0) == pytest.approx(1.75)
    for sent in rest:
        books.leave(sent)
    assert books.wait(60.0) == 0


def test_a_long_prompt_is_computed_for_as_long_as_it_takes():
    books = replica()
    send(books, 5.0)
    send(books, 0.5)
    assert books.wait(3.0) == pytest.approx(2.5)
    assert books.wait(60.0) == pytest.approx(0.5)


def test_a_backlog_runs_off_with_time_where_the_oldest_prompt_may_be_that_of_a_peer():
    books = replica()
    send(books, 0.5)
    books.merge(7, LoadReport(1, 1, 30_000, 5.0, 0.0, 0, waiting=1), 0.0)
    assert books.wait(3.0) == pytest.approx(2.5)
    assert books.wait(60.0) == 0


def test_a_first_token_sets_the_clock_right_whether_early_or_late():
    early, late = replica(), replica()
    for books, when in ((early, 0.2), (late, 3.0)):
        first = send(books, 1.0)
        send(books, 0.5)
        books.progress(first, when)
        assert books.wait(when) == pytest.approx(0.5)


def test_a_first_token_says_that_all_before_it_is_computed():
    books = replica()
    send(books, 5.0)
    second = send(books, 0.5)
    third = send(books, 0.25)
    books.progress(second, 1.0)
    assert books.wait(1.0) == pytest.approx(0.25)
    books.progress(third, 1.1)
    assert books.wait(1.1) == 0


def test_an_answer_that_is_not_streamed_is_caught_up_by_time_and_by_others():
    books = replica()
    whole = send(books, 1.0, streamed=False)
    assert books.late(50.0) == 0
    assert books.wait(2.0) == 0
    send(books, 0.5, now=2.0)
    assert books.wait(2.0) == pytest.approx(0.5)
    books.progress(whole, 2.1)
    assert books.wait(2.1) == pytest.approx(0.4)
    books.leave(whole)
    assert books.in_flight == 1


def test_a_request_that_left_before_its_first_token_is_not_waited_for():
    books = replica()
    gone, stays = send(books, 1.0), send(books, 0.5)
    books.leave(gone)
    assert books.wait(0.0) == pytest.approx(0.5)
    books.progress(stays, 0.6)
    books.leave(stays)
    assert (books.wait(0.6), books.in_flight, books.context, books.late(9.0)) == (0, 0, 0, 0)


def answered(books):
    """Let a request be answered in time, so that the pace of its engine is known."""
    sent = send(books, 0.0)
    books.progress(sent, sent.due)
    books.leave(sent)


def test_an_overdue_first_token_is_waited_for_as_long_again():
    books = replica()
    answered(books)
    sent = send(books, 1.0)
    assert books.late(sent.due) == 0
    assert books.late(sent.due + 2.0) == pytest.approx(2.0)
    books.progress(sent, sent.due + 2.0)
    assert books.late(sent.due + 3.0) == 0


def test_before_any_first_token_an_overdue_one_counts_at_most_as_its_prefill():
    books = replica()
    sent = send(books, 1.0)
    assert books.late(sent.due + 0.5) == pytest.approx(0.5)
    assert books.late(sent.due + 60.0) == pytest.approx(1.0 + UNSEEN_DELAY)
    sibling = ReplicaLoad(2, "b", books.costs, 0.0)
    answered(sibling)
    assert books.late(sent.due + 60.0) > 50, "an engine of the same kind has answered meanwhile"


def test_before_any_first_token_very_short_requests_leave_a_home_that_is_overdue():
    books = replica()
    sent = send(books, 0.0)
    assert books.late(sent.due + 60.0) > MARGIN


def test_a_long_prompt_is_not_overdue_for_a_delay_in_proportion_to_it():
    books = replica()
    for _ in range(20):
        sent = send(books, 0.1)
        books.progress(sent, sent.due + 0.1)
        books.leave(sent)
    sent = send(books, 4.0)
    assert books.late(sent.due + 4.0) == 0
    assert books.late(sent.due + 100.0) > 50


def test_a_first_token_that_is_as_late_as_those_before_it_is_not_overdue():
    books = replica()
    for _ in range(20):
        sent = send(books, 1.0)
        books.progress(sent, sent.due + 2.0)
        books.leave(sent)
    sent = send(books, 1.0)
    assert books.late(sent.due + 2.0) == 0
    assert books.late(sent.due + 100.0) > 50


def test_a_late_first_token_counts_no_more_than_the_time_since_the_engine_showed_that_it_is_not_stuck():
    books = replica()
    answering, early, stuck = (send(books, 0.1) for _ in range(3))
    books.progress(answering, 0.1)
    books.progress(early, 4.0)
    books.costs.delay = 0.0
    assert books.late(9.0) == pytest.approx(5.0)
    books.leave(answering, answered=8.0)
    assert books.late(9.0) == pytest.approx(1.0)
    books.leave(early)  # a client that went away shows nothing
    assert books.late(10.0) == pytest.approx(2.0)
    books.progress(stuck, 10.0)
    books.leave(stuck, answered=10.0)
    books.costs.delay = 0.0
    last = send(books, 0.1, now=50.0)
    assert books.late(last.due) == 0, "an idle engine is not stuck"
    assert books.late(60.0) == pytest.approx(60.0 - last.due)


def test_a_step_grows_with_what_runs():
    books = replica()
    idle = books.step
    sent = send(books)
    assert books.step > idle
    books.leave(sent)
    assert books.step == idle


def test_what_a_cache_holds_is_bounded_by_its_tokens_and_the_longest_unused_goes_first():
    books = replica()
    for prefix in range(1, 52):
        books.touch(prefix, 2000)
        books.touch(7, 2000)
    assert len(books.prefixes) == 50
    assert 7 in books.prefixes
    assert 1 not in books.prefixes
    books.wrote(100_000)
    assert 7 not in books.prefixes


def load(**fields):
    return LoadReport(
        **({"member": 1, "in_flight": 2, "context": 3000, "pending": 0.7, "age": 0.1, "written": 500} | fields)
    )


def test_what_peers_put_there_counts_like_its_own_and_only_the_newest_of_each():
    books = replica()
    books.merge(8, load(), now=0.2)
    books.merge(9, load(pending=0.2), now=0.2)
    assert (books.load, books.peer_context) == (4, 6000)
    assert books.wait(0.2) == pytest.approx(0.8)  # 0.9, and 0.1 have passed since the last sign of progress
    books.merge(8, load(in_flight=0, context=0, pending=0.0), now=0.3)
    assert books.load == 2


def test_tokens_written_by_a_peer_count_from_the_first_time_it_is_heard():
    books = replica()
    books.merge(8, load(written=1_000_000), now=0.0)
    assert books.tokens_written == 0
    books.merge(8, load(written=1_000_600), now=1.0)
    assert books.tokens_written == 600


def test_what_peers_write_beyond_the_prefixes_that_they_tell_pushes_older_ones_out():
    books = replica()
    books.merge(8, load(written=0), now=0.0)
    books.heard(7, 60_000)
    books.merge(8, load(written=70_000), now=1.0)
    assert 7 in books.prefixes  # what was written is the prefix, and 10,000 tokens more
    books.merge(8, load(written=99_000), now=2.0)
    assert 7 in books.prefixes
    books.merge(8, load(written=101_000), now=3.0)
    assert 7 not in books.prefixes


def test_a_peer_that_is_gone_leaves_what_it_has_written_and_nothing_else():
    books = replica()
    books.merge(8, load(written=0), now=0.0)
    books.merge(8, load(written=600), now=1.0)
    books.drop_peer(8)
    books.drop_peer(8)
    assert (books.load, books.wait(1.0), books.tokens_written) == (0, 0, 600)


def test_what_is_told_is_what_is_heard():
    books, other = replica(), replica()
    send(books, 1.0, now=5.0)
    other.merge(1, books.export(5.5), now=7.0)
    assert other.wait(7.0) == pytest.approx(0.5)
    assert other.load == 1


def test_first_tokens_that_peers_wait_for_are_in_the_queue_until_they_came():
    books = replica()
    books.merge(8, load(waiting=3), now=0.2)
    books.merge(9, load(waiting=1), now=0.2)
    assert books.queue == 4
    books.merge(8, load(waiting=0), now=0.3)
    assert books.queue == 1
    books.expire_peers(100.0)
    assert books.queue == 0


def test_what_waits_is_what_was_sent_and_has_no_first_token_yet():
    books = replica()
    answered, given_up, whole = (books.send(0.1, 1000, 0.0, streamed=streamed) for streamed in (True, True, False))
    assert books.queue == 2
    books.progress(answered, 0.1)
    books.leave(answered)
    books.leave(given_up)
    books.leave(whole)
    assert (books.queue, books.export(0.2).waiting) == (0, 0)


@given(
    told=st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 200_000), st.floats(0, 5), st.integers(0, 9)),
        max_size=60,
    )
)
def test_reports_of_many_peers_add_up_to_the_same_however_they_are_counted(told):
    books = replica()
    for number, (peer, in_flight, tokens, seconds, waiting) in enumerate(told):
        load = LoadReport(7, in_flight, tokens, seconds, 0.1, number, unplaced=tokens, waiting=waiting)
        books.merge(peer, load, 1.0)

    def sums():
        return (
            books.peer_in_flight, books.peer_context, books.peer_unplaced, books.peer_waiting,
            pytest.approx(books.peer_pending), pytest.approx(books.peer_written),
        )  # fmt: skip

    counted = sums()
    books.expire_peers(1.0)  # adds all of them up
    assert sums() == counted
