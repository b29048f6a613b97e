"""Conditions and their reasons → tables: meanings from reasons.yaml, completeness from the code."""

import ast
import functools
import re
from pathlib import Path
from typing import Any

from promptgroup_cli.base import bounded_yaml
from sitegen.tables import table

ROOT = Path(__file__).parents[2]
PAGE = Path(__file__).with_name("reasons.yaml")
OPERATOR = ROOT / "operator" / "promptgroup_operator"
STATUS = OPERATOR / "plan" / "status.py"

CAMEL = re.compile(r"[A-Z][a-z0-9]+([A-Z][A-Za-z0-9]*)*")


@functools.cache
def written() -> dict[str, Any]:
    """Return reasons.yaml."""
    (result,) = bounded_yaml.load_all(PAGE.read_text())
    return dict(result)


def conditions() -> str:
    """Return the conditions of a PromptGroup."""
    return table(
        ["Condition", "True means", "The bad status"],
        [[f"`{name}`", item["means"], item["bad"]] for name, item in written()["conditions"].items()],
    )


def reasons() -> str:
    """Return a table of reasons for each part of reasons.yaml."""
    parts = []
    for part in written()["reasons"]:
        rows = [
            [f"`{name}`", item["status"], item["means"], item.get("do", "Nothing.")]
            for name, item in part["reasons"].items()
        ]
        parts.append(
            f"## {part['title']}\n\n{part['intro']}\n\n{table(['Reason', 'Status', 'Meaning', 'Action'], rows)}"
        )
    return "\n".join(parts)


def documented() -> set[str]:
    """Return every reason that has a row."""
    return {name for part in written()["reasons"] for name in part["reasons"]}


@functools.cache
def camel_texts() -> frozenset[str]:
    """Return every text of the operator's code that stands alone in its literal and has the form of a reason."""
    return frozenset(
        node.value
        for path in OPERATOR.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and CAMEL.fullmatch(node.value)
    )


def condition_types() -> set[str]:
    """Return the types of conditions that the operator's code gives a group: `Condition("Ready", ...)` and its like.

    Where a variable holds the type, the table at the top of the module has it: the first word of each of its rows.
    """
    tree = ast.parse(STATUS.read_text())
    rows = (ast.get_docstring(tree) or "").partition("\ncondition ")[2]
    listed = re.findall(r"^([A-Z][A-Za-z]+) ", rows, re.MULTILINE)
    called = {
        str(node.args[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "Condition"
        and isinstance(node.args[0], ast.Constant)
    }
    return called | set(listed)


def used() -> set[str]:
    """Return the reasons in the operator's code.

    They are the CamelCase texts that are not listed in reasons.yaml as something else (kinds of objects, phases, types
    of conditions, words of Kubernetes). So a new reason cannot go unnoticed.
    """
    return set(camel_texts()) - set(written()["not reasons"]) - set(written()["conditions"])
