"""`promptgroup usage`: show what each caller has used in a period, from Prometheus."""

import argparse
from datetime import UTC, datetime

from promptgroup_cli.base.errors import ExitStatus
from promptgroup_cli.reach.usage_prometheus import UsageQuestion, usage
from promptgroup_cli.render import usage_output


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    end = arguments.end or datetime.now(UTC)
    question = UsageQuestion(
        url=arguments.prometheus,
        seconds=arguments.period,
        end=end,
        group=arguments.group or "",
        token_file=arguments.prometheus_token_file,
        ca_file=arguments.prometheus_ca_file,
    )
    rows = usage(question)
    print({"table": usage_output.table, "json": usage_output.document}[arguments.output](rows, end, arguments.period))
    return ExitStatus.OK
