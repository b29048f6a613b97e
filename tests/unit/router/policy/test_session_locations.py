from promptgroup_router.policy.session_locations import QUIET_SECONDS, Placement, SessionLocations


def place(member="a", tokens=100.0, seen=0.0, written=0.0):
    return Placement(member, 7, 1, tokens, written, seen)


def test_a_session_is_where_it_was_put_until_it_is_quiet_for_too_long():
    locations = SessionLocations()
    locations.put(1, place(seen=10.0))
    assert locations.get_fresh(1, 10.0 + QUIET_SECONDS).member == "a"
    assert locations.get_fresh(1, 10.1 + QUIET_SECONDS) is None
    assert locations.get(1) is not None
    assert locations.get_fresh(2, 10.0) is None


def test_a_move_remembers_what_was_left_behind_and_the_next_turn_there_does_not_forget_it():
    locations = SessionLocations()
    locations.put(1, place("a", tokens=500, written=30))
    locations.put(1, place("b", tokens=600))
    locations.put(1, place("b", tokens=700))
    found = locations.get_fresh(1, 0.0)
    assert (found.member, found.tokens) == ("b", 700)
    assert (found.before, found.before_tokens, found.before_written) == ("a", 500, 30)


def test_the_least_recently_used_go_first_and_the_newest_are_told_first():
    locations = SessionLocations(limit=2)
    for session in (1, 2, 1, 3):
        locations.put(session, place())
    assert [session for session, _ in locations.newest_first()] == [3, 1]
    assert len(locations) == 2


def test_a_copy_comes_behind_what_is_known_and_never_over_it():
    locations = SessionLocations(limit=4)
    locations.put(1, place("mine"))
    for session in (9, 1, 8, 7, 6):  # the newest first
        locations.restore(session, place("theirs"))
    assert [session for session, _ in locations.newest_first()] == [1, 9, 8, 7]
    assert locations.get(1).member == "mine"


def test_the_records_may_change_while_they_are_read():
    locations = SessionLocations()
    for session in range(5):
        locations.put(session, place())
    read = locations.newest_first()
    assert next(read)[0] == 4
    locations.put(7, place())
    locations.put(4, place())
    assert [session for session, _ in read] == [3, 2, 1, 0]
