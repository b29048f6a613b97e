"""Multi-turn sessions of several tasks, drawn from a seed: the same seed gives the same sessions everywhere.

Every turn sends the whole conversation so far and a new user message, as chat clients do. A session's first user
message is its own, so that a router can distinguish sessions by content; no session header is needed.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from promptgroup_local.load.prompts import TASKS, system_prompt

MEAN_TURNS = 5
"""Mean of the geometric number of turns."""

MOST_TURNS = 20
"""Longer conversations than this are rare (1 %), and one of them would determine the duration of a run."""

_TOPICS = (
    "the quarterly budget",
    "a broken pump",
    "the harbour at night",
    "an unfinished index",
    "the new timetable",
    "a letter from the landlord",
    "the second migration",
    "a lost parcel",
    "the apprentice",
    "the cache of the build",
    "a garden in March",
    "the minutes of the board",
    "an old photograph",
    "the parser",
    "a delayed train",
    "the inventory",
    "the choir",
    "the release notes",
    "a recipe without salt",
    "the lighthouse",
    "the payment queue",
    "a missing signature",
    "the winter coat",
    "the survey",
)

_REQUESTS = (
    "Tell me first what matters about",
    "Leave out everything else and look at",
    "Compare the earlier answer with",
    "Go through it again and explain",
    "Take the other side and consider",
    "Give me one example that involves",
)


@dataclass(frozen=True, slots=True)
class Task:
    """A kind of request: its name and the system prompt that all its sessions share."""

    name: str
    system: str


@dataclass(frozen=True, slots=True)
class Turn:
    """The message of the user, and the longest answer in tokens."""

    text: str
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Session:
    """The plan of one conversation, without answers."""

    id: str
    task: Task
    turns: tuple[Turn, ...]
    streamed: bool = True
    """True if its answers are streamed."""


@dataclass(slots=True)
class Conversation:
    """A session in progress: its later turns may be sent in a later run."""

    session: Session
    history: list[dict[str, str]] = field(default_factory=list)
    """User messages and answers so far, without the system prompt."""
    sent: int = 0
    """Turns that were sent."""

    @property
    def rest(self) -> Sequence[Turn]:
        """Turns that are still to be sent."""
        return self.session.turns[self.sent :]


def tasks(names: Sequence[str] = TASKS, release: int = 1) -> tuple[Task, ...]:
    """Tasks with their system prompts."""
    return tuple(Task(name, system_prompt(name, release)) for name in names)


def sessions(
    of: Sequence[Task], count: int, seed: int, *, turns: int | None = None, series: int | None = None
) -> tuple[Session, ...]:
    """Draw sessions, the tasks in turn.

    Args:
        of: the tasks.
        count: number of sessions.
        seed: seed of the users' messages and their number.
        turns: their number in each session, which is geometric otherwise.
        series: number of the cases that sessions are about, the seed by default. Sessions of two series say the same
            about different cases, so that they share no cache beyond the system prompt.
    """
    series = seed if series is None else series
    draw = random.Random(seed)  # noqa: S311 — a workload, no secret
    drawn = []
    for number in range(count):
        length = turns or _geometric(draw)
        id_ = f"{series}-{number}"
        opening = f"This is about case {series:03}-{number:04}. "
        texts = [(opening if index == 0 else "") + _message(draw) for index in range(length)]
        task = of[number % len(of)]
        drawn.append(Session(id_, task, tuple(Turn(text, draw.randint(12, 64)) for text in texts)))
    return tuple(drawn)


def conversations(of: Sequence[Session]) -> list[Conversation]:
    """The sessions, nothing sent yet."""
    return [Conversation(session) for session in of]


def _geometric(draw: random.Random) -> int:
    """Number of turns with mean MEAN_TURNS, by inversion: every further turn happens with 1 - 1/mean."""
    turns = 1 + int(math.log(1 - draw.random()) / math.log(1 - 1 / MEAN_TURNS))
    return min(turns, MOST_TURNS)


def _message(draw: random.Random) -> str:
    """A user message of 2 to 8 sentences, about 30 to 130 tokens."""
    return " ".join(
        f"{draw.choice(_REQUESTS)} {draw.choice(_TOPICS)} and {draw.choice(_TOPICS)}."
        for _ in range(draw.randint(2, 8))
    )
