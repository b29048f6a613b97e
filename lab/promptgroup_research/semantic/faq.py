"""A made-up FAQ: subjects, each in five wordings, and for each wording questions that sound alike and are others.

Places in braces are filled with products, days, numbers and names. Two wordings of one subject with the same fillings
have one answer; with other fillings, and in the forms of `TRAPS`, they have not.
"""

import itertools
import random
from collections.abc import Iterator
from typing import NamedTuple

from promptgroup_cli.calibration.pairs import Pair

SUBJECTS = (
    ("How do I cancel my order of a {product}?", "How can I cancel an order for a {product}?",
     "I want to cancel the {product} that I ordered", "What must I do to cancel a {product} order?",
     "Please tell me the way to cancel my {product} order"),
    ("How do I return a {product}?", "What is the way to send back a {product}?", "I would like to return my {product}",
     "Where do I send a {product} that I want to return?", "Can you explain how returning a {product} works?"),
    ("Can I return a {product} after {number} days?", "Is it possible to send back a {product} after {number} days?",
     "May I give a {product} back when {number} days have passed?", "Do you take a {product} back after {number} days?",
     "Are returns of a {product} accepted after {number} days?"),
    ("Are you open on {day}?", "Is the shop open on {day}?", "Can I visit the store on {day}?",
     "I would like to come on {day}, is the shop open?", "Do you have opening hours on {day}?"),
    ("When do you open on {day}?", "At what time does the shop open on {day}?", "From what time are you open on {day}?",
     "What is the opening time on {day}?", "How early can I come on {day}?"),
    ("Do you ship to {place}?", "Is delivery to {place} possible?", "Can you send orders to {place}?",
     "I live in {place}, do you deliver there?", "Are shipments to {place} offered?"),
    ("How much is shipping to {place}?", "What does delivery to {place} cost?", "Tell me the shipping fee for {place}",
     "What do you charge to deliver to {place}?", "Which shipping costs apply for {place}?"),
    ("Can I pay with {method}?", "Do you accept {method}?", "Is {method} a way to pay?",
     "Is payment by {method} possible?", "I would like to pay with {method}, does that work?"),
    ("How long is the warranty of a {product}?", "What warranty does a {product} have?",
     "For how long is a {product} under warranty?", "Tell me the length of the warranty for a {product}",
     "How many years of warranty come with a {product}?"),
    ("How do I enable notifications?", "What is the way to enable notifications?", "Where can I enable notifications?",
     "I want to enable notifications", "Please explain how to enable notifications"),
    ("How do I change my password?", "What is the way to change my password?", "Where can I change the password?",
     "I want a different password, how do I change it?", "Please help me change my password"),
    ("How do I change my email address?", "What is the way to change my email address?", "Where can I change my email?",
     "I have a different email address, how do I change it?", "Please help me change my email address"),
    ("Can I use a {product} with water?", "May a {product} be used with water?", "Is a {product} fine with water?",
     "Does a {product} work with water?", "Is using a {product} with water allowed?"),
    ("Is there a discount for {number} or more?", "Do I get a discount when I buy {number} or more?",
     "What discount do you give for {number} or more?", "Is it cheaper to buy {number} or more?",
     "I need {number} or more, is there a discount?"),
    ("Where is my parcel?", "How do I track my parcel?", "Can you tell me where my parcel is?",
     "I want to know where my parcel is", "What is the state of my parcel?"),
    ("How do I get an invoice?", "Where can I download the invoice?", "I need an invoice for my purchase",
     "Please send me an invoice", "What is the way to get an invoice?"),
)  # fmt: skip

FILLINGS = {
    "product": ("kettle", "toaster", "lamp", "heater", "blender", "drill"),
    "number": ("14", "30", "60", "five", "100"),
    "day": ("Monday", "Tuesday", "Friday", "Saturday", "Sunday"),
    "place": ("Germany", "France", "Spain", "Poland", "Norway"),
    "method": ("PayPal", "Visa", "Klarna", "Amex", "Mastercard"),
}

TRAPS = (
    ("Can I ", "Can't I "), ("Do you ", "Don't you "), ("Is ", "Isn't "), ("Are ", "Aren't "),
    ("with water", "without water"), ("enable", "disable"), ("I want to cancel", "I do not want to cancel"),
    ("open on", "closed on"), ("opening", "closing"), ("or more", "or less"),
)  # fmt: skip
"""Words, and replacements that change the question."""


class Question(NamedTuple):
    """A question of the FAQ."""

    answer: str
    """Names its answer."""
    text: str


def questions(fillings: int) -> list[list[Question]]:
    """Return the questions by answer: each in five wordings.

    Args:
        fillings: most fillings of each place.
    """
    result = []
    for number, wordings in enumerate(SUBJECTS):
        places = [place for place in FILLINGS if "{" + place + "}" in wordings[0]]
        for values in itertools.product(*(FILLINGS[place][:fillings] for place in places)):
            filled = dict(zip(places, values, strict=True))
            answer = "-".join((str(number), *values))
            result.append([Question(answer, wording.format(**filled)) for wording in wordings])
    return result


def pairs(seed: int) -> list[Pair]:
    """Return as many pairs with one answer as without: the latter with another filling, a trap, or another subject."""
    draw = random.Random(seed)  # noqa: S311 - a sample
    groups = questions(5)
    same = [Pair(a.text, b.text, same=True) for group in groups for a, b in itertools.combinations(group, 2)]
    others = [*_trapped(groups), *_filled(groups, draw), *_unrelated(groups, draw)]
    draw.shuffle(same)
    draw.shuffle(others)
    size = min(len(same), len(others))
    return same[:size] + others[:size]


def _trapped(groups: list[list[Question]]) -> Iterator[Pair]:
    for group in groups:
        for one, other in itertools.product(group, group):
            for words, trap in TRAPS:
                if words in other.text:
                    yield Pair(one.text, other.text.replace(words, trap), same=False)


def _filled(groups: list[list[Question]], draw: random.Random) -> Iterator[Pair]:
    by_subject: dict[str, list[list[Question]]] = {}
    for group in groups:
        by_subject.setdefault(group[0].answer.partition("-")[0], []).append(group)
    for alike in by_subject.values():
        for one, other in itertools.permutations(alike, 2):
            for question in one:
                yield Pair(question.text, draw.choice(other).text, same=False)


def _unrelated(groups: list[list[Question]], draw: random.Random) -> Iterator[Pair]:
    for group in groups:
        for question in group:
            other = draw.choice(draw.choice(groups))
            if other.answer != question.answer:
                yield Pair(question.text, other.text, same=False)
