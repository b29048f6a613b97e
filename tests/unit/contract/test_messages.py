import pytest

from promptgroup_contract.messages import canonical_messages, read_messages

SAID = [("user", 'Grüße "x"\n'), ("assistant", "Hello")]


def test_the_canonical_form_is_json_without_blanks_in_utf_8():
    form = '[{"content":"Grüße \\"x\\"\\n","role":"user"},{"content":"Hello","role":"assistant"}]'
    assert canonical_messages(SAID) == form
    assert read_messages(form) == SAID


def test_no_messages_are_no_text():
    assert canonical_messages([]) == ""
    assert read_messages("") == []


@pytest.mark.interpreted
@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{}",
        "7",
        "null",
        "no JSON",
        "[" * 100_000,
        '[{"role":"user","content":"Hi"}]',  # another order of keys
        '[{"content":"Hi","role":"user"} ]',
        '[{"content":"Hi","role":"system"}]',
        '[{"content":7,"role":"user"}]',
        '[{"content":"Hi","role":"user","name":"Eve"}]',
        '[{"content":"Hi","role":"user"},7]',
    ],
)
def test_anything_else_is_refused_without_its_text(text):
    with pytest.raises(ValueError, match=r"^messages are not [a-zA-Z ]+$") as caught:
        read_messages(text)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
