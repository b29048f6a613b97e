"""Parse an engine's metrics page. Does no I/O and reads no clock.

Only the required lines are parsed: engines write a thousand lines, of which some fifty are used here, and an operator
reads a thousand engines.
"""

import re
from collections.abc import Mapping

from promptgroup_contract.table import MOST_RANKS
from promptgroup_operator.base.errors import EngineError
from promptgroup_operator.engines import exposition
from promptgroup_operator.engines.dialects.metric_names import MetricNames, Spellings, source
from promptgroup_operator.world.samples import Histogram, histogram
from promptgroup_operator.world.snapshot import Reading

MAX_BUCKETS = 200
"""Maximum number of buckets of a histogram; vLLM's has 21."""
MAX_ENGINES = MOST_RANKS
"""Maximum number of info lines: one for each data-parallel rank of a replica."""

_WHOLE = re.compile(r"[0-9]{1,12}")
_RANK = re.compile(r"[0-9]{1,3}")


def reading(page: str, names: MetricNames, rank: int | None = None) -> Reading:
    """Return a reading from a page.

    Args:
        page: the page.
        names: of the engine's metrics.
        rank: the data-parallel rank to read; None for all, whose counters are summed. The fields `ranks` and `by_rank`
            of the reading always cover all ranks.

    Raises:
        EngineError: the page has none of the engine's counters, or one that is not a number.
    """
    sums: dict[str, float] = {}
    peaks: dict[str, float] = {}
    buckets: dict[float, float] = {}
    info: list[Mapping[str, str]] = []
    sources: dict[str, float] = {}
    taken: dict[tuple[str, int], float] = {}
    tiered = active = 0.0
    written = frozenset((*names.queries, *names.generated))
    bucket = f"{names.first_token}_bucket"
    spelled = frozenset(names.spelled())
    desired = (*spelled, *names.by_source, bucket, *filter(None, (names.info,)))
    for name, labels, value in exposition.samples(page, desired):
        of = labels.get(names.rank_label, "") if names.rank_label else ""
        if name in written and _RANK.fullmatch(of) and len(taken) < 2 * MOST_RANKS:
            taken[name, int(of)] = taken.get((name, int(of)), 0.0) + _number(name, value)
        if rank is not None and of and of != str(rank):
            continue
        if name in names.by_source:
            word = labels.get(names.by_source_label, "device")
            number = _number(name, value)
            if number and word not in ("device", *names.device):
                sources[source(word)] = sources.get(source(word), 0.0) + number
        if name in spelled:
            number = _number(name, value)
            sums[name] = sums.get(name, 0.0) + number
            peaks[name] = max(peaks.get(name, 0.0), number)
            if name in names.tier_hits or (
                name in names.hits
                and names.source_label
                and labels.get(names.source_label, "device") not in names.device
            ):
                tiered += number
            elif name in names.active and labels.get("method") == "POST":  # GET would count this very request
                active += number
        elif name == bucket and "le" in labels:
            bound = exposition.bound(labels["le"])
            if bound is None or (bound not in buckets and len(buckets) >= MAX_BUCKETS):
                raise EngineError(f"{names.path}: {name} has a bucket that is not a number, or over {MAX_BUCKETS}")
            buckets[bound] = buckets.get(bound, 0.0) + _number(name, value)
        elif name == names.info and len(info) < MAX_ENGINES:
            info.append(labels)
    counted = any(name in sums for name in (*names.queries, *names.hits, *names.generated))
    if not counted and not (names.late and (sums or info)):
        raise EngineError(f"{names.path}: no {names.queries[0]}")

    def total(spellings: Spellings) -> float | None:
        return next((sums[name] for name in spellings if name in sums), None)

    named = sorted({item for _, item in taken})
    return Reading(
        ranks=len(named),
        by_rank=tuple(_written(taken, item, names) for item in named) if len(named) > 1 else (),
        queries=total(names.queries) or 0.0,
        hits=(total(names.hits) or 0.0) + (total(names.tier_hits) or 0.0),
        tiered=tiered,
        sources=sources,
        memory_usage=_memory_usage(names, sums, peaks),
        generated=total(names.generated) or 0.0,
        requests=total(names.requests) or 0.0,
        running=total(names.running) or 0.0,
        waiting=total(names.waiting) or 0.0,
        # The highest usage of the data-parallel engines.
        usage=next((peaks[name] for name in names.usage if name in peaks), 0.0),
        computed=total(names.computed),
        prefill_seconds=total(names.prefill_seconds),
        decode_seconds=total(names.decode_seconds),
        queue_seconds=total(names.queue_seconds),
        preemptions=total(names.preemptions),
        evicted=(total(names.evicted) or 0.0) if names.evicted else None,
        active=active,
        first_token=histogram(buckets) if buckets else Histogram(),
        step=_step(info, names) or max(1, int(total(names.block_size) or 1)),
        caching=_caching(info, names),
        kv_tokens=sum(_kv_tokens(labels, names) for labels in info)
        or int(total(names.kv_tokens) or (total(names.blocks) or 0.0) * (total(names.block_size) or 0.0)),
    )


def _written(taken: Mapping[tuple[str, int], float], rank: int, names: MetricNames) -> float:
    """Return the tokens that a rank looked up and generated."""
    return sum(
        next((taken[name, rank] for name in spellings if (name, rank) in taken), 0.0)
        for spellings in (names.queries, names.generated)
    )


def _memory_usage(names: MetricNames, sums: Mapping[str, float], peaks: Mapping[str, float]) -> float | None:
    """Return the share of the main memory for KV that is filled; None if the engine has none or does not report it."""
    share = next((peaks[name] for name in names.memory_usage if name in peaks), None)
    if share is not None:
        return share
    used = next((sums[name] for name in names.memory_used if name in sums), None)
    size = next((sums[name] for name in names.memory_size if name in sums), 0.0)
    return used / size if used is not None and size else None


def _number(name: str, text: str) -> float:
    value = exposition.number(text)
    if value is None:
        raise EngineError(f"/metrics: {name} is not a number from 0 to {exposition.MAX_NUMBER:.0e}")
    return value


def _step(info: list[Mapping[str, str]], names: MetricNames) -> int:
    wholes = (_whole(labels, label) for labels in info for label in names.step_labels)
    return next(filter(None, wholes), 0)


def _caching(info: list[Mapping[str, str]], names: MetricNames) -> bool | None:
    text = info[-1].get(names.caching_label, "").lower() if info else ""
    return {"true": True, "false": False}.get(text)


def _kv_tokens(labels: Mapping[str, str], names: MetricNames) -> int:
    blocks = _whole(labels, names.blocks_label) * _whole(labels, names.block_size_label)
    return _whole(labels, names.kv_tokens_label) or blocks


def _whole(labels: Mapping[str, str], label: str) -> int:
    """Return the label's whole number; 0 if it has none (an engine writes `None` for an unknown value)."""
    value = labels.get(label, "")
    return int(value) if _WHOLE.fullmatch(value) else 0
