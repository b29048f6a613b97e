from promptgroup_router.policy.session_locations import QUIET_SECONDS, Place, Places


def place(member="a", tokens=100.0, seen=0.0, written=0.0):
    return Place(member, 7, 1, tokens, written, seen)


def test_a_session_is_where_it_was_put_until_it_is_quiet_for_too_long():
    places = Places()
    places.put(1, place(seen=10.0))
    assert places.recall(1, 10.0 + QUIET_SECONDS).member == "a"
    assert places.recall(1, 10.1 + QUIET_SECONDS) is None
    assert places.peek(1) is not None
    assert places.recall(2, 10.0) is None


def test_a_move_remembers_what_was_left_behind_and_the_next_turn_there_does_not_forget_it():
    places = Places()
    places.put(1, place("a", tokens=500, written=30))
    places.put(1, place("b", tokens=600))
    places.put(1, place("b", tokens=700))
    found = places.recall(1, 0.0)
    assert (found.member, found.tokens) == ("b", 700)
    assert (found.before, found.before_tokens, found.before_written) == ("a", 500, 30)


def test_the_least_recently_used_go_first_and_the_newest_are_told_first():
    places = Places(limit=2)
    for session in (1, 2, 1, 3):
        places.put(session, place())
    assert [session for session, _ in places.newest()] == [3, 1]
    assert len(places) == 2


def test_a_copy_comes_behind_what_is_known_and_never_over_it():
    places = Places(limit=4)
    places.put(1, place("mine"))
    for session in (9, 1, 8, 7, 6):  # the newest first
        places.copy(session, place("theirs"))
    assert [session for session, _ in places.newest()] == [1, 9, 8, 7]
    assert places.peek(1).member == "mine"


def test_the_records_may_change_while_they_are_read():
    places = Places()
    for session in range(5):
        places.put(session, place())
    read = places.newest()
    assert next(read)[0] == 4
    places.put(7, place())
    places.put(4, place())
    assert [session for session, _ in read] == [3, 2, 1, 0]
