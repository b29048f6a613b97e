"""Queries for Prometheus, and the parsing of their results. Does no I/O and reads no clock.

A query is a set of expressions, each named by a label `what`, so that one request returns the values of all of them at
one moment. An expression without series, or whose value is NaN, is missing in the result: its value is unknown.

Series of routers are selected by the namespace that service discovery gave their target, not only by the group label of
the page, which cannot be trusted.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from promptgroup_contract import names as router
from promptgroup_operator.engines.dialects.metric_names import MetricNames, Spellings
from promptgroup_operator.load.load_window import without_fastest
from promptgroup_operator.world.engine_facts import Measured
from promptgroup_operator.world.load import ClientLoad, EngineLoad, PromptDrift
from promptgroup_operator.world.samples import Histogram, histogram
from promptgroup_operator.world.snapshot import GuestSubject, Spent

WINDOW = timedelta(minutes=2)
"""The window of rates: two samples where Prometheus scrapes once a minute, its default."""
STALE = timedelta(minutes=2)
"""Age after which the newest sample is too old: two such scrapes."""

Answer = Sequence[tuple[Mapping[str, str], float]]
"""Labels and value of each series."""


@dataclass(frozen=True, slots=True)
class PromQuery:
    """Expressions by name."""

    parts: Mapping[str, str]

    def text(self) -> str:
        """Return one query for all expressions."""
        return " or ".join(
            f'label_replace({item}, "what", "{subject}", "", "")' for subject, item in self.parts.items()
        )


def parse_result(result: Iterable[Mapping[str, Any]]) -> Answer:
    """Return the result of an instant query, without values that are not finite.

    Raises:
        ValueError, TypeError, KeyError, IndexError: it has another form.
    """
    content = [(item["metric"], item["value"][1]) for item in result]
    if not all(isinstance(labels, Mapping) and isinstance(value, str) for labels, value in content):
        raise ValueError("a series has no labels or no value")
    values = ((dict(labels), float(value)) for labels, value in content)
    return [(labels, value) for labels, value in values if math.isfinite(value)]


Ranges = Sequence[tuple[Mapping[str, str], Sequence[tuple[int, float]]]]
"""Labels of each series, and its values by seconds since the epoch."""


def parse_range(result: Iterable[Mapping[str, Any]]) -> Ranges:
    """Return the result of a query over time, without values that are not finite; raises as `parse_result` does."""
    content = []
    for item in result:
        labels, values = dict(item["metric"]), [(int(at), float(value)) for at, value in item["values"]]
        content.append((labels, [(at, value) for at, value in values if math.isfinite(value)]))
    return content


# --- Queries -------------------------------------------------------------------------------------------------


def engine_queries(names: MetricNames, namespace: str, deployment: str, selector: str = "") -> list[PromQuery]:
    """Return the queries about the engines of a revision, whose pods are named after its Deployment."""
    pods = (f'namespace="{namespace}"', f'pod=~"{deployment.replace(".", "[.]")}-.+"')
    where = _matchers(*pods, selector)

    def each(spellings: Spellings, function: str, further: str = "") -> str:
        there = _matchers(*pods, further, selector)
        result = (f"sum by (pod) ({function}({name}{there}{_range()}))" for name in spellings)
        return "(" + " or ".join(result) + ")"

    counters = {
        "requests": names.requests,
        "queries": names.queries,
        "hits": names.hits,
        "tiers": names.tier_hits,
        "generated": names.generated,
        "computed": names.computed,
        "prefill": names.prefill_seconds,
        "decode": names.decode_seconds,
        "queue": names.queue_seconds,
        "preemptions": names.preemptions,
    }
    rates = {subject: f"sum({each(spellings, 'rate')})" for subject, spellings in counters.items() if spellings}
    if names.source_label:
        elsewhere = f'{names.source_label}!~"{"|".join(names.device)}"'
        rates["tiered"] = f"sum({each(names.hits, 'rate', elsewhere)})"
    scrapes = (
        "(" + " or ".join(f"max by (pod) (count_over_time({name}{where}{_range()}))" for name in names.queries) + ")"
    )
    # The sum over all scrapes, divided by the scrapes of the window: a pod that ran for half of it counts half.
    gauges = {
        subject: f"sum({each(spellings, 'sum_over_time')}) / scalar(max({scrapes}))"
        for subject, spellings in {"running": names.running, "waiting": names.waiting}.items()
    }
    newest = " or ".join(f"max(timestamp({name}{where}))" for name in names.queries)
    filled = " or ".join(f"avg by (pod) (avg_over_time({name}{where}{_range()}))" for name in names.usage)
    state = {"scrapes": scrapes, "newest": f"({newest})", "usage": f"avg({filled})"}
    first = {"first": f"sum by (le) (increase({names.first_token}_bucket{where}{_range()}))"}
    return [PromQuery(rates), PromQuery(gauges | state), PromQuery(first)]


def router_queries(
    revisions: Sequence[GuestSubject], router_namespaces: Iterable[str] = (), selector: str = ""
) -> list[PromQuery]:
    """Return the queries about revisions of groups to the routers that may serve them; values are sums over all.

    Args:
        revisions: at least one; all belong to groups of one namespace.
        router_namespaces: namespaces whose routers serve groups of other namespaces, beside the group's own.
        selector: label matchers that are added to every query.
    """
    where_from = "|".join(sorted({revisions[0].key.namespace, *router_namespaces}))
    groups = _one_of(f"{subject.key.namespace}/{subject.key.name}" for subject in revisions)
    ours, revision = f'namespace=~"{where_from}",group{groups}', _one_of(item.revision for item in revisions)
    where = _matchers(ours, f"revision{revision}", selector)
    failed = _matchers(ours, f"revision{revision}", f'outcome="{router.OUTCOME_FAILED}"', selector)
    opening = _matchers(ours, f"revision{revision}", f'turn="{router.TURN_FIRST}"', selector)
    streamed = _matchers(ours, f"revision{revision}", f'streamed="{router.STREAMED}"', selector)
    any_revision = _matchers(ours, selector)
    counted = {
        "requests": f"sum(rate({router.METRIC_REVISION_REQUESTS}{where}{_range()}))",
        "errors": f"sum(rate({router.METRIC_REVISION_REQUESTS}{failed}{_range()}))",
        "opening": f"sum(rate({router.METRIC_REVISION_REQUESTS}{opening}{_range()}))",
        "tokens": f"sum(rate({router.METRIC_REVISION_PROMPT_TOKENS}{where}{_range()}))",
        "answers": f"sum(rate({router.METRIC_REVISION_ANSWER_TOKENS}{where}{_range()}))",
        "looked_up": f"sum(rate({router.METRIC_SLOT_PROMPT_TOKENS}{where}{_range()}))",
        "cached": f"sum(rate({router.METRIC_SLOT_CACHED_TOKENS}{where}{_range()}))",
        "sessions": f"sum({router.METRIC_REVISION_SESSIONS}{where})",
        "session_tokens": f"sum({router.METRIC_REVISION_SESSION_TOKENS}{where})",
        "waiting": f"sum({router.METRIC_REVISION_WAITING}{where})",
        "served": f"sum(rate({router.METRIC_REVISION_REQUESTS}{any_revision}{_range()}))",
        "near_misses": f"sum(rate({router.METRIC_NEAR_MISSES}{any_revision}{_range()}))",
        "near_miss_offset": f"quantile(0.5, {router.METRIC_NEAR_MISS_OFFSET}{any_revision})",
    }
    first = {"first": f"sum by (le) (increase({router.METRIC_REVISION_FIRST_TOKEN}_bucket{streamed}{_range()}))"}
    evicted = {"evicted": f"sum by (within) (rate({router.METRIC_REVISION_EVICTED}{where}{_range()}))"}
    return [PromQuery(counted), PromQuery(first | evicted)]


def _one_of(values: Iterable[str]) -> str:
    """Return a label matcher for any of these values, which may be names of objects and digests."""
    result = sorted(set(values))
    if len(result) == 1:
        return f'="{result[0]}"'
    return '=~"' + "|".join(item.replace(".", "[.]") for item in result) + '"'


def _range() -> str:
    return f"[{WINDOW.total_seconds():.0f}s]"


def _matchers(*item: str) -> str:
    return "{" + ",".join(filter(None, item)) + "}"


# --- Answers -------------------------------------------------------------------------------------------------


def newest(answer: Answer) -> float | None:
    """Return the time of the engines' newest sample in seconds since the epoch; None if there is none."""
    return _values(answer).get("newest")


def engines(
    answer: Answer, serving: Mapping[str, datetime], own: Iterable[Spent], measured: Measured, now: datetime
) -> EngineLoad | None:
    """Return the engines' load; None without samples of them.

    Args:
        answer: answers to `engine_queries`.
        serving: pod → time since which it serves, for all that do.
        own: the operator's own requests in the window.
        measured: measurements of the engines.
        now: time of the queries.
    """
    values = _values(answer)
    scrapes = {labels["pod"]: value for labels, value in answer if labels.get("what") == "scrapes" and "pod" in labels}
    if "queries" not in values or not scrapes:
        return None
    most = max(scrapes.values())
    share = {pod: count / most for pod, count in scrapes.items()}
    lived = {pod: min(1.0, max(0.0, (now - since) / WINDOW)) for pod, since in serving.items()}
    lived |= {pod: max(lived.get(pod, 0.0), part) for pod, part in share.items()}
    seconds = WINDOW.total_seconds()
    mine = tuple(own)
    requested, requests = sum(spent.queries for spent in mine) / seconds, sum(spent.requests for spent in mine)
    cached = sum(spent.hits or 0 for spent in mine) / seconds
    tiers = values.get("tiers", 0.0)
    computed, prefill = values.get("computed"), values.get("prefill")
    if computed:
        clients = max(0.0, computed - max(0.0, requested - cached))
        prefill = prefill * clients / computed if prefill is not None else None
        computed = clients
    return EngineLoad(
        replicas=sum(share.values()),
        coverage=sum(share.values()) / sum(lived.values()),
        requests=max(0.0, values.get("requests", 0.0) - requests / seconds),
        queries=max(0.0, values["queries"] - requested),
        hits=max(0.0, values.get("hits", 0.0) + tiers - cached),
        generated=max(0.0, values.get("generated", 0.0) - requests / seconds),
        computed=computed,
        prefill_busy=prefill,
        decode_busy=values.get("decode"),
        queue_busy=values.get("queue"),
        running=values.get("running", 0.0),
        waiting=values.get("waiting", 0.0),
        usage=values.get("usage", 0.0),
        preemptions=values.get("preemptions"),
        first_token=without_fastest(_histogram(answer), requests),
        kv_tokens=measured.kv_tokens,
        prefill_rate=float(measured.prefill_rate),
        tiered=tiers or values.get("tiered", 0.0),
    )


def clients(answer: Answer, declared_tokens: int) -> ClientLoad | None:
    """Return the clients' load from the answers to `router_queries`; None if Prometheus has no router of the group."""
    values = _values(answer)
    if "sessions" not in values:
        return None
    requests = values.get("requests", 0.0)
    return ClientLoad(
        requests=requests,
        errors=values.get("errors", 0.0),
        prompt_tokens=values.get("tokens", 0.0),
        sessions=values["sessions"],
        session_tokens=values.get("session_tokens"),
        declared_tokens=declared_tokens,
        first_token=_histogram(answer),
        opening=values.get("opening", 0.0) / requests if requests else None,
        held=values.get("waiting", 0.0),
        evicted=_evicted(answer),
        answer_tokens=values.get("answers", 0.0),
        looked_up=values.get("looked_up", 0.0),
        cached=values.get("cached", 0.0),
    )


def _evicted(answer: Answer) -> tuple[float, ...]:
    bands = {labels.get("within"): value for labels, value in answer if labels.get("what") == "evicted"}
    return tuple(bands.get(band, 0.0) for band in router.EVICTED_WITHIN)


def drift(answer: Answer, declared_bytes: int) -> PromptDrift | None:
    """Return where requests differ from the declared prompt, from the same answers; None without near misses."""
    values = _values(answer)
    missed, at = values.get("near_misses", 0.0), values.get("near_miss_offset")
    if not missed or at is None:
        return None
    return PromptDrift(missed / (missed + values.get("served", 0.0)), int(at), declared_bytes)


def _values(answer: Answer) -> dict[str, float]:
    return {labels["what"]: value for labels, value in answer if set(labels) == {"what"}}


def _histogram(answer: Answer) -> Histogram:
    return histogram(dict(_buckets(answer)))


def _buckets(answer: Answer) -> Iterator[tuple[float, float]]:
    for labels, value in answer:
        if labels.get("what") == "first" and "le" in labels:
            yield float(labels["le"]), value
