"""CPU that access and limits of callers take of a request: key, limits, headers of the answer, settling.

    python tests/bench/caller_cost.py [--callers 200]        `make bench-callers` runs it interpreted and compiled

Each step is timed alone and all together, as `decision/` and `proxy/` call them, between callers who take turns. The
unit beside the microseconds is one turn of `yardstick`, fixed work of the interpreter that no version of the router
changes: that ratio is what one machine can compare with another. Times are of this thread's CPU, and a low quantile of
short batches, so that they stand for an undisturbed processor.
"""

import argparse
import gc
import itertools
import platform
import time
from collections.abc import Callable
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from promptgroup_contract.access import Access, AccessType
from promptgroup_contract.caller_rules import CallerLimits, CallerRules
from promptgroup_router.access.authenticator import Authenticator, NoSender, Visit
from promptgroup_router.access.keyring import Keyring, SecretRef
from promptgroup_router.apis.request import ApiKind
from promptgroup_router.apis.usage import Usage
from promptgroup_router.base import build
from promptgroup_router.callers.limiter import Charge, Limiter
from promptgroup_router.callers.longest_answer import longest_answer

BATCH = 64
"""Calls that are timed together."""
LOW = 0.1
"""The quantile of the batches that is reported."""
ACCESS = Access(AccessType.API_KEY, secrets=("keys",))
RULES = CallerRules(default=CallerLimits(10**8, 10**11, 10**6, 10**14))
"""All four limits, which nobody reaches."""
BODY = {"model": "llama", "messages": [], "temperature": 0.7, "stream": True, "max_tokens": 400}
USAGE = Usage(2000, 1900, 80)
REQUESTS_A_SECOND = 500.0
"""The pace of virtual time: a window has a slice in each half second."""


class Costs(NamedTuple):
    """Microseconds of CPU for one request."""

    yardstick: float
    key: float
    """Telling the caller by an API key, and asking again when the group is known."""
    admit: float
    """The caller's limits, looked up and charged."""
    headers: float
    """What is left of them, for the answer."""
    settle: float
    """The charge, settled by the engine's usage."""
    whole: float
    """All of it, one after the other."""

    @property
    def ratio(self) -> float:
        """All of it, in turns of the yardstick."""
        return self.whole / self.yardstick


class _Step:
    """A small object of the interpreter's, as plain code has them."""

    __slots__ = ("count", "last")

    def __init__(self) -> None:
        self.count = 0
        self.last = b""

    def turn(self, known: dict[bytes, int], key: bytes) -> int:
        found = known.get(key)
        if found is not None and key is not self.last:
            self.count += found
            self.last = key
        return self.count


def yardstick() -> Callable[[], object]:
    """Return fixed work: 16 calls of a small method with a look-up in a dictionary."""
    step, known = _Step(), {b"%d" % number: number for number in range(64)}
    keys = list(known)[:16]

    def work() -> None:
        for key in keys:
            step.turn(known, key)

    return work


def measure(callers: int = 200, batches: int = 400) -> Costs:
    """Time each step."""
    keyring = Keyring(bytes(64))
    keys = [f"sk-{number:048x}".encode() for number in range(callers)]
    keyring.learn_keys(SecretRef("chat", "keys"), {f"team-{number}": key for number, key in enumerate(keys)})
    authenticator, limiter, sender = Authenticator(keyring), Limiter(), NoSender()
    heads = itertools.cycle([{b"host": b"x", b"authorization": b"Bearer " + key, b"accept": b"*/*"} for key in keys])
    names = itertools.cycle([f"team-{number}" for number in range(callers)])
    ticks, group = itertools.count(), "chat/support"
    made: list[Charge] = []

    def now() -> float:
        return 1000.0 + next(ticks) / REQUESTS_A_SECOND

    def key() -> str:
        identify = Visit(authenticator, next(heads), sender, 0.0).identify
        identify(ACCESS, "chat")
        return identify(ACCESS, "chat").name

    def admit(name: str, at: float) -> Charge:
        longest, stated = longest_answer(ApiKind.CHAT, BODY)
        charge = limiter.admit(group, name, RULES.limits_of(name), prompt=2000, longest=longest, stated=stated, now=at)
        assert charge is not None
        return charge

    def whole() -> None:
        at = now()
        charge = admit(key(), at)
        limiter.lines(charge, at)
        limiter.settle(charge, USAGE, at)

    def admitted() -> None:
        made.append(admit(next(names), now()))

    def told() -> None:
        limiter.lines(made[-1], now())

    def settled() -> None:
        limiter.settle(made.pop(), USAGE, now())

    def nothing() -> None:
        now()
        next(names)

    for _ in range(60 * int(REQUESTS_A_SECOND)):  # windows are as full as they get
        whole()
    gc.collect()
    gc.freeze()
    # interleaved, so that a slow second of the machine is one of all
    works = [yardstick(), nothing, key, admitted, told, settled, whole]
    samples: list[list[int]] = [[] for _ in works]
    for _ in range(batches):
        for found, work in zip(samples, works, strict=True):
            found.append(timed(work))
    unit, idle, *others = (sorted(each)[int(batches * LOW)] / BATCH / 1000 for each in samples)
    return Costs(unit, others[0], *(max(0.0, each - idle) for each in others[1:]))


def timed(work: Callable[[], object]) -> int:
    """Return the nanoseconds of CPU for a batch of calls."""
    began = time.thread_time_ns()
    for _ in range(BATCH):
        work()
    return time.thread_time_ns() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--callers", type=int, default=200, help="callers who take turns (default: %(default)s)")
    parser.add_argument("--batches", type=int, default=2000, help="batches that are timed (default: %(default)s)")
    given = parser.parse_args()
    costs = measure(given.callers, given.batches)
    how = "compiled" if build.compiled() else "interpreted"
    shown = Table(title=f"Access and limits of a request: Python {platform.python_version()}, router {how}")
    for column in ("step", "µs of CPU", "yardsticks"):
        shown.add_column(column, justify="left" if column == "step" else "right")
    for name, value in costs._asdict().items():
        shown.add_row(name, f"{value:.2f}", f"{value / costs.yardstick:.2f}")
    Console().print(shown)


if __name__ == "__main__":
    main()
