"""A kept answer."""

from dataclasses import replace

from support.asks import BORN, answer


def test_the_size_counts_what_pieces_take_beside_their_bytes():
    one, many = answer(pieces=(b"x" * 1000,)), answer(pieces=(b"x",) * 1000)
    assert many.size > 10 * one.size
    assert replace(one, pieces=()).size > 0


def test_an_age_is_never_negative():
    assert answer().age(BORN - 5) == 0
