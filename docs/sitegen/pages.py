"""Find the generated blocks of a page and fill them."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from sitegen import crds, decisions, flags, identifiers, reasons, series

DOCS = Path(__file__).parents[1]

BLOCK = re.compile(r"(?P<begin><!-- generated: (?P<name>[a-z-]+) -->\n).*?(?P<end><!-- end -->)", re.DOTALL)

BLOCKS: Mapping[str, Callable[[], str]] = {
    "promptgroup-spec": lambda: crds.fields("promptgroups", "spec"),
    "promptgroup-status": lambda: crds.fields("promptgroups", "status"),
    "promptgroup-rules": lambda: crds.rules("promptgroups"),
    "promptgroup-columns": lambda: crds.columns("promptgroups"),
    "promptroute-spec": lambda: crds.fields("promptroutes", "spec"),
    "operator-flags": flags.operator,
    "router-flags": flags.router,
    "picker-flags": flags.picker,
    "commands": flags.commands,
    "conditions": reasons.conditions,
    "reasons": reasons.reasons,
    "series-groups": series.groups,
    "series-operator": series.operator,
    "series-router": series.router,
    "labels": identifiers.labels,
    "annotations": identifiers.annotations,
    "headers": identifiers.headers,
    "ports": identifiers.ports,
    "exit-statuses": identifiers.exit_statuses,
    "endpoints": identifiers.endpoints,
    "lint-rules": identifiers.lint_rules,
    "decisions": decisions.index,
}


def pages() -> list[Path]:
    """Return the pages that have a generated block."""
    return [path for path in sorted(DOCS.rglob("*.md")) if BLOCK.search(path.read_text())]


def rendered(path: Path) -> str:
    """Return a page's text with each of its blocks rendered anew.

    Raises:
        KeyError: a block has a name that nothing renders.
    """

    def fill(result: re.Match[str]) -> str:
        return f"{result['begin']}\n{BLOCKS[result['name']]().strip()}\n\n{result['end']}"

    return BLOCK.sub(fill, path.read_text())
