"""What is asked: requests that share prefixes in the ways that the usual benches do. The same seed asks the same.

A token is a word of three letters and a blank, as the stand-in engines count.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench.peers.drive import NAME
from bench.peers.prose import words

MODEL = NAME
REQUESTS = 400


@dataclass(frozen=True, slots=True)
class Talk:
    """A conversation: the first body without the model, and what the user says on each later turn."""

    path: str
    body: dict[str, object]
    later: tuple[str, ...] = ()
    welcome: str = ""
    """The first answer, in place of the engine's, where an application gives it."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A way to share."""

    title: str
    write: Callable[[random.Random, int], Iterator[Talk]]


CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


def _said(*messages: tuple[str, str]) -> dict[str, object]:
    return {"messages": [{"role": role, "content": content} for role, content in messages]}


def _prefixes(draw: random.Random, seed: int, *, count: int, prefix: int, question: int) -> Iterator[tuple[str, str]]:
    for number in range(REQUESTS):
        yield words(prefix, seed, draw.randrange(count)), words(question, seed, 10_000 + number)


def _in_message(draw: random.Random, seed: int) -> Iterator[Talk]:
    for prefix, question in _prefixes(draw, seed, count=48, prefix=2000, question=400):
        yield Talk(CHAT, _said(("user", prefix + question)))


def _in_system(draw: random.Random, seed: int) -> Iterator[Talk]:
    for prefix, question in _prefixes(draw, seed, count=48, prefix=2000, question=400):
        yield Talk(CHAT, _said(("system", prefix), ("user", question)))


def _documents(draw: random.Random, seed: int) -> Iterator[Talk]:
    for document, question in _prefixes(draw, seed, count=36, prefix=3000, question=40):
        yield Talk(CHAT, _said(("user", document + question)))


def _texts(draw: random.Random, seed: int) -> Iterator[Talk]:
    for document, question in _prefixes(draw, seed, count=36, prefix=3000, question=40):
        yield Talk(TEXT, {"prompt": document + question})


def _agents(draw: random.Random, seed: int) -> Iterator[Talk]:
    for number in range(REQUESTS // 8):
        task = words(2000, seed, draw.randrange(4))
        first, *later = (words(250, seed, 10_000 + 100 * number + turn) for turn in range(8))
        yield Talk(CHAT, _said(("system", task), ("user", first)), tuple(later))


def _transcripts(draw: random.Random, seed: int) -> Iterator[Talk]:
    """The client writes the conversation as one text, as where it applies the model's chat template itself."""
    for talk in _agents(draw, seed):
        (_, task), (_, first) = (message.values() for message in talk.body["messages"])  # type: ignore[attr-defined]
        yield Talk(TEXT, {"prompt": task + first}, talk.later)


def _branches(draw: random.Random, seed: int) -> Iterator[Talk]:
    """Several answers are tried from the same point of a conversation."""
    for number in range(REQUESTS // 16):
        opening, said = words(1500, seed, 5000 + number), words(60, seed, 6000 + number)
        for branch in range(8):
            mine = words(200, seed, 10_000 + 100 * number + branch)
            body = _said(("user", opening), ("assistant", said), ("user", mine))
            yield Talk(CHAT, body, (words(100, seed, 50_000 + 100 * number + branch),))


def _greetings(draw: random.Random, seed: int) -> Iterator[Talk]:
    """All say `hi` first and get the same welcome."""
    welcome = words(100, seed, 1)
    for number in range(REQUESTS // 5):
        later = tuple(words(400, seed, 10_000 + 100 * number + turn) for turn in range(4))
        yield Talk(CHAT, _said(("user", "hi")), later, welcome)


def _tasks(draw: random.Random, seed: int) -> Iterator[Talk]:
    """Few sessions, of a size that engines on a CPU can serve."""
    for number in range(24):
        task = words(700, seed, number % 3)
        first, *later = (words(120, seed, 10_000 + 100 * number + turn) for turn in range(4))
        yield Talk(CHAT, _said(("system", task), ("user", first)), tuple(later))


SHAPES = {
    "message": Shape("48 prefixes of 2,000 tokens, in the one user message", _in_message),
    "system": Shape("the same as system messages", _in_system),
    "documents": Shape("36 documents of 3,000 tokens, then a question", _documents),
    "texts": Shape("the same as text completions", _texts),
    "agents": Shape("50 agents of 4 tasks, 8 turns", _agents),
    "transcripts": Shape("the same as text completions that grow", _transcripts),
    "branches": Shape("25 conversations, 8 branches each", _branches),
    "tasks": Shape("24 sessions of 3 tasks, 4 turns", _tasks),
    "greetings": Shape("80 conversations that begin with the same words", _greetings),
}


def talks(shape: str, seed: int) -> list[Talk]:
    """All conversations of a shape, in the order in which they begin."""
    draw = random.Random(f"{shape}/{seed}")
    return list(SHAPES[shape].write(draw, seed))
