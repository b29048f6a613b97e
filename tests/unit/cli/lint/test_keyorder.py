"""JSON inside of text, in one spelling."""

import pytest

from promptgroup_cli.lint import keyorder


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ('Facts: {"b": 1, "a": [{"d": 2, "c": 3}]} end', 'Facts: {"a":[{"c":3,"d":2}],"b":1} end'),
        ('{"b":1,"a":2}{ "d" :1,"c":2}', '{"a":2,"b":1}{"c":2,"d":1}'),
        ('no JSON {"a": and {"b": 1, "a": 2}', 'no JSON {"a": and {"a":2,"b":1}'),
        ("{name} [1, 2]", "{name} [1, 2]"),
        ('{"' * 5000, '{"' * 5000),
        ('{"a":' * 5000, '{"a":' * 5000),
    ],
)
def test_the_form(text, form):
    assert keyorder.ordered(text) == form
