import pytest

from promptgroup_router.prefixes.volatile import TOP_CHARACTERS, TOP_TOKENS, on_top

RULES = "You are the support assistant of Example Ltd. " * 10


@pytest.mark.parametrize(
    ("top", "rules"),
    [
        ("2026-11-24T12:00:01Z\n", ["timestamp"]),
        ("[2026-11-24 12:00] ", ["timestamp"]),
        ("1764000000 ", ["timestamp"]),
        ("Current date: 2026-11-24\n", ["current-date"]),
        ("Today is the 24th of the month. ", ["current-date"]),
        ("12:00:01 ", ["time"]),
        ("f47ac10b-58cc-4372-a567-0e02b2c3d479 ", ["uuid"]),
        ("Request #17. ", ["counter"]),
        ("Date: 2026-11-24\nTime: 12:00:01\n", ["date", "time"]),
        ("", []),
    ],
)
def test_what_stands_on_top_is_found_by_the_rules_of_lint(top, rules):
    found = on_top(top + RULES)
    assert [each.rule for each in found] == rules
    rest = top
    for each in reversed(found):
        rest = rest[: each.start] + rest[each.end :]
    assert not any(letter.isdigit() for letter in rest)


def test_only_the_top_is_looked_at_and_so_many_tokens():
    assert on_top("x" * TOP_CHARACTERS + " 2026-11-24 12:00:01") == []
    assert len(on_top("12:00:01 " * 100)) == TOP_TOKENS


def test_a_token_that_goes_on_behind_the_top_is_taken_whole():
    text = "x" * (TOP_CHARACTERS - 6) + " 2026-11-24 12:00:01 and so on 1"
    assert on_top("1 " + text) == []  # the part of it that was looked at is no date
    text = "x" * (TOP_CHARACTERS - 12) + " 2026-11-24 12:00:01 and so on"
    [found] = on_top(text)
    assert text[found.start : found.end] == "2026-11-24 12:00:01"
