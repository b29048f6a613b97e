"""Finds the lines of the prompts and templates of a manifest's PromptGroups."""

from collections.abc import Iterator

import yaml

from promptgroup_cli.base import bounded_yaml

START = (1, False)
"""Position in place of an unknown one."""


def system_places(content: str, groups: int) -> list[tuple[int, bool]]:
    """Return (line, True if its lines are lines of the file) of each `spec.prompt.system`; lines count from 1.

    Args:
        content: YAML that was read before.
        groups: number of PromptGroups in it; those of a List have no position of their own.
    """
    return _places(content, groups, ("spec", "prompt", "system"))


def template_lines(content: str, groups: int) -> list[int]:
    """Return the line of each `spec.engine.template`, as `system_places` counts; 1 where there is none."""
    return [line for line, _ in _places(content, groups, ("spec", "engine", "template"))]


def _places(content: str, groups: int, path: tuple[str, ...]) -> list[tuple[int, bool]]:
    documents = bounded_yaml.compose_all(content)
    places = [_place(document, path) for document in documents if _value(document, "kind") == "PromptGroup"]
    return places if len(places) == groups else [START] * groups


def _place(node: yaml.Node | None, path: tuple[str, ...]) -> tuple[int, bool]:
    for name in path:
        node = _child(node, name)
    if node is None:
        return START
    literal = isinstance(node, yaml.ScalarNode) and node.style == "|"
    # a literal block begins on the line after its bar
    return node.start_mark.line + (2 if literal else 1), literal


def _value(node: yaml.Node | None, name: str) -> object:
    child = _child(node, name)
    return child.value if isinstance(child, yaml.ScalarNode) else None


def _child(node: yaml.Node | None, name: str) -> yaml.Node | None:
    return next(_children(node, name), None)


def _children(node: yaml.Node | None, name: str) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        yield from (value for key, value in node.value if isinstance(key, yaml.ScalarNode) and key.value == name)
