"""Runs work that is cut into steps: a generator that yields where others may have a turn, and returns the result."""

import asyncio
import gc
from collections.abc import Generator
from typing import TypeVar

_Made = TypeVar("_Made")

SLICE_SECONDS = 0.005
"""Time for which work in steps holds the event loop before others have their turn."""


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
        lasting: whether what it makes lives long. Garbage collections do not visit it then: of a table with 8,000
            replicas each would hold the loop for 50 ms.
    """
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
