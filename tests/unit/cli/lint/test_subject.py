"""Where a character of a prompt stands, and what of a request is its prompt."""

from promptgroup_cli.lint.finding import FindingPlace
from promptgroup_cli.lint.subject import TEXT_BYTES, size
from support.lints import chat, declared, text, tool


def test_offsets_are_bytes_and_lines_those_of_the_file():
    subject = declared("Größe\nzwei", lines=True)
    assert subject.place("system", subject.system, 6) == FindingPlace("file", 2, "system", 8)
    assert declared("a\nb").place("system", "a\nb", 2) == FindingPlace("file", 1, "system", 2)


def test_tools_come_before_the_system_text_as_templates_put_them():
    assert [field for field, _ in chat("Be kind.", tools=[tool("look")]).texts()] == ["tools", "system"]
    assert chat("").texts() == ()


def test_of_a_text_completion_the_start_counts_as_its_prompt():
    assert len(text("x" * 9000).system) == TEXT_BYTES


def test_half_a_surrogate_pair_has_a_size():
    assert size("\ud83d") == 3
