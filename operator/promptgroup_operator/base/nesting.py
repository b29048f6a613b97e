"""Bounds how deeply JSON nests. Does no I/O.

The API server keeps free-form fields however deeply they nest, and whatever walks a value has a depth at which it
raises: one object would keep a whole list from being read. So what lies deeper than LEVELS is read as null. An object
of Kubernetes' own nests some twenty levels. The API's model refuses a free-form field long before that depth
(`api.prompt_group.FREE_LEVELS`), so that what was cut is told in the group's own condition.
"""

import json
import re
from typing import Any

LEVELS = 128
"""Levels of objects and lists that are read, those of a list of objects included."""

_CONTAINERS = frozenset({dict, list})
"""The types that a parser makes, and no subclass: a look at every value of a long list costs a quarter of its parse."""
_BRACKETS = re.compile(rb'(?:[^\[\]{}"]++|"[^"\\]*+(?:\\.[^"\\]*+)*+"?)*+([\[{]++|[\]}]++|\Z)', re.DOTALL)
"""Matches what is no bracket, strings with brackets of their own included, and the brackets of one kind that follow in
a row, or the end of the text. The last string of a text that was cut has no end of its own."""


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
    """Return JSON that any parser reads, with null for what lies too deep; what is no JSON stays as it is."""
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
    """Return the text with null in place of what lies too deep. What is no JSON is not mended by that."""
    kept: list[bytes] = []
    depth = begin = 0
    for result in _BRACKETS.finditer(text):
        start, end = result.span(1)
        if start == end:
            break
        if text[start] in b"[{":
            if depth <= levels < depth + end - start:
                kept += (text[begin : start + levels - depth], b"null")
            depth += end - start
        else:
            if depth > levels >= depth - (end - start):
                begin = start + depth - levels
            depth -= end - start
    if depth <= levels:
        kept.append(text[begin:])
    return b"".join(kept)
