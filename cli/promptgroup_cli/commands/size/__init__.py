"""`promptgroup size`: compute how many replicas a load needs, as flags describe it or as Prometheus observed it."""

import argparse
from datetime import UTC, datetime

from promptgroup_cli.base.errors import ExitStatus, InputError, ReachError
from promptgroup_cli.commands.size.flags import add, check

__all__ = ["add", "run"]


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    from promptgroup_cli.commands.size import answer, output, question  # noqa: PLC0415 - `--help` needs none of them

    try:
        check(arguments)
        if arguments.from_prometheus:
            return _observed(arguments)
        size_answer = answer.answer(question.from_flags(arguments))
    except ValueError as error:
        raise InputError(str(error)) from None
    print({"table": output.table, "json": output.document}[arguments.output](size_answer))
    return ExitStatus.OK if size_answer.replicas is not None else ExitStatus.NEGATIVE


def _observed(arguments: argparse.Namespace) -> int:
    """Size the group that Prometheus observes, and return the exit status.

    Raises:
        ReachError: Prometheus does not answer, or has too few observations.
    """
    # it brings the models of the CRD and the client of Prometheus, which a load that flags describe does without
    from promptgroup_cli.commands.size import observed  # noqa: PLC0415

    load = observed.load(arguments, datetime.now(UTC))
    try:
        seen = observed.observed_size(load, arguments.ttft)
    except ValueError as error:
        raise ReachError(str(error)) from None
    print({"table": observed.table, "json": observed.document}[arguments.output](seen))
    return ExitStatus.OK if seen.needed is not None else ExitStatus.NEGATIVE
