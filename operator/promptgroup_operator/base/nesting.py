"""Limits the nesting depth of JSON. Does no I/O.

The API server stores free-form fields of any depth, and recursive code raises an error at some depth: a single object
could prevent a whole list from being read. So values deeper than LEVELS are read as null. Objects of Kubernetes have
some twenty levels. The API's model rejects a free-form field long before that depth (`api.prompt_group.FREE_LEVELS`),
so that the group's condition reports it.
"""

import json
import re
from typing import Any

LEVELS = 128
"""Maximum number of levels of objects and lists that are read, including those of a list of objects."""

_CONTAINERS = frozenset({dict, list})
"""The exact types of the parser's containers: checking every value of a long list takes a quarter of its parse time."""
_BRACKETS = re.compile(rb'(?:[^\[\]{}"]++|"[^"\\]*+(?:\\.[^"\\]*+)*+"?)*+([\[{]++|[\]}]++|\Z)', re.DOTALL)
"""Matches text without brackets, including strings that contain brackets, and the following run of brackets of one
kind, or the end of the text. The last string of a truncated text may be unterminated."""


def parse(text: bytes, levels: int = LEVELS) -> Any:
    """Parse JSON, with null for each object and list that lies deeper than `levels`, in linear time.

    Raises:
        ValueError: it is not JSON.
    """
    try:
        result = json.loads(text)
    except RecursionError:
        pass
    else:
        if not is_deeper(result, levels):
            return result
    return json.loads(_cut(text, levels))


def shallow(text: bytes, levels: int = LEVELS) -> bytes:
    """Return JSON that any parser accepts, with null for values that are too deep; invalid JSON is unchanged."""
    try:
        if not is_deeper(json.loads(text), levels):
            return text
    except RecursionError:
        pass
    except ValueError:
        return text
    return _cut(text, levels)


def is_deeper(value: Any, levels: int) -> bool:
    """Return True if a value of JSON has objects and lists that lie deeper than `levels`; a scalar has none."""
    level = [value] if type(value) in _CONTAINERS else []
    for _ in range(levels):
        children = (item.values() if type(item) is dict else item for item in level)
        level = [child for item in children for child in item if type(child) in _CONTAINERS]
        if not level:
            return False
    return bool(level)


def _cut(text: bytes, levels: int) -> bytes:
    """Return the text with null instead of values that are too deep. Invalid JSON stays invalid."""
    pieces: list[bytes] = []
    depth = begin = 0
    for result in _BRACKETS.finditer(text):
        start, end = result.span(1)
        if start == end:
            break
        if text[start] in b"[{":
            if depth <= levels < depth + end - start:
                pieces += (text[begin : start + levels - depth], b"null")
            depth += end - start
        else:
            if depth > levels >= depth - (end - start):
                begin = start + depth - levels
            depth -= end - start
    if depth <= levels:
        pieces.append(text[begin:])
    return b"".join(pieces)
