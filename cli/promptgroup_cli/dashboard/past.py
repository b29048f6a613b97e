"""The figures of one group for the hour before the page began, from Prometheus, where one is given."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from promptgroup_contract import names
from promptgroup_operator.load.prometheus_api import PrometheusApi, PrometheusError

SPAN = timedelta(hours=1)
STEP_SECONDS = 30
FRESH_SECONDS = 60.0
"""Time for which an answer is cached: the hour before changes slowly."""

Columns = Mapping[str, Mapping[int, float]]
"""Name of a series of the page → seconds since the epoch → value."""


def past_queries(group: str) -> dict[str, str]:
    """Return the query of each series of the page."""
    quoted = group.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    where = f'{{group="{quoted}"}}'
    streamed = f'{{group="{quoted}",streamed="{names.STREAMED}"}}'

    def total(series: str) -> str:
        return f"sum(rate(promptgroup_router_{series}{where}[2m]))"

    def first(q: float) -> str:
        buckets = f"rate({names.METRIC_REVISION_FIRST_TOKEN}_bucket{streamed}[2m])"
        return f"histogram_quantile({q}, sum by (le) ({buckets}))"

    return {
        "requestsPerSecond": total("requests_total"),
        "hitRate": f"{total('cached_tokens_total')} / {total('prompt_tokens_total')}",
        "ttftP50": first(0.5),
        "ttftP99": first(0.99),
        "moved": f"sum(increase(promptgroup_router_sessions_moved_total{where}[{STEP_SECONDS}s]))",
    }


@dataclass(slots=True)
class DashboardPast:
    """Queries the figures of one group at a time, the one that the page shows in detail.

    Args:
        ask: runs a query over a range of time; raises PrometheusError.
    """

    ask: Callable[[str, datetime, datetime], Mapping[int, float]]
    columns: Columns = field(default_factory=dict)
    group: str = ""
    problem: str = ""
    _queried_at: float = 0.0

    def refresh(self, group: str, now: datetime, clock: float) -> None:
        """Query a group's figures, unless its answer is still cached."""
        if group == self.group and clock - self._queried_at < FRESH_SECONDS:
            return
        self._queried_at = clock
        try:
            result = {name: self.ask(query, now - SPAN, now) for name, query in past_queries(group).items()}
        except PrometheusError as error:
            result, self.problem = {}, f"--prometheus: {error}; figures over time begin when the page did"
        else:
            self.problem = ""
        self.columns, self.group = result, group


def asking(prometheus: PrometheusApi) -> Callable[[str, datetime, datetime], Mapping[int, float]]:
    """Return a function that queries a Prometheus for one series over time."""

    def ask(query: str, start: datetime, end: datetime) -> Mapping[int, float]:
        query_range = prometheus.query_range(query, start, end, STEP_SECONDS)
        return dict(query_range[0][1]) if query_range else {}

    return ask


def before(columns: Columns, first: datetime | None) -> tuple[list[int], dict[str, Sequence[float | None]]]:
    """Return the times (seconds since the epoch) before a moment, and the values then of each series."""
    limit = first.timestamp() if first is not None else float("inf")
    times = sorted({at for values in columns.values() for at in values if at < limit})
    return times, {name: [values.get(at) for at in times] for name, values in columns.items()}
