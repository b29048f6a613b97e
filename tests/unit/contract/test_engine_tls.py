import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_contract.engine_tls import CONFIG_MAP, SECRET, EngineTls, parse


@pytest.mark.parametrize(
    "tls",
    [
        EngineTls(CONFIG_MAP, "engine-ca", "ca.crt", "engines.chat.svc"),
        EngineTls(SECRET, "a", "b"),
        EngineTls(SECRET, "n" * 253, "k" * 253, "s" * 253),
    ],
)
def test_a_value_is_read_as_it_was_written(tls):
    assert parse(tls.text()) == tls


@pytest.mark.parametrize(
    "text",
    ["", "ConfigMap", "ConfigMap/a", "ConfigMap/a/", "Pod/a/b", "Secret/a/b/c/d", "Secret/a/b/", "Secret/../b",
     "Secret/a b/c", "Secret/a/b/c\n", "secret/a/b"],
)  # fmt: skip
def test_what_is_no_value_is_none(text):
    assert parse(text) is None


@given(st.text(max_size=600))
def test_any_text_is_none_or_what_it_says(text):
    found = parse(text)
    assert found is None or found.text() == text
