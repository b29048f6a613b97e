from promptgroup_contract.fingerprint import fingerprint
from promptgroup_router.rings.ids import member_id
from promptgroup_router.routing.moves import LATELY, MOST_MOVES, Moves

PRINT = fingerprint("You are the support assistant.")
A, B = (member_id("chat/support", PRINT, slot) for slot in (0, 1))


def test_a_move_is_told_by_labels_and_age():
    moves = Moves()
    moves.add(A, B, now=100.0)
    moves.add(B, A, now=101.0)
    assert list(moves.documents(now=102.5)) == [
        {"from": f"chat/support/{PRINT[:8]}/0", "to": f"chat/support/{PRINT[:8]}/1", "secondsAgo": 2.5},
        {"from": f"chat/support/{PRINT[:8]}/1", "to": f"chat/support/{PRINT[:8]}/0", "secondsAgo": 1.5},
    ]


def test_a_move_of_long_ago_is_not_told():
    moves = Moves()
    moves.add(A, B, now=100.0)
    assert list(moves.documents(now=100.0 + LATELY)) != []
    assert list(moves.documents(now=100.1 + LATELY)) == []


def test_of_many_moves_the_latest_are_kept():
    moves = Moves()
    for number in range(2 * MOST_MOVES):
        moves.add(A, B, now=number / MOST_MOVES)
    told = list(moves.documents(now=2.0))
    assert len(told) == MOST_MOVES
    assert told[0]["secondsAgo"] == 1.0
