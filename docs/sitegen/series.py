"""The metric series of operator and router → tables, from the objects that serve them."""

import asyncio
from collections.abc import Iterator

from promptgroup_operator.telemetry import collector
from promptgroup_operator.telemetry.metrics import OperatorMetrics
from promptgroup_router.base import settings
from promptgroup_router.base.metrics import Counter, LatencyHistogram
from promptgroup_router.server import Router
from sitegen.tables import sentence, table

HEADER = ["Name", "Type", "Labels", "Meaning"]

_GROUP = {
    "metadata": {"namespace": "chat", "name": "support"},
    "spec": {"model": "m", "engine": {"resources": {"limits": {"nvidia.com/gpu": 1}}}},
    "status": {
        "conditions": [
            {"type": "CacheEffective", "status": "True", "reason": "Healthy"},
            {"type": "Degraded", "status": "False", "reason": "AsExpected"},
        ]
    },
}
"""A group with everything that makes a series appear."""

Row = tuple[str, str, tuple[str, ...], str]


def group_rows() -> Iterator[Row]:
    """Yield name, type, labels and meaning of each series about a PromptGroup."""
    numbers = {name: text for name, text, *_ in collector.NUMBERS}
    for family in collector.families([_GROUP], {}, gpu_hour_price=1.0):
        name = "promptgroup_info" if family.type == "info" else family.name
        if name in numbers or not family.samples:
            continue
        yield name, "gauge", tuple(family.samples[0].labels), family.documentation
    for name, text in numbers.items():
        yield name, "gauge", collector.LABELS, text
    yield collector.SOURCE_RATIO, "gauge", collector.SOURCE_LABELS, collector.SOURCE_HELP
    for made, name, text, _ in collector.OF_REPLICAS:
        yield name, made(name, text).type, collector.REPLICA_LABELS, text


def operator_rows() -> Iterator[Row]:
    """Yield the same of each series about the operator's process."""
    for var in vars(OperatorMetrics()).values():
        if hasattr(var, "_labelnames"):
            family = next(iter(var.collect()))
            name = family.name + ("_total" if family.type == "counter" else "")
            yield name, family.type, tuple(var._labelnames), family.documentation


def router_rows() -> Iterator[Row]:
    """Yield the same of each series of the router."""
    for item in asyncio.run(_router_series()):
        kind = item._kind if isinstance(item, Counter) else "histogram"
        yield item.name, kind, item._labels, item._help


async def _router_series() -> list[Counter | LatencyHistogram]:
    """Return the series of a router with all its features, which is made and not started."""
    router = Router(settings.parse(["--table=none.json"], {}))
    await router.stop()
    return router.state.metrics.all


def groups() -> str:
    """Return the table of the groups' series."""
    return _table(group_rows())


def operator() -> str:
    """Return the table of the operator's own series."""
    return _table(operator_rows())


def router() -> str:
    """Return the table of the router's series."""
    return _table(router_rows())


def _table(rows: Iterator[Row]) -> str:
    return table(
        HEADER,
        [
            [f"`{name}`", kind, ", ".join(f"`{label}`" for label in labels), sentence(text)]
            for name, kind, labels, text in rows
        ],
    )
