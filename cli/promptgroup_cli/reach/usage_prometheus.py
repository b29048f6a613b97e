"""Asks Prometheus what callers have used in a period."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from promptgroup_cli.base.errors import ReachError
from promptgroup_operator.base.settings import Settings

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
    """Tokens of them that engines found in their caches."""
    answer: int
    kept: int = 0
    """Tokens of answers that no engine has computed for this caller."""
    unmetered: int = 0
    """Answers whose tokens are not counted."""


@dataclass(frozen=True, slots=True)
class UsageQuestion:
    """A period, and where to ask."""

    url: str
    seconds: int
    end: datetime
    group: str = ""
    """Empty for all groups."""
    token_file: Path | None = None
    ca_file: Path | None = None


def query(seconds: int, group: str) -> str:
    """Return the query for all series, which differ by their label `what`."""
    where = f'{{group="{group}"}}' if group else ""
    each = (
        f'label_replace(sum by (group, caller) (increase({series}{where}[{seconds}s])), "what", "{what}", "", "")'
        for what, series in SERIES.items()
    )
    return " or ".join(each)


def usage(question: UsageQuestion) -> list[CallerUsage]:
    """Return what callers have used, those who used most first.

    Raises:
        ReachError: Prometheus does not answer; says how not.
    """
    # the client takes half a second to import, which `--help` does without
    from promptgroup_operator.load.prometheus_api import PrometheusApi, PrometheusError  # noqa: PLC0415

    settings = Settings(
        prometheus_url=question.url,
        prometheus_token_file=question.token_file,
        prometheus_ca_file=question.ca_file,
    )
    prometheus = PrometheusApi(settings)
    try:
        found = prometheus.query(query(question.seconds, question.group), question.end)
    except PrometheusError as error:
        raise ReachError(f"--prometheus {prometheus.url}: {error}") from None
    finally:
        prometheus.close()
    totals: dict[tuple[str, str], dict[str, int]] = {}
    for labels, value in found:
        key = labels.get("group", ""), labels.get("caller", "")
        totals.setdefault(key, dict.fromkeys(SERIES, 0))[labels.get("what", "")] = round(value)
    rows = [CallerUsage(*key, *(values[what] for what in SERIES)) for key, values in totals.items()]
    return sorted(rows, key=lambda row: (-row.prompt - row.answer, row.group, row.caller))
