import pytest

from promptgroup_router.policy.working_set import LIVE_SECONDS, UNHEARD_SECONDS, WorkingSet


def test_a_shared_prefix_counts_once_and_goes_with_the_last_session_that_has_it():
    live = WorkingSet()
    live.enter(1, 7, 2000, 100)
    live.enter(2, 7, 2000, 50)
    assert live.tokens == 2150
    live.drop(1)
    assert live.tokens == 2050
    live.drop(2)
    assert (live.tokens, len(live)) == (0, 0)


def test_what_a_session_would_add():
    live = WorkingSet()
    assert live.need(1, 7, 2000, 100) == 2100
    live.enter(1, 7, 2000, 100)
    assert live.need(2, 7, 2000, 100) == 100
    assert live.need(1, 7, 2000, 130) == 30


def test_a_session_grows_with_its_turns_and_never_shrinks():
    live = WorkingSet()
    live.enter(1, 7, 0, 100)
    live.enter(1, 7, 0, 300)
    live.enter(1, 7, 0, 200)
    assert live.tokens == 300


def test_a_session_lives_while_it_runs_and_a_while_longer():
    live = WorkingSet()
    live.enter(1, 7, 0, 100)
    live.enter(1, 7, 0, 100)
    live.leave(1, 10.0)
    live.expire(1000.0)
    assert live.in_flight(1)
    live.leave(1, 1000.0)
    live.expire(999.9 + LIVE_SECONDS)
    assert 1 in live
    live.expire(1000.0 + LIVE_SECONDS)
    assert 1 not in live


def test_a_session_that_comes_back_in_time_is_not_forgotten_by_its_earlier_end():
    live = WorkingSet()
    live.enter(1, 7, 0, 100)
    live.leave(1, 0.0)
    live.enter(1, 7, 0, 100)
    live.expire(LIVE_SECONDS)
    assert 1 in live
    live.leave(1, LIVE_SECONDS)
    live.expire(LIVE_SECONDS + 1)
    assert 1 in live


def test_a_session_of_a_peer_lives_until_its_end_is_heard_or_is_not_heard_for_too_long():
    live = WorkingSet()
    live.heard(1, 7, 0, 100, 0.0, ended=False)
    live.heard(2, 7, 0, 100, 0.0, ended=False)
    live.heard(1, 7, 0, 150, 10.0, ended=True, shared=40)
    assert live.shared(1) == 40
    live.expire(10.0 + LIVE_SECONDS)
    assert 1 not in live
    assert 2 in live
    live.expire(UNHEARD_SECONDS)
    assert (len(live), live.tokens) == (0, 0)


def test_a_peer_that_speaks_of_a_session_that_runs_here_does_not_end_it():
    live = WorkingSet()
    live.enter(1, 7, 0, 100)
    live.heard(1, 7, 0, 100, 0.0, ended=True)
    live.expire(1000.0)
    assert live.in_flight(1)


def test_the_end_of_a_request_whose_session_has_moved_is_nothing():
    live = WorkingSet()
    live.enter(1, 7, 0, 100)
    live.drop(1)
    live.leave(1, 0.0)
    live.expire(1000.0)
    assert (len(live), live.tokens) == (0, 0)


def test_a_session_under_another_prefix_takes_that_one():
    live = WorkingSet()
    live.enter(1, 7, 2000, 100)
    live.enter(1, 8, 500, 90)
    assert live.tokens == 590
    live.leave(1, 0.0)
    assert live.in_flight(1)


def test_between_two_turns_a_session_counts_as_much_as_sessions_come_back():
    live = WorkingSet()
    for session in range(200):  # people who read for longer than a session stays live
        now = session * 10.0
        live.expire(now)
        live.enter(session, 7, 0, 100)
        live.leave(session, now)
    assert live.returning[0] < 0.1
    assert live.tokens < 10
    assert live.need(199, 7, 0, 100) > 90
    live.enter(199, 7, 0, 100)
    assert live.tokens == pytest.approx(100)


def test_sessions_that_come_back_within_seconds_count_in_full():
    live = WorkingSet()
    for session in range(20):
        for turn in range(10):
            live.enter(session, 7, 0, 100, returned=turn > 0)
            live.leave(session, session * 10.0 + turn)
    assert live.returning[0] > 0.8
    assert live.returning[1] == 1.0
    live.expire(195.0)
    assert live.tokens == pytest.approx(100 * len(live))


def test_a_session_that_came_back_and_found_no_room_did_come_back():
    live = WorkingSet()
    for session in range(50):
        live.enter(session, 7, 0, 100)
        live.leave(session, 0.0)
        live.arrive(session, 100, later=True)
    live.expire(LIVE_SECONDS)
    assert (live.tokens, len(live)) == (0, 0)
    assert live.returning[0] > 0.8


def test_questions_about_one_document_are_no_conversation():
    live = WorkingSet()
    for number, question in enumerate([40, 30, 50, 45, 20, 55, 50, 35, 10, 41]):
        live.enter(1, 7, 0, 3000, size=12_000 + question)
        live.leave(1, float(number))
    assert live.returning[0] < 0.5
    assert live.kept == 0
    live.enter(1, 7, 0, 3000, size=12_056)
    assert live.kept == 3000
    live.arrive(1, 12_000, later=False)
    assert live.kept == 0


def test_a_text_that_grows_is_a_conversation():
    live = WorkingSet()
    for turn in range(10):
        live.enter(1, 7, 0, 100 * turn, size=400 * turn)
        live.leave(1, float(turn))
    assert live.returning == [pytest.approx(1 / 4), 1.0]
    assert live.kept == 900


def test_the_first_turn_that_is_sent_again_is_no_return():
    live = WorkingSet()
    for session in range(20):
        for _ in range(3):
            live.enter(session, 7, 0, 100, size=400)
            live.leave(session, 0.0)
    assert live.returning[0] == 0


def between_two_turns(tokens, *, returned):
    """Twenty sessions that rested here, and of which a peer has sent a request since."""
    live = WorkingSet()
    for session in range(20):
        live.enter(session, 7, 0, 100, size=400)
        live.leave(session, 0.0)
        live.heard(session, 7, 0, tokens, 1.0, ended=False, returned=returned)
    return live


def test_a_peer_that_does_not_know_whether_a_request_is_a_later_turn_says_nothing_of_returns():
    live = between_two_turns(100, returned=False)
    assert (live.returning[0], live.kept, live.running) == (0, 0, 2000)
    for session in range(20):
        live.heard(session, 7, 0, 0, 2.0, ended=True, returned=False)
    live.expire(2.0 + LIVE_SECONDS)
    assert len(live) == 0
    assert live.returning[0] == 0


def test_a_peer_that_knows_of_a_later_turn_says_that_the_session_returned():
    live = between_two_turns(200, returned=True)
    assert live.returning[0] > 0.8
    assert live.kept == 4000


def test_what_is_kept_is_that_of_the_sessions_that_have_come_back():
    live = WorkingSet()
    live.enter(1, 7, 2000, 100)
    live.enter(2, 7, 2000, 300, returned=True)
    assert live.kept == 300
    live.leave(1, 0.0)
    live.enter(1, 8, 500, 150, returned=True)
    assert live.kept == 450
    live.drop(2)
    assert live.kept == 150
    live.drop(1)
    assert live.kept == 0


def test_running_are_the_unshared_tokens_of_the_sessions_with_a_request_in_flight():
    live = WorkingSet()
    live.enter(1, 7, 2000, 100)
    live.enter(2, 7, 2000, 300)
    live.enter(2, 7, 2000, 350)
    live.heard(3, 7, 2000, 500, 0.0, ended=False)
    assert live.running == 950
    assert [live.running_beside(session) for session in (1, 2, 3, 4)] == [850, 600, 450, 950]
    live.leave(2, 0.0)
    assert live.running == 950  # its other request still runs
    live.leave(2, 0.0)
    live.heard(3, 7, 2000, 500, 0.0, ended=True)
    assert live.running == 100
    live.enter(1, 8, 500, 150)  # another prompt
    assert live.running == 150
    live.drop(1)
    assert live.running == 0


def test_a_request_that_waits_in_the_router_is_not_running():
    live = WorkingSet()
    live.enter(1, 7, 0, 100)
    live.leave(1, 0.0)
    live.arrive(1, 100, later=True)
    assert live.running == 0


def test_a_session_whose_request_waits_in_the_router_takes_no_room_until_it_is_sent():
    live = WorkingSet()
    live.enter(1, 7, 2000, 100, returned=True)
    live.enter(2, 7, 2000, 300, returned=True)
    live.leave(1, 0.0)
    live.arrive(1, 400, later=True)
    live.hold(1)
    assert live.tokens == 2300
    assert 1 in live
    assert live.need(1, 7, 2000, 100) == 100
    live.enter(1, 7, 2000, 150, returned=True)
    assert live.tokens == 2450


def test_a_session_that_runs_keeps_its_room_while_another_request_of_it_waits():
    live = WorkingSet()
    live.enter(1, 7, 0, 100)
    live.hold(1)
    live.hold(2)
    assert (live.tokens, len(live)) == (100, 1)
