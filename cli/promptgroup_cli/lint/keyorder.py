"""JSON inside of text, in one spelling: texts that differ in the order of its keys become equal."""

import json
import re
from itertools import islice

_OBJECT = re.compile(r'\{\s*"')
OBJECTS = 64
"""Objects of one text that are examined: bounds the cost of a text of nothing but braces."""
_DECODER = json.JSONDecoder()


def ordered(text: str) -> str:
    """Return the text with the keys of all JSON objects in it sorted, and without blanks around them."""
    parts = []
    done = 0
    for match in islice(_OBJECT.finditer(text), OBJECTS):
        if match.start() < done:
            continue
        try:
            value, end = _DECODER.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            continue
        parts += [text[done : match.start()], json.dumps(value, sort_keys=True, separators=(",", ":"))]
        done = end
    return "".join([*parts, text[done:]])
