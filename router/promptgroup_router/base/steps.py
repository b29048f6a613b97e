"""Runs work in steps: a generator that yields where other tasks may run, and returns the result.

Work that takes longer than SLICE_SECONDS is written in this form. The same steps run one after the other in tests and
in tools, and in slices of the event loop in a router.
"""

import gc
import heapq
from collections.abc import Callable, Generator, Sequence
from itertools import islice
from typing import Any, TypeVar

SLICE_SECONDS = 0.005
"""Time for which work in steps holds the event loop before other tasks run."""
RUN = 256
"""Values that are sorted, or looked at, in one step."""

_Made = TypeVar("_Made")
_Value = TypeVar("_Value")


def at_once(steps: Generator[None, None, _Made]) -> _Made:
    """Run all steps, one after the other. Return the generator's result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            made: _Made = end.value
            return made


async def in_slices(steps: Generator[None, None, _Made], *, lasting: bool = False) -> _Made:
    """Run a generator to its end, and let other tasks run between its steps. Return the generator's result.

    Args:
        steps: the generator.
        lasting: whether the objects that it creates are exempt from garbage collection: for a table with 8,000
            replicas, or a page about them, each collection would block the loop for 50 ms. They must form no cycles.
    """
    import asyncio  # noqa: PLC0415 - programs that run steps at once, such as tools, need not import it

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


def filtered_steps(values: Sequence[_Value], holds: Callable[[_Value], bool]) -> Generator[None, None, list[_Value]]:
    """Return the values of which something holds, in steps of RUN of them."""
    kept = list[_Value]()
    for start in range(0, len(values), RUN):
        kept += [value for value in values[start : start + RUN] if holds(value)]
        yield
    return kept


def sorted_steps(values: Sequence[_Value], key: Callable[[_Value], Any]) -> Generator[None, None, list[_Value]]:
    """Return the values in order, sorted in steps: the library's sort of ten thousand takes more than a slice."""
    runs = []
    for start in range(0, len(values), RUN):
        runs.append(sorted(values[start : start + RUN], key=key))
        yield
    merged, ordered = heapq.merge(*runs, key=key), list[_Value]()
    while len(ordered) < len(values):
        ordered += islice(merged, RUN)
        yield
    return ordered
