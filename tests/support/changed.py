"""Values that differ from others in some fields."""

from copy import copy
from typing import TypeVar

_T = TypeVar("_T")


def changed(value: _T, **fields: object) -> _T:
    """Return a copy of a value of the router with other values in these fields, compiled or not."""
    found = copy(value)
    for name, each in fields.items():
        setattr(found, name, each)
    return found
