"""The manifest of a host with the decisions about its fields, as text and as JSON."""

import json
import textwrap
from collections.abc import Iterator, Sequence

import yaml

from promptgroup_cli.adoption.decision import FieldDecision, Verdict
from promptgroup_cli.adoption.handover import Step
from promptgroup_cli.adoption.host import Adoption
from promptgroup_operator.base.printable import printable

WIDTH = 116
"""Columns of a comment's text."""


def text(adoption: Adoption, steps: Sequence[Step]) -> str:
    """Return the manifest as YAML, with the decisions and the steps of the hand-over as comments."""
    made = yaml.safe_dump(adoption.manifest, sort_keys=False, allow_unicode=True, width=120)
    if printable(made) != made:
        made = yaml.safe_dump(adoption.manifest, sort_keys=False, width=120)
    return "\n".join(f"# {line}".rstrip() for line in lines(adoption, steps)) + "\n" + made


def lines(adoption: Adoption, steps: Sequence[Step]) -> Iterator[str]:
    """Yield the decisions, and the steps, a line each."""
    start, workload = adoption.start, adoption.workload
    served = " and ".join(start.names)
    yield f"Made of Deployment {printable(workload.name)}: {start.engine.value} serves {printable(served)}."
    for verdict in Verdict:
        rows = [decision for decision in adoption.decisions if decision.verdict is verdict]
        if rows:
            yield ""
            yield f"{verdict.value.capitalize()}:"
            for row in rows:
                yield from _wrapped(_row(row), "  ", "      ")
    yield ""
    yield "Order of the hand-over:"
    for number, step in enumerate(steps, start=1):
        yield from _wrapped(step.what, f"  {number}. ", "     ")
        for command in step.commands:
            yield f"       {printable(command)}"


def _row(row: FieldDecision) -> str:
    name = printable(row.field)
    short = name if len(name) <= 80 else name[:79] + "…"
    return f"{short} → {printable(row.why)}" if row.why else short


def _wrapped(line: str, first: str, later: str) -> list[str]:
    return textwrap.wrap(
        line, WIDTH, initial_indent=first, subsequent_indent=later, break_on_hyphens=False, break_long_words=False
    )


def document(adoption: Adoption, steps: Sequence[Step]) -> str:
    """Return the manifest, the decisions and the steps as JSON."""
    return json.dumps(
        {
            "deployment": {"namespace": adoption.workload.namespace or None, "name": adoption.workload.name},
            "engine": adoption.start.engine.value,
            "promptGroup": adoption.manifest,
            "fields": [
                {"field": decision.field, "decision": decision.verdict.value, "why": decision.why or None}
                for decision in adoption.decisions
            ],
            "handOver": [{"what": step.what, "commands": list(step.commands)} for step in steps],
        },
        indent=2,
    )
