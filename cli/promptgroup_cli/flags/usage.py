"""Flags of `promptgroup usage`."""

import argparse
import re
from datetime import UTC, datetime

from promptgroup_cli.base.errors import exit_statuses
from promptgroup_cli.base.server_flags import add_prometheus_files, server_address

EPILOG = exit_statuses(
    "Prometheus answered",
    "",
    "  promptgroup usage --prometheus http://prometheus:9090 --period 7d\n"
    "  promptgroup usage --prometheus http://prometheus:9090 --group chat/support --end 2026-11-01T00:00:00Z\n",
)

_PERIOD = re.compile(r"([1-9][0-9]{0,4})([mhd])", re.ASCII)
_SECONDS = {"m": 60, "h": 3600, "d": 86400}
MOST_DAYS = 366
"""Longest period: Prometheus keeps less as a rule."""
_GROUP = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)
"""Namespace and name of a group, so that nothing else gets into a query."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's description and flags."""
    parser.description = (
        "Show the tokens and requests of each caller in a period, by the routers' counters in Prometheus. Callers are "
        "those that the groups' access tells."
    )
    parser.epilog = EPILOG
    parser.add_argument("--prometheus", type=server_address, required=True, metavar="URL", help="address of Prometheus")
    add_prometheus_files(parser)
    parser.add_argument("--group", type=_group, metavar="NAMESPACE/NAME", help="one group instead of all")
    parser.add_argument(
        "--period", type=_period, default="24h", metavar="TIME", help="length of the period (default: %(default)s)"
    )
    parser.add_argument(
        "--end", type=_time, metavar="TIME", help="end of the period, as in 2026-11-01T00:00:00Z (default: now)"
    )
    parser.add_argument(
        "-o", "--output", choices=("table", "json"), default="table", help="format of the output (default: %(default)s)"
    )


def _group(text: str) -> str:
    if not _GROUP.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a group: write NAMESPACE/NAME")
    return text


def _period(text: str) -> int:
    match = _PERIOD.fullmatch(text)
    seconds = int(match[1]) * _SECONDS[match[2]] if match is not None else 0
    if not 0 < seconds <= MOST_DAYS * 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is no period of at most {MOST_DAYS}d: write 90m, 24h or 30d")
    return seconds


def _time(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no time: write 2026-11-01T00:00:00Z") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
