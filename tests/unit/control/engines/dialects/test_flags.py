"""How command lines of engines are read."""

from promptgroup_operator.engines.dialects.flags import decimal, flag_of, number, values_of


def test_a_flag_is_spelled_with_dashes_and_ends_at_its_value():
    assert flag_of("--kv_offloading_size=3") == "--kv-offloading-size"


def test_the_last_number_wins_and_what_is_none_counts_as_one():
    names = ("--tp", "--tp-size")
    assert number(["--tp=2", "--tp_size", "4"], names) == 4
    assert number(["--tp=2", "--tp=many"], names) == 1
    assert number(["--tp"], names) == number([], names) == 1


def test_values_stand_behind_a_sign_or_in_the_next_word():
    words = ["--one=1", "--two", "2", "--three", "--four", "-4", "rest"]
    assert dict(values_of(words)) == {"--one": "1", "--two": "2", "--three": "", "--four": "", "-4": "rest"}


def test_only_plain_decimals_are_numbers():
    assert [decimal(text) for text in ("1.5", "12", "1e9", "-1", "", None, "9" * 20)] == [1.5, 12, 0, 0, 0, 0, 0]
