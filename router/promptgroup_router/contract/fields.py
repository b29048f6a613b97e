"""Reads the fields of a table that was parsed from JSON; each error names the field, its value and what is expected."""

import enum
from collections.abc import Mapping
from typing import Any, TypeVar

from promptgroup_router.contract.table import TableError

MOST = (1 << 53) - 1
"""Largest number that is taken where a field has no limit of its own: every program reads it from JSON as it was
written, and sums of such numbers can be written, too."""

E = TypeVar("E", bound=enum.StrEnum)


def mapping(value: object, at: str) -> Mapping[str, Any]:
    """Return an object.

    Raises:
        TableError: it is something else.
    """
    if not isinstance(value, Mapping):
        raise TableError(f"{at} is a {type(value).__name__}, expected an object")
    return value


def items(data: Mapping[str, Any], key: str, at: str) -> list[object]:
    """Return a list; an empty one for a missing field.

    Raises:
        TableError: it is something else.
    """
    value = data.get(key, [])
    if not isinstance(value, list):
        raise TableError(f"{at}: {key} is a {type(value).__name__}, expected a list")
    return value


def text(data: Mapping[str, Any], key: str, at: str, default: str | None = None) -> str:
    """Return a text.

    Raises:
        TableError: it is something else.
    """
    value = data.get(key, default)
    if not isinstance(value, str):
        raise TableError(f"{at}: {key} is {_shown(value)}, expected a string")
    return value


def texts(data: Mapping[str, Any], key: str, at: str) -> tuple[str, ...]:
    """Return a list of texts, none of them empty.

    Raises:
        TableError: it is something else.
    """
    values = items(data, key, at)
    if not all(isinstance(value, str) and value for value in values):
        raise TableError(f"{at}: {key} has something that is no text, expected a list of texts")
    return tuple(str(value) for value in values)


def count(data: Mapping[str, Any], key: str, at: str, default: int | None = None, most: int = MOST) -> int:
    """Return a whole number from 0 to `most`.

    Raises:
        TableError: it is something else.
    """
    value = data.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TableError(f"{at}: {key} is {_shown(value)}, expected a whole number from 0")
    if value > most:
        raise TableError(f"{at}: {key} is {value}, expected a whole number of at most {most}")
    return value


def ratio(data: Mapping[str, Any], key: str, at: str) -> float:
    """Return a number above 0 and at most 1.

    Raises:
        TableError: it is something else.
    """
    value = data.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise TableError(f"{at}: {key} is {_shown(value)}, expected a number above 0 and at most 1")
    return float(value)


def member(kind: type[E], data: Mapping[str, Any], key: str, at: str, default: E | None) -> E:
    """Return a member of an enumeration.

    Raises:
        TableError: it is something else.
    """
    value = data.get(key, default)
    try:
        return kind(value)
    except ValueError:
        expected = ", ".join(member.value for member in kind)
        raise TableError(f"{at}: {key} is {_shown(value)}, expected one of {expected}") from None


def _shown(value: object) -> str:
    return "missing" if value is None else repr(value)
