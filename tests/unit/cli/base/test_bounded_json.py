import pytest

from promptgroup_cli.base.bounded_json import DEPTH, JsonError, parse


def test_a_document():
    assert parse(b'{"a": [1, 2.5, null]}') == {"a": [1, 2.5, None]}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not JSON, at line 1 column 1"),
        (b'{\n "a": secret}', "not JSON, at line 2 column 7"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "nested"),
        (b"[" * 5000 + b"]" * 5000, "nested more than 254 levels"),
        (b"[" * (DEPTH + 1) + b"]" * (DEPTH + 1), "nested more than 254 levels"),
    ],
)
def test_what_is_refused_is_not_quoted(content, words):
    with pytest.raises(JsonError, match=words) as error:
        parse(content)
    assert "secret" not in str(error.value)


def test_the_deepest_that_is_taken():
    assert parse(b"[" * DEPTH + b"]" * DEPTH)
