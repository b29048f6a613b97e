"""Locals are named by what they hold."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = ("contract", "operator", "router", "picker", "cli", "lab/promptgroup_local", "lab/promptgroup_research")
SAY_NOTHING = {"each", "found", "told", "said", "asked", "ask"}
"""Words that name nothing: `for pod in pods` tells more than `for each in pods`."""


def locals_of(tree):
    """Yield name and line of each variable of a function, parameters that callers name aside."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    yield node.id, node.lineno


@pytest.mark.parametrize("package", PACKAGES)
def test_locals_are_named_by_what_they_hold(package):
    vague = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for name, line in locals_of(ast.parse(path.read_text()))
        if name in SAY_NOTHING
    ]
    assert vague == []


def test_a_local_that_says_nothing_is_seen():
    tree = ast.parse("def names(pods):\n    return [each.name for each in pods]\n")
    assert list(locals_of(tree)) == [("each", 2)]
