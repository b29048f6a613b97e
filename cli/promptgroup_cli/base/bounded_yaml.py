"""YAML from files, with bounds on nesting and on what aliases expand to. Does no I/O.

The bounds are checked on the stream of events, before any object is made of it: a few hundred bytes of aliases of
aliases stand for billions of values ("billion laughs"), and the composer of libyaml crashes on deep nesting.
"""

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
    """YAML as Kubernetes reads it: what looks like a date is a text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def load_all(content: str) -> list[Any]:
    """Return the documents of a text as plain values.

    Raises:
        YamlError: the text is not YAML, or beyond the bounds.
    """
    return list(_bounded(content, yaml.load_all))


def compose_all(content: str) -> list[yaml.Node | None]:
    """Return the documents of a text as nodes, which know their lines.

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
    """Anchor → values that its node stands for."""
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
