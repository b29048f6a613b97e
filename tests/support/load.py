"""Load in the background of a test: sessions of several turns, and what became of them while something was done."""

import asyncio
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Self

import uvloop

from promptgroup_local.kubectl import wait_for
from promptgroup_local.load.client import Outcome, Target, drive
from promptgroup_local.load.workload import Conversation, Task, conversations, sessions, tasks

SESSIONS = 16
"""Sessions at a time."""
TURNS = 12
"""Turns of a session: with the pauses it lives for about ten seconds."""
PAUSE = 0.5
"""Seconds between an answer and the next turn: about twenty requests a second in all, which leaves a shared machine
with two cores room for the control plane."""
BUSY = 1 / 8
"""Share of turns that may leave their replica without a fault: by design they do where a busy machine slows it.

By chance half of them or more would. Who must move when replicas come and go is shown by rings, which are exact.
"""


@dataclass(slots=True)
class Seen:
    """What became of the requests that ended while something was done; filled in at its end."""

    requests: int = 0
    failed: list[str] = field(default_factory=list)
    """Errors of requests for a whole answer."""
    cut: list[str] = field(default_factory=list)
    """Errors of requests for a stream."""
    moves: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(slot before, slot after) → turns that another slot served than the session's turn before."""
    served: Counter[str] = field(default_factory=Counter)
    """Slot → answers, by the router's word."""
    cold: int = 0
    """Requests that met a cold Tier 1, by the engines' word."""

    def changed_revision(self) -> int:
        """Moves to a slot of another revision."""
        return sum(count for (before, after), count in self.moves.items() if _revision(before) != _revision(after))

    def moved(self, besides: Collection[str] = ()) -> int:
        """Moves between slots, without those from or to some."""
        return sum(count for ends, count in self.moves.items() if not set(ends) & set(besides))

    def stayed(self, besides: Collection[str] = (), forced: float = 0) -> bool:
        """Whether sessions kept their replicas, but for those from or to some, so many that had to go, and a few."""
        return self.moved(besides) <= forced + self.requests * BUSY


def _revision(slot: str) -> str:
    return slot.rpartition("/")[0]


def endless(task: Task, seed: int = 1000, turns: int = TURNS) -> Iterator[Conversation]:
    """Sessions without end, every second one streamed; another seed that is a million away draws others."""
    for each in itertools.count(seed):
        for number, session in enumerate(sessions([task], 10, each, turns=turns)):
            yield from conversations([replace(session, streamed=number % 2 == 0)])


def dated(drawn: Iterator[Conversation], at: int = 0) -> Iterator[Conversation]:
    """The sessions, each with a time of its own in the system prompt, behind so many characters of it."""
    for number, each in enumerate(drawn):
        day, second = divmod(number, 86_400)
        top = f"Day {day}, {second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}.\n"
        text = each.session.task.system
        task = replace(each.session.task, system=text[:at] + top + text[at:])
        yield replace(each, session=replace(each.session, task=task))


class Load:
    """Sessions in a thread until the context ends.

    Args:
        target: where they go.
        drawn: they, without end.
        cold: how many requests met a cold Tier 1 so far.
        at_once: sessions at a time.
        pause: seconds between an answer and the next turn.
    """

    def __init__(
        self,
        target: Target,
        drawn: Iterator[Conversation],
        cold: Callable[[], int],
        at_once: int = SESSIONS,
        pause: float = PAUSE,
    ) -> None:
        self._target = target
        self._drawn = drawn
        self._cold = cold
        self._at_once = at_once
        self._pause = pause
        self._outcomes: list[Outcome] = []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="load")

    def __enter__(self) -> Self:
        self._running = self._thread.submit(lambda: uvloop.run(self._drive()))
        self._more(2 * self._at_once)
        return self

    def __exit__(self, *_: object) -> None:
        self._cancel()
        self._running.result(timeout=60)
        self._thread.shutdown()

    async def _drive(self) -> None:
        record = self._outcomes.append
        driving = asyncio.ensure_future(
            drive(self._drawn, self._target, concurrency=self._at_once, pause=self._pause, record=record)
        )
        self._cancel = partial(asyncio.get_running_loop().call_soon_threadsafe, driving.cancel)
        with suppress(asyncio.CancelledError):
            await driving

    @property
    def outcomes(self) -> Sequence[Outcome]:
        """What became of all requests so far, in the order of their ends."""
        return self._outcomes

    @contextmanager
    def watched(self) -> Iterator[Seen]:
        """What becomes of the sessions during the block, and until about each had two more turns."""
        before, cold, seen = len(self._outcomes), self._cold(), Seen()
        yield seen
        self._more(2 * self._at_once)
        outcomes = self._outcomes[:]
        during = outcomes[before:]
        seen.requests = len(during)
        seen.failed = [outcome.error for outcome in during if outcome.failed and not outcome.streamed]
        seen.cut = [outcome.error for outcome in during if outcome.failed and outcome.streamed]
        seen.served = Counter(outcome.served_by for outcome in during if not outcome.failed)
        seen.moves = moves(outcomes, since=before)
        seen.cold = self._cold() - cold

    def served(self, part: str) -> bool:
        """Whether a slot whose name has this part gave the last answers, at least one of them."""
        return any(part in outcome.served_by for outcome in self._outcomes[-self._at_once :])

    def _more(self, count: int) -> None:
        """Wait for so many more answers."""
        wanted = len(self._outcomes) + count

        def come() -> bool | None:
            if self._running.done():
                self._running.result()
            return True if len(self._outcomes) >= wanted else None

        wait_for(come, f"{count} more answers", lambda: [outcome.error for outcome in self._outcomes[-count:]])


def moves(outcomes: Sequence[Outcome], since: int = 0) -> Counter[tuple[str, str]]:
    """(slot before, slot after) → how often a session's turn was served by another slot than the turn before.

    Turns before `outcomes[since]` count as what was before only.
    """
    last: dict[str, str] = {}
    found: Counter[tuple[str, str]] = Counter()
    for number, outcome in enumerate(outcomes):
        if outcome.failed:
            continue
        before = last.get(outcome.session, outcome.served_by)
        if number >= since and before != outcome.served_by:
            found[before, outcome.served_by] += 1
        last[outcome.session] = outcome.served_by
    return found


@contextmanager
def sessions_by_name(url: str, group: str, *, batch: int, turns: int, concurrency: int) -> Iterator[list[Outcome]]:
    """Sessions that name a group, each of them new, until the block ends; the list has what became of them."""
    target = Target([url], "unused", groups={"code": group})
    stop = threading.Event()
    outcomes: list[Outcome] = []

    async def run() -> None:
        seed = 0
        while not stop.is_set():
            drawn = conversations(sessions(tasks(["code"]), batch, seed, turns=turns))
            outcomes.extend(await drive(drawn, target, concurrency=concurrency))
            seed += 1

    with ThreadPoolExecutor(1) as executor:
        running = executor.submit(uvloop.run, run())
        try:
            yield outcomes
        finally:
            stop.set()
            running.result(timeout=120)
