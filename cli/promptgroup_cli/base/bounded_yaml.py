"""YAML from files, with bounds on nesting and on the expansion of aliases. Does no I/O.

The bounds are checked on the stream of events, before any object is made of it: a few hundred bytes of aliases of
aliases expand to billions of values ("billion laughs"), and the composer of libyaml crashes on deep nesting.
"""

import re
from collections.abc import Iterator
from typing import Any

import yaml

DEPTH = 100
"""Levels of nesting; a Deployment has about 15."""
VALUES = 200_000
"""Values of all documents once aliases are expanded: the largest object that etcd takes (1.5 MiB) has fewer."""

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class YamlError(ValueError):
    """Not YAML, or beyond the bounds. The message says where, and never quotes the text."""


class _Loader(_Base):  # type: ignore[misc]
    """YAML as Kubernetes reads it (go-yaml): a date and `1:30` are texts, and `1e3` and `08` are numbers."""


_NUMBERS = {
    "tag:yaml.org,2002:int": r"[-+]?(0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)",
    "tag:yaml.org,2002:float": (
        r"[-+]?((\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,2})?|\.(inf|Inf|INF))|\.(nan|NaN|NAN)"
    ),
}
"""Tag → the form of its texts; a text in the form of a whole number is one."""
_OTHERS = {
    first: [(tag, form) for tag, form in resolvers if tag not in {*_NUMBERS, "tag:yaml.org,2002:timestamp"}]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.yaml_implicit_resolvers = _OTHERS | {
    first: [*((tag, re.compile(f"(?:{form})$")) for tag, form in _NUMBERS.items()), *_OTHERS.get(first, ())]
    for first in "+-.0123456789"
}


def load_all(content: str) -> list[Any]:
    """Return the documents of a text as plain values.

    Raises:
        YamlError: the text is not YAML, or beyond the bounds.
    """
    return list(_bounded(content, yaml.load_all))


def compose_all(content: str) -> list[yaml.Node | None]:
    """Return the documents of a text as nodes, which have their lines.

    Raises:
        YamlError: the text is not YAML, or beyond the bounds.
    """
    return list(_bounded(content, yaml.compose_all))


def _bounded(content: str, read: Any) -> Iterator[Any]:
    try:
        _check(yaml.parse(content, _Loader))
        yield from read(content, _Loader)
    except yaml.MarkedYAMLError as error:
        at = f" at line {error.problem_mark.line + 1}" if error.problem_mark is not None else ""
        raise YamlError(f"not YAML: {error.problem}{at}") from None  # the mark would quote the file
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        if isinstance(error, YamlError):
            raise
        raise YamlError(f"not YAML: {type(error).__name__}") from None


def _check(events: Iterator[yaml.Event]) -> None:
    """Raise YamlError when the events go beyond the bounds; linear in their number."""
    sizes: dict[str, int] = {}
    """Anchor → values in its node, with aliases expanded."""
    stack: list[tuple[str | None, int]] = []
    """Open collections: their anchor, and the count of values when they began."""
    values = 0
    for written, event in enumerate(events, 1):
        values += 1
        line = event.start_mark.line + 1 if event.start_mark is not None else 1
        if isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _ in stack):
                raise YamlError(f"the alias at line {line} stands inside of what it names: write the value itself")
            values += sizes.get(str(event.anchor), 0)
        elif isinstance(event, yaml.CollectionStartEvent):
            stack.append((event.anchor, values))
            if len(stack) > DEPTH:
                raise YamlError(f"nested more than {DEPTH} levels deep at line {line}")
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = stack.pop()
            if anchor is not None:
                sizes[anchor] = values - before
        elif isinstance(event, yaml.ScalarEvent) and event.anchor is not None:
            sizes[event.anchor] = 1
        if values > VALUES:
            way_out = "split the file" if written > VALUES else "write the values, or fewer aliases of aliases"
            raise YamlError(f"more than {VALUES:,} values by line {line}, aliases expanded: {way_out}")
