import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_operator.base.printable import in_line, printable

BIDI = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B"),
        ("模型 é 👩‍🔬", "模型 é 👩‍🔬"),
        ("a\x1b[2Jb", "a\\u001b[2Jb"),
        ("a\x07b\r\nc", "a\\u0007b\\u000d\nc"),
        ("a\u202etxt.exe", "a\\u202etxt.exe"),
        ("\x9b31m", "\\u009b31m"),
        ("a\u2028b", "a\\u2028b"),
    ],
)
def test_what_a_terminal_would_obey_is_written_as_an_escape(text, shown):
    assert printable(text) == shown


def test_a_message_has_one_line():
    assert in_line("a\r\n\tb") == "a\\u000d b"


@given(st.text(st.characters() | st.characters(categories=["Cc", "Cf", "Zl", "Zp", "Cs"])))
def test_no_text_keeps_what_moves_a_cursor_or_turns_text(text):
    shown = printable(text)
    assert printable(shown) == shown
    for character in shown:
        assert character in "\t\n" or unicodedata.category(character) not in {"Cc", "Zl", "Zp", "Cs"}
        assert unicodedata.bidirectional(character) not in BIDI
    shown.encode()


@given(st.text())
def test_a_document_of_json_stays_what_it_is(text):
    document = json.dumps({"text": text.replace("\ud800", "")}, ensure_ascii=False)
    assert json.loads(printable(document)) == json.loads(document)
