from promptgroup_router.sessions import QUIET_SECONDS, Seat, Sessions


def test_a_session_is_where_it_was_recorded_last():
    sessions = Sessions()
    assert sessions.recall("g", 1, 0.0) is None
    assert not sessions.record("g", 1, "f", 2, 5.0)
    assert sessions.recall("g", 1, 6.0) == Seat("f", 2, 5.0)
    assert sessions.recall("other", 1, 6.0) is None


def test_another_slot_or_revision_counts_as_a_move():
    sessions = Sessions()
    sessions.record("g", 1, "f", 2, 0.0)
    assert not sessions.record("g", 1, "f", 2, 1.0)
    assert sessions.record("g", 1, "f", 3, 2.0)
    assert sessions.record("g", 1, "e", 3, 3.0)


def test_a_quiet_session_has_ended():
    sessions = Sessions()
    sessions.record("g", 1, "f", 2, 0.0)
    assert sessions.recall("g", 1, QUIET_SECONDS) is not None
    assert sessions.recall("g", 1, QUIET_SECONDS + 1) is None
    assert not sessions.record("g", 1, "f", 3, QUIET_SECONDS + 1)


def test_the_record_is_bounded_and_forgets_the_one_used_longest_ago():
    sessions = Sessions(limit=2)
    sessions.record("g", 1, "f", 0, 0.0)
    sessions.record("g", 2, "f", 0, 1.0)
    sessions.record("g", 1, "f", 0, 2.0)
    sessions.record("g", 3, "f", 0, 3.0)
    assert [sessions.recall("g", key, 4.0) is not None for key in (1, 2, 3)] == [True, False, True]
    assert len(sessions) == 2
