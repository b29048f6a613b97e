"""What really differs between the texts of a log, and what only looks as if it did."""

from promptgroup_cli.lint import variants
from support.lints import STATIC, chat, declared, found, report

JSON = STATIC + ' Facts: {"b": 1, "a": "2026-11-21"}'
SWAPPED = STATIC + ' Facts: {"a": "2026-11-21", "b": 1}'


def dated(second, text=STATIC):
    return f"Time: 18:11:{second:02}. {text}"


def test_a_token_that_differs_is_an_error():
    (finding,) = [
        each for each in report(chat(dated(1)), chat(dated(2)), chat(dated(2))).findings if each.rule.id == "time"
    ]
    assert (finding.severity.name, finding.place.offset, finding.requests) == ("ERROR", 6, 3)
    assert "3 requests bring 2 versions" in finding.message


def test_a_token_that_many_requests_agree_on_is_a_note():
    assert found(*[chat(dated(1))] * variants.STABLE) == [("time", "note", "system", 6)]
    assert found(*[chat(dated(1))] * (variants.STABLE - 1)) == [("time", "warning", "system", 6)]
    assert found(*[chat(f"Today is 2026-11-21. {STATIC}")] * variants.STABLE) == [
        ("current-date", "error", "system", 0)
    ]


def test_of_two_tokens_the_one_that_differs():
    texts = [f"{STATIC} At 10:00:00 or {time}." for time in ("18:11:01", "18:11:02")]
    assert found(*map(chat, texts)) == [
        ("time", "error", "system", len(STATIC) + 16),
        ("time", "warning", "system", len(STATIC) + 4),
    ]


def test_prompts_that_are_spelled_in_two_ways():
    assert found(chat(STATIC), chat(STATIC + "\n")) == [("blanks-differ", "error", "system", 0)]
    assert found(chat(f"{STATIC} It's fine"), chat(f"{STATIC} It\u2019s fine")) == [
        ("characters-differ", "error", "system", 0)
    ]
    assert found(chat(STATIC), chat(STATIC.replace("shortly", "briefly"))) == []


def test_keys_in_another_order_with_a_date_inside():
    assert ("json-key-order", "error", "system", 0) in found(chat(JSON), chat(SWAPPED))
    assert ("json-key-order", "error", "system", 0) not in found(chat(JSON), chat(JSON))


def test_several_differences_at_once_are_told_apart():
    rules = {rule for rule, severity, *_ in found(chat(dated(1)), chat(dated(2) + "\n")) if severity == "error"}
    assert rules == {"time", "blanks-differ"}


def test_a_message_says_where_the_other_text_stands():
    (finding,) = report(chat(STATIC, line=3), chat(STATIC + " ", line=8)).findings
    assert (finding.place.line, finding.message.endswith("log:3 has the same text otherwise")) == (8, True)


def test_two_files_are_two_matters():
    assert found(declared(STATIC), chat(STATIC + "\n")) == []


def test_a_log_of_ever_new_texts_takes_no_more_memory(monkeypatch):
    monkeypatch.setattr(variants, "EXAMINED", 16)
    seen = variants.Variants(0)
    for number in range(200):
        seen.see(chat(f"{STATIC} {'x' * number}"))
    assert (len(seen._by_hash), len(seen._classes), seen.unexamined) == (16, 16, 184)


def test_the_token_is_quoted_as_far_as_was_asked_for():
    assert [each.excerpt for each in report(declared(dated(1)), show=5).findings] == ["18:11"]
    assert [each.excerpt for each in report(declared(dated(1), secret=True), show=5).findings] == [""]
