"""An engine's metrics in Prometheus' exposition format → a reading. Pure.

Of a page only what is asked for is parsed: engines write a thousand lines, of which some fifty count here, and an
operator reads a thousand engines.
"""

import math
import re
from collections.abc import Iterator, Mapping

from promptgroup_operator.base.errors import EngineError
from promptgroup_operator.engines.metric_names import MetricNames, Spellings
from promptgroup_operator.world.samples import Histogram, histogram
from promptgroup_operator.world.snapshot import Reading

_SAMPLE = re.compile(r"^(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_WHOLE = re.compile(r"[0-9]{1,12}")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_BOUND = re.compile(r'\ble="([^"]*)"')


def reading(text: str, names: MetricNames) -> Reading:
    """A reading from a page; sums over labels, so that data-parallel engines count as one.

    Raises:
        EngineError: the page has none of the engine's counters, or one that is no number.
    """
    sums: dict[str, float] = {}
    peaks: dict[str, float] = {}
    buckets: dict[float, float] = {}
    info: list[dict[str, str]] = []
    bucket = f"{names.first_token}_bucket"
    spelled = frozenset(names.spelled())
    for name, labels, value in _samples(text, (*spelled, bucket, *filter(None, (names.info,)))):
        if name in spelled:
            number = _number(name, value)
            sums[name] = sums.get(name, 0.0) + number
            peaks[name] = max(peaks.get(name, 0.0), number)
        elif name == bucket and (found := _BOUND.search(labels)):
            bound = _number(name, found[1], endless=True)
            buckets[bound] = buckets.get(bound, 0.0) + _number(name, value)
        elif name == names.info:
            info.append(dict(_LABEL.findall(labels)))
    counted = any(name in sums for name in (*names.queries, *names.hits, *names.generated))
    if not counted and not (names.late and (sums or info)):
        raise EngineError(f"{names.path}: no {names.queries[0]}")

    def total(spellings: Spellings) -> float | None:
        return next((sums[name] for name in spellings if name in sums), None)

    return Reading(
        queries=total(names.queries) or 0.0,
        hits=total(names.hits) or 0.0,
        generated=total(names.generated) or 0.0,
        requests=total(names.requests) or 0.0,
        running=total(names.running) or 0.0,
        waiting=total(names.waiting) or 0.0,
        # of data-parallel engines the fullest
        usage=next((peaks[name] for name in names.usage if name in peaks), 0.0),
        computed=total(names.computed),
        prefill_seconds=total(names.prefill_seconds),
        decode_seconds=total(names.decode_seconds),
        queue_seconds=total(names.queue_seconds),
        preemptions=total(names.preemptions),
        first_token=histogram(buckets) if buckets else Histogram(),
        step=_step(info, names) or int(total(names.block_size) or 1),
        caching=_caching(info, names),
        kv_tokens=sum(_kv_tokens(labels, names) for labels in info)
        or int(total(names.kv_tokens) or (total(names.blocks) or 0.0) * (total(names.block_size) or 0.0)),
    )


def _samples(text: str, names: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    """Name, labels and value of samples whose names begin with one of these."""
    for line in text.splitlines():
        match = _SAMPLE.match(line) if line.startswith(names) else None
        if match is not None:
            yield match["name"], match["labels"] or "", match["value"]


def _number(name: str, text: str, *, endless: bool = False) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isnan(value) or (math.isinf(value) and not endless):
        raise EngineError(f"/metrics: {name} is no number")
    return value


def _step(info: list[dict[str, str]], names: MetricNames) -> int:
    found = (_whole(labels, label) for labels in info for label in names.step_labels)
    return next(filter(None, found), 0)


def _caching(info: list[dict[str, str]], names: MetricNames) -> bool | None:
    said = info[-1].get(names.caching_label, "").lower() if info else ""
    return {"true": True, "false": False}.get(said)


def _kv_tokens(labels: Mapping[str, str], names: MetricNames) -> int:
    blocks = _whole(labels, names.blocks_label) * _whole(labels, names.block_size_label)
    return _whole(labels, names.kv_tokens_label) or blocks


def _whole(labels: Mapping[str, str], label: str) -> int:
    """The label's whole number; 0 where it has none (an engine writes `None` for what it does not know)."""
    value = labels.get(label, "")
    return int(value) if _WHOLE.fullmatch(value) else 0
