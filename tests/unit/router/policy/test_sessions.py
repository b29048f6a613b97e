from promptgroup_router.policy import sessions
from promptgroup_router.policy.sessions import SESSION_SECONDS, SessionRecord, Sessions

HERE = ("chat/support/aa/0", "c1")


def test_sessions_and_their_tokens_add_up_by_prefix():
    found = Sessions()
    found.served(1, SessionRecord(11, HERE, 100.0, 0.0))
    found.served(2, SessionRecord(11, HERE, 50.0, 1.0))
    found.served(3, SessionRecord(12, HERE, 7.0, 1.0))
    assert found.totals(1.0) == {11: (2, 150), 12: (1, 7)}


def test_a_session_counts_once_with_what_it_has_last():
    found = Sessions()
    found.served(1, SessionRecord(11, HERE, 100.0, 0.0))
    found.served(1, SessionRecord(11, HERE, 180.0, 5.0))
    assert found.totals(5.0) == {11: (1, 180)}
    found.served(1, SessionRecord(12, HERE, 90.0, 6.0))
    assert found.totals(6.0) == {12: (1, 90)}
    assert 1 in found
    found.drop(1)
    found.drop(1)
    assert found.totals(6.0) == {}
    assert 1 not in found


def test_a_session_that_fell_silent_is_not_expected_back():
    found = Sessions()
    found.served(1, SessionRecord(11, HERE, 100.0, 0.0))
    found.served(2, SessionRecord(11, HERE, 10.0, 5.0))
    found.served(1, SessionRecord(11, HERE, 100.0, 9.0))
    assert found.totals(5.0 + SESSION_SECONDS) == {11: (2, 110)}
    assert found.totals(5.1 + SESSION_SECONDS) == {11: (1, 100)}
    assert found.totals(10.0 + SESSION_SECONDS) == {}


def test_the_longest_silent_go_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr(sessions, "LIMIT", 2)
    found = Sessions()
    for session in (1, 2, 3):
        found.served(session, SessionRecord(11, HERE, 1.0, float(session)))
    assert found.totals(3.0) == {11: (2, 2)}
    assert 1 not in found


def test_sessions_and_their_tokens_add_up_by_the_process_that_served_them_last():
    found, there = Sessions(), ("chat/support/aa/1", "c2")
    found.served(1, SessionRecord(11, HERE, 100.0, 0.0))
    found.served(2, SessionRecord(12, HERE, 50.0, 1.0))
    found.served(3, SessionRecord(11, there, 7.0, 1.0))
    assert (found.of_process(HERE), found.of_process(there)) == ((2, 150), (1, 7))
    found.served(1, SessionRecord(11, there, 120.0, 2.0))
    assert (found.of_process(HERE), found.of_process(there)) == ((1, 50), (2, 127))
    found.totals(1.1 + SESSION_SECONDS)
    assert (found.of_process(HERE), found.of_process(there)) == ((0, 0), (1, 120))


def test_a_process_that_takes_a_slot_over_has_no_sessions():
    found = Sessions()
    found.served(1, SessionRecord(11, HERE, 100.0, 0.0))
    assert found.of_process((HERE[0], "the next one")) == (0, 0)
