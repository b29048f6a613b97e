"""What keeps two questions apart although they sound alike."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_router.semantic.differences import Difference, difference
from support.examples import examples

SAME = [
    ("How do I cancel my order?", "How can I cancel an order, please"),
    ("Can I get 5 of them?", "can i get five of them"),
    ("Does it work with PayPal?", "does it work with paypal"),
    ("Germany is where I live. Do you ship there?", "Do you ship to me? I live in germany"),
    ("I don't have it", "I do not have it"),
    ("What is John's limit?", "What limit does John have?"),
    ("Is it open on Mondays?", "is it open on monday"),
    ("How do I pay? I'm new here.", "How do I pay when I'm new?"),
]
APART = [
    ("Can I return it within 30 days?", "Can I return it within 60 days?", Difference.NUMBER),
    ("Is there a fee of 5 %?", "Is there a fee of 5 $?", Difference.NUMBER),
    ("What is new in 3.2.1?", "What is new in 3.2.10?", Difference.NUMBER),
    ("Who came second?", "Who came third?", Difference.NUMBER),
    ("From 5 to 7?", "From 7 to 5?", Difference.NUMBER),
    ("Is it open on Monday?", "Is it open on Tuesday?", Difference.DATE),
    ("When is the next payment?", "When was the last payment?", Difference.DATE),
    ("Can I pay by card?", "Can't I pay by card?", Difference.NEGATION),
    ("Can I pay by card?", "Can\u2019t I pay by card?", Difference.NEGATION),
    ("Is it with sugar?", "Is it without sugar?", Difference.NEGATION),
    ("Kann ich zahlen?", "Kann ich nicht zahlen?", Difference.NEGATION),
    ("How do I enable it?", "How do I disable it?", Difference.OPPOSITE),
    ("What's the tax in Germany?", "What's the tax in France?", Difference.NAME),
    ("Convert USD to EUR", "Convert EUR to USD", Difference.NAME),
    ("Does it run on an iPhone?", "Does it run on a phone?", Difference.NAME),
    ("Does it work with PayPal?", "Does it work?", Difference.NAME),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_what_says_the_same_is_not_kept_apart(one, other):
    assert difference(one, other) is None
    assert difference(other, one) is None


@pytest.mark.parametrize(("one", "other", "reason"), APART)
def test_what_says_something_else_is_kept_apart(one, other, reason):
    assert difference(one, other) is reason
    assert difference(other, one) is reason


@examples(300)
@given(st.text(), st.text())
def test_it_is_the_same_in_both_directions_and_nothing_differs_from_itself(one, other):
    assert difference(one, one) is None
    assert difference(one, other) is difference(other, one)


@examples(300)
@given(st.text(max_size=40), st.integers(0, 10**6), st.integers(0, 10**6))
def test_other_digits_are_never_the_same_question(text, one, other):
    assert (difference(f"{text} {one}", f"{text} {other}") is None) is (one == other)
