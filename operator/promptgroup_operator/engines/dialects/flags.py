"""Parsers of the command lines of engines."""

import re
from collections.abc import Iterable, Iterator, Sequence

_NUMBER = re.compile(r"[0-9]{1,12}(\.[0-9]{1,6})?", re.ASCII)


def number(args: Sequence[str], names: Iterable[str]) -> int:
    """Return the number that a flag sets; 1 where it is not given. As in engines, the last one wins."""
    flags, count, words = frozenset(names), 1, iter(args)
    for word in words:
        if flag_of(word) in flags:
            value = word.partition("=")[2] or next(words, "")
            count = int(value) if re.fullmatch("[1-9][0-9]{0,4}", value) else 1
    return count


def flag_of(arg: str) -> str:
    """Return the flag of an argument, with `-` instead of `_`."""
    return arg.partition("=")[0].replace("_", "-")


def first_match(args: Iterable[str], pattern: re.Pattern[str]) -> str:
    """Return the first flag that a pattern matches; empty if it matches none."""
    return next((flag for flag in map(flag_of, args) if pattern.fullmatch(flag)), "")


def values_of(args: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each flag with its value; the value is empty where none follows."""
    for index, word in enumerate(args):
        if word.startswith("-"):
            _, equals, value = word.partition("=")
            follows = args[index + 1] if index + 1 < len(args) else ""
            yield flag_of(word), value if equals else "" if follows.startswith("-") else follows


def decimal(text: str | None) -> float:
    """Return a number without sign or exponent; 0 for anything else."""
    return float(text) if text and _NUMBER.fullmatch(text) else 0.0
