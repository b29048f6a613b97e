from promptgroup_router.policy import sessions
from promptgroup_router.policy.sessions import SESSION_SECONDS, Sessions


def test_sessions_and_their_tokens_add_up_by_prefix():
    found = Sessions()
    found.served(1, 11, 100.0, 0.0)
    found.served(2, 11, 50.0, 1.0)
    found.served(3, 12, 7.0, 1.0)
    assert found.totals(1.0) == {11: (2, 150), 12: (1, 7)}


def test_a_session_counts_once_with_what_it_has_last():
    found = Sessions()
    found.served(1, 11, 100.0, 0.0)
    found.served(1, 11, 180.0, 5.0)
    assert found.totals(5.0) == {11: (1, 180)}
    found.served(1, 12, 90.0, 6.0)
    assert found.totals(6.0) == {12: (1, 90)}
    assert 1 in found
    found.drop(1)
    found.drop(1)
    assert found.totals(6.0) == {}
    assert 1 not in found


def test_a_session_that_fell_silent_is_not_expected_back():
    found = Sessions()
    found.served(1, 11, 100.0, 0.0)
    found.served(2, 11, 10.0, 5.0)
    found.served(1, 11, 100.0, 9.0)
    assert found.totals(5.0 + SESSION_SECONDS) == {11: (2, 110)}
    assert found.totals(5.1 + SESSION_SECONDS) == {11: (1, 100)}
    assert found.totals(10.0 + SESSION_SECONDS) == {}


def test_the_longest_silent_go_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr(sessions, "LIMIT", 2)
    found = Sessions()
    for session in (1, 2, 3):
        found.served(session, 11, 1.0, float(session))
    assert found.totals(3.0) == {11: (2, 2)}
    assert 1 not in found
