import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_operator.base.withheld import QUOTED, SHOWN, withheld

PROMPT = 'You are the support agent of Example Inc.\nNever say "no" to anybody who asks politely.'
SPELLINGS = {
    "as it is": PROMPT,
    "as a repr": repr(PROMPT),
    "a part of it": PROMPT[10:50],
    "cut": PROMPT[:33] + "...",
    "escaped twice": repr(repr(PROMPT)),
    "on more lines": PROMPT.replace(" ", "\n"),
}


@pytest.mark.parametrize("how", SPELLINGS)
def test_a_quotation_is_taken_out_however_it_is_spelled(how):
    shown = withheld(f'admission webhook denied the request: data "{SPELLINGS[how]}" is not allowed', [PROMPT])
    assert shown.startswith("admission webhook denied the request: data")
    assert shown.endswith("is not allowed")
    assert "[withheld]" in shown
    assert "support" not in shown


def test_a_secrets_text_is_found_as_the_api_server_holds_it():
    encoded = base64.b64encode(PROMPT.encode()).decode()
    assert encoded[20:60] not in withheld(f"denied: {encoded}", [PROMPT, encoded])


def test_a_message_that_quotes_nothing_stays():
    said = '.spec.template.spec.containers[name="engine"].env[name="A"].value: expected string, got 8'
    assert withheld(said, [PROMPT, "", "a b"]) == said


@given(st.text(max_size=5000), st.lists(st.text(max_size=200), max_size=3), st.data())
def test_nothing_that_is_long_enough_to_be_a_quotation_is_left(around, secrets, data):
    quoted = data.draw(st.sampled_from(secrets)) if secrets else ""
    at = data.draw(st.integers(0, len(around)))
    shown = withheld(around[:at] + quoted + around[at:], secrets)
    assert len(shown) <= SHOWN
    for secret in secrets:
        plain = "".join(letter for letter in secret if letter.isalnum())
        left = ["".join(letter for letter in part if letter.isalnum()) for part in shown.split("[withheld]")]
        windows = {plain[start : start + QUOTED] for start in range(len(plain) - QUOTED + 1)}
        assert not [part for part in left for window in windows if window in part]
