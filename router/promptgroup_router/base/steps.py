"""Runs work that is cut into steps: a generator that yields where others may have a turn, and returns the result.

What takes longer than SLICE_SECONDS is written so. The same steps run one after the other in tests and in tools, and in
slices of the event loop in a router.
"""

import gc
import heapq
from collections.abc import Callable, Generator, Sequence
from itertools import islice
from typing import Any, TypeVar

SLICE_SECONDS = 0.005
"""Time for which work in steps holds the event loop before others have their turn."""
RUN = 256
"""Values that are sorted in one step."""

_Made = TypeVar("_Made")
_Value = TypeVar("_Value")


def at_once(steps: Generator[None, None, _Made]) -> _Made:
    """Run all steps, one after the other. Return what the last one returns."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            made: _Made = end.value
            return made


async def in_slices(steps: Generator[None, None, _Made], *, lasting: bool = False) -> _Made:
    """Run a generator to its end, and let others have their turn between its steps. Return what it returns.

    Args:
        steps: the generator.
        lasting: whether garbage collections do not visit what it makes: of a table with 8,000 replicas, or a page about
            them, each would hold the loop for 50 ms. It must not refer to itself.
    """
    import asyncio  # noqa: PLC0415 - whoever runs steps at once, as tools do, does not wait for it

    clock = asyncio.get_running_loop().time
    until = clock() + SLICE_SECONDS
    while True:
        try:
            next(steps)
        except StopIteration as end:
            if lasting:
                gc.freeze()
            made: _Made = end.value
            return made
        if clock() >= until:
            if lasting:
                gc.freeze()
            await asyncio.sleep(0)
            until = clock() + SLICE_SECONDS


def sorted_steps(values: Sequence[_Value], key: Callable[[_Value], Any]) -> Generator[None, None, list[_Value]]:
    """Return the values in order, sorted in steps: of ten thousand the library's own sort takes more than a slice."""
    runs = []
    for start in range(0, len(values), RUN):
        runs.append(sorted(values[start : start + RUN], key=key))
        yield
    merged, ordered = heapq.merge(*runs, key=key), list[_Value]()
    while len(ordered) < len(values):
        ordered += islice(merged, RUN)
        yield
    return ordered
