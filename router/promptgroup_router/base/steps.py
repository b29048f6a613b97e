"""Runs work that is cut into steps: a generator that yields where others may have a turn, and returns the result."""

from collections.abc import Generator
from typing import TypeVar

_Made = TypeVar("_Made")


def at_once(steps: Generator[None, None, _Made]) -> _Made:
    """Run all steps, one after the other. Return what the last one returns."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            made: _Made = end.value
            return made
