"""Reads numbers and booleans of a request as engines do, which take them in several spellings.

Engines check bodies with pydantic, whose lax mode takes `"8"`, `8.0` and `true` for a whole number, and `"yes"` for a
boolean. What the router counts or reserves by such a value has to be read by the same rules, or a request would be
larger than what is reserved for it. A value that pydantic does not take is refused by the engine.
"""

import re

_SPACES = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
"""White space around a number, by Unicode's property White_Space."""
_WHOLE = re.compile(r"([+-]?+[0-9]++(?:_[0-9]++)*+)(?:\.0++)?+")
_MOST_DIGITS = 4300
_MOST_FLOAT = 2.0**63
_TRUE = frozenset(("1", "on", "t", "true", "y", "yes"))
_FALSE = frozenset(("0", "off", "f", "false", "n", "no"))


def whole(value: object) -> int | None:
    """Return the whole number that engines take a value for; None if they refuse it."""
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return int(value) if -_MOST_FLOAT < value < _MOST_FLOAT and value.is_integer() else None
    if not isinstance(value, str):
        return None
    text = value.strip(_SPACES)
    result = _WHOLE.fullmatch(text) if len(text) <= _MOST_DIGITS else None
    return int(result[1]) if result is not None else None


def truth(value: object) -> bool | None:
    """Return the boolean that engines take a value for; None if they refuse it."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return bool(value) if value in (0, 1) else None
    if not isinstance(value, str) or len(value) > len("false"):
        return None
    word = value.lower()
    return True if word in _TRUE else False if word in _FALSE else None
