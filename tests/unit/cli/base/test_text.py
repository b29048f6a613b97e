from promptgroup_cli.base.text import INDENT, WIDTH, columns, counted, fact


def test_columns_are_as_wide_as_their_widest_cell_and_rows_may_end_early():
    assert columns([("NAME", "READY", "WHY"), ("support", "True", "-"), ("a",)]) == [
        "NAME      READY   WHY",
        "support   True    -",
        "a",
    ]


def test_no_rows_are_no_lines():
    assert columns([]) == []


def test_a_long_fact_goes_on_under_itself():
    lines = fact("Not ready", "word " * 40)
    assert lines[0].startswith("Not ready:    word")
    assert all(line.startswith(" " * INDENT + "word") for line in lines[1:])
    assert max(map(len, lines)) <= WIDTH
    assert fact("", "more")[0] == " " * INDENT + "more"


def test_one_has_no_s():
    assert [counted(count, "byte") for count in (0, 1, 2, 1200)] == ["0 bytes", "1 byte", "2 bytes", "1,200 bytes"]
