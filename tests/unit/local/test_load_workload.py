import statistics

from promptgroup_local.load.workload import MOST_TURNS, conversations, sessions, tasks


def test_a_seed_gives_the_same_sessions_and_another_seed_others() -> None:
    assert sessions(tasks(), 20, 1) == sessions(tasks(), 20, 1)
    assert sessions(tasks(), 20, 1) != sessions(tasks(), 20, 2)


def test_more_sessions_begin_with_the_same_ones() -> None:
    assert sessions(tasks(), 30, 1)[:20] == sessions(tasks(), 20, 1)


def test_first_messages_and_ids_tell_sessions_apart() -> None:
    drawn = sessions(tasks(), 300, 1) + sessions(tasks(), 300, 2)
    assert len({session.turns[0].text for session in drawn}) == len(drawn)
    assert len({session.id for session in drawn}) == len(drawn)


def test_the_number_of_turns_is_geometric_with_mean_five() -> None:
    lengths = [len(session.turns) for session in sessions(tasks(), 3000, 7)]
    assert 4.7 < statistics.mean(lengths) < 5.2
    assert (min(lengths), max(lengths)) == (1, MOST_TURNS)
    assert 0.17 < lengths.count(1) / len(lengths) < 0.23


def test_the_number_of_turns_can_be_fixed_and_tasks_take_turns() -> None:
    drawn = sessions(tasks(), 6, 1, turns=3)
    assert {len(session.turns) for session in drawn} == {3}
    assert [session.task.name for session in drawn] == ["summarise", "code", "write"] * 2


def test_a_conversation_knows_what_is_left() -> None:
    (conversation,) = conversations(sessions(tasks(), 1, 1, turns=3))
    conversation.sent = 2
    assert conversation.rest == conversation.session.turns[2:]
