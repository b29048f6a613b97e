"""`promptgroup usage`: show what each caller has used in a period, from Prometheus."""

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta

from promptgroup_cli.base.errors import ExitStatus, ReachError, exit_statuses
from promptgroup_cli.base.flags import add_output, add_prometheus_files, group_key, server_address
from promptgroup_cli.base.text import columns
from promptgroup_operator.base.settings import Settings
from promptgroup_operator.base.timestamps import rfc3339

_PERIOD = re.compile(r"([1-9][0-9]{0,4})([mhd])", re.ASCII)
_SECONDS = {"m": 60, "h": 3600, "d": 86400}
MOST_DAYS = 366
"""Longest period: Prometheus usually stores less."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's description and flags."""
    parser.description = (
        "Show the tokens and requests of each caller in a period, by the routers' counters in Prometheus. Callers are "
        "identified by the access rules of the groups."
    )
    parser.epilog = exit_statuses(
        "Prometheus answered",
        "",
        "  promptgroup usage --prometheus http://prometheus:9090 --period 7d\n"
        "  promptgroup usage --prometheus http://prometheus:9090 --group chat/support --end 2026-11-01T00:00:00Z\n",
    )
    parser.add_argument("--prometheus", type=server_address, required=True, metavar="URL", help="address of Prometheus")
    add_prometheus_files(parser)
    parser.add_argument("--group", type=group_key, metavar="NAMESPACE/NAME", help="one group instead of all")
    parser.add_argument(
        "--period", type=_period, default="24h", metavar="TIME", help="length of the period (default: %(default)s)"
    )
    parser.add_argument(
        "--end", type=_time, metavar="TIME", help="end of the period, as in 2026-11-01T00:00:00Z (default: now)"
    )
    add_output(parser)


def _period(text: str) -> int:
    match = _PERIOD.fullmatch(text)
    seconds = int(match[1]) * _SECONDS[match[2]] if match is not None else 0
    if not 0 < seconds <= MOST_DAYS * 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is no period of at most {MOST_DAYS}d: write 90m, 24h or 30d")
    return seconds


def _time(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
        return at.astimezone(UTC) if at.tzinfo is not None else at.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text!r} is no time: write 2026-11-01T00:00:00Z") from None


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    end = arguments.end or datetime.now(UTC)
    rows = usage(arguments, end)
    print({"table": table, "json": document}[arguments.output](rows, end, arguments.period))
    return ExitStatus.OK


_PREFIX = "promptgroup_router_caller_"
SERIES: Mapping[str, str] = {
    "requests": f"{_PREFIX}requests_total",
    "prompt": f"{_PREFIX}prompt_tokens_total",
    "cached": f"{_PREFIX}cached_tokens_total",
    "answer": f"{_PREFIX}answer_tokens_total",
    "kept": f"{_PREFIX}kept_answer_tokens_total",
    "unmetered": f"{_PREFIX}unmetered_answers_total",
}
"""Field of `CallerUsage` → series of routers."""


@dataclass(frozen=True, slots=True)
class CallerUsage:
    """The use of one group by one caller."""

    group: str
    """`namespace/name`; `-` for requests that no group declares."""
    caller: str
    requests: int
    prompt: int
    """Tokens of prompts, cached ones included."""
    cached: int
    """Tokens of prompts that engines had cached."""
    answer: int
    kept: int = 0
    """Tokens of answers that no engine has computed for this caller."""
    unmetered: int = 0
    """Answers whose tokens are not counted."""


def query(seconds: int, group: tuple[str, str] | None) -> str:
    """Return the query for all series, which differ by their label `what`."""
    where = f'{{group="{"/".join(group)}"}}' if group is not None else ""
    item = (
        f'label_replace(sum by (group, caller) (increase({series}{where}[{seconds}s])), "what", "{subject}", "", "")'
        for subject, series in SERIES.items()
    )
    return " or ".join(item)


def usage(arguments: argparse.Namespace, end: datetime) -> list[CallerUsage]:
    """Return the usage of callers, the largest first.

    Raises:
        ReachError: Prometheus does not answer; the message has the reason.
    """
    # the client takes half a second to import, which `--help` does without
    from promptgroup_operator.load.prometheus_api import PrometheusApi, PrometheusError  # noqa: PLC0415

    settings = Settings(
        prometheus_url=arguments.prometheus,
        prometheus_token_file=arguments.prometheus_token_file,
        prometheus_ca_file=arguments.prometheus_ca_file,
    )
    prometheus = PrometheusApi(settings)
    try:
        result = prometheus.query(query(arguments.period, arguments.group), end)
    except PrometheusError as error:
        raise ReachError(f"--prometheus {prometheus.url}: {error}") from None
    finally:
        prometheus.close()
    totals: dict[tuple[str, str], dict[str, int]] = {}
    for labels, value in result:
        key = labels.get("group", ""), labels.get("caller", "")
        totals.setdefault(key, dict.fromkeys(SERIES, 0))[labels.get("what", "")] = round(value)
    rows = [CallerUsage(*key, *(values[subject] for subject in SERIES)) for key, values in totals.items()]
    return sorted(rows, key=lambda row: (-row.prompt - row.answer, row.group, row.caller))


_HEADS = ("GROUP", "CALLER", "REQUESTS", "PROMPT", "CACHED", "HIT RATE", "ANSWER", "KEPT", "UNMETERED")


def table(rows: Sequence[CallerUsage], end: datetime, seconds: int) -> str:
    """Return a table, with the period above it and the sum below it."""
    start = end - timedelta(seconds=seconds)
    text = f"{rfc3339(start)} to {rfc3339(end)}"
    if not rows:
        return f"{text}: no caller that is known has used anything"
    total = CallerUsage("total", "", *(sum(getattr(row, name) for row in rows) for name in SERIES))
    cells = [_HEADS, *map(_cells, rows), *([_cells(total)] if len(rows) > 1 else [])]
    return "\n".join([text, "", *columns(cells, right=range(2, len(_HEADS)))])


def document(rows: Sequence[CallerUsage], end: datetime, seconds: int) -> str:
    """Return the same as JSON."""
    start = end - timedelta(seconds=seconds)
    return json.dumps({"start": rfc3339(start), "end": rfc3339(end), "usage": [asdict(row) for row in rows]}, indent=2)


def _cells(row: CallerUsage) -> tuple[str, ...]:
    rate = f"{100 * row.cached / row.prompt:.1f} %" if row.prompt else "-"
    counts = (f"{row.answer:,}", f"{row.kept:,}", f"{row.unmetered:,}")
    return row.group, row.caller, f"{row.requests:,}", f"{row.prompt:,}", f"{row.cached:,}", rate, *counts
