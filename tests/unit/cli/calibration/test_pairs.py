"""Reading judged pairs, and holding half of them out."""

import contextlib

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_cli.base.errors import InputError
from promptgroup_cli.calibration.pairs import Pair, is_held_out, read_pairs


def test_each_line_is_a_pair():
    lines = b'{"a":"x","b":"y","same":true}\n\n{"a":"x","b":"z","same":false,"note":1}\n'
    assert read_pairs(lines, "f") == [Pair("x", "y", same=True), Pair("x", "z", same=False)]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"{", "line 1"),
        (b"[]", '"same": true or false'),
        (b'{"a":"x","b":"y"}', '"same": true or false'),
        (b'{"a":"x","b":"y","same":1}', '"same": true or false'),
        (b'{"a":"x","b":" ","same":true}', "no text"),
        (b'{"a":"x","b":"%b","same":true}' % (b"y" * 2001), "2000"),
        (b"\n", "no pairs"),
    ],
)
def test_what_is_no_pair_is_refused_by_its_line(line, says):
    with pytest.raises(InputError, match=r"^secret-free:") as refused:
        read_pairs(line, "secret-free")
    assert says in str(refused.value)


@given(st.binary())
def test_whatever_a_file_has_is_pairs_or_refused(content):
    with contextlib.suppress(InputError):
        assert read_pairs(content, "f")


def test_half_are_held_out_and_pairs_of_one_question_stay_together():
    held = [is_held_out(Pair(f"question {n}", "x", same=True)) for n in range(1000)]
    assert 450 < sum(held) < 550
    assert len({is_held_out(Pair("question", str(n), same=True)) for n in range(50)}) == 1


def test_pairs_are_read_as_they_are_written():
    pair = {"a": "é\n", "b": "z", "same": False}
    assert read_pairs(orjson.dumps(pair), "f") == [Pair("é\n", "z", same=False)]
