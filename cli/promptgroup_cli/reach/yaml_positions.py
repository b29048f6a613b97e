"""Where in a manifest the prompts of its PromptGroups stand. Pure."""

from collections.abc import Iterator

import yaml

START = (1, False)
"""Where nothing is known."""


def systems(content: str, groups: int) -> list[tuple[int, bool]]:
    """(line from 1 on, whether its lines are the file's) of each `spec.prompt.system`.

    Args:
        content: YAML that was read before.
        groups: how many PromptGroups were found in it; those of a List have no place of their own.
    """
    documents = yaml.compose_all(content, yaml.SafeLoader)
    found = [_system(each) for each in documents if _value(each, "kind") == "PromptGroup"]
    return found if len(found) == groups else [START] * groups


def _system(node: yaml.Node | None) -> tuple[int, bool]:
    for name in ("spec", "prompt", "system"):
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
