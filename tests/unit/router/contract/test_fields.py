import enum

import pytest

from promptgroup_router.contract import fields
from promptgroup_router.contract.table import TableError


class Colour(enum.StrEnum):
    RED = "Red"


def test_fields_are_read_with_their_defaults():
    data = {"a": 1, "b": "x", "c": [1], "d": "Red"}
    assert fields.mapping(data, "at") is data
    assert (fields.count(data, "a", "at"), fields.count(data, "z", "at", 7)) == (1, 7)
    assert (fields.text(data, "b", "at"), fields.items(data, "c", "at"), fields.items(data, "z", "at")) == (
        "x",
        [1],
        [],
    )
    assert fields.member(Colour, data, "d", "at", None) is fields.member(Colour, data, "z", "at", Colour.RED)


@pytest.mark.parametrize("value", [True, -1, 1.5, "1", None])
def test_a_count_is_a_whole_number(value):
    with pytest.raises(TableError, match=r"at: a is .*, expected a whole number from 0"):
        fields.count({"a": value}, "a", "at")
