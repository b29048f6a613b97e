"""A real Prometheus scrapes what operators and routers serve, and answers the queries of docs/reference/metrics.md."""

import asyncio
import re
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from promptgroup_local.kubectl import wait_for
from promptgroup_local.ports import free_ports
from promptgroup_operator.sizing.model import fit
from promptgroup_operator.sizing.recommend import SizingDecision
from promptgroup_operator.telemetry.collector import PassSummary
from promptgroup_operator.telemetry.metrics import FAULT, OperatorMetrics
from promptgroup_operator.telemetry.metrics_server import serving
from promptgroup_router.base.metrics import Metrics
from support.loads import load
from support.prometheus import prometheus
from support.toldoperator import told_operator

pytestmark = pytest.mark.integration

QUERIES = re.findall(
    r"^```promql\n(.*?)\n```$",
    (Path(__file__).parents[2] / "docs/reference/metrics.md").read_text(),
    re.MULTILINE | re.DOTALL,
)


def trouble() -> OperatorMetrics:
    """An operator of which each query has something to say."""
    size = SizingDecision(4, "TooManyReplicas", "", active=True, requested=5, model=fit(load()))
    look = PassSummary(size, 0.4, datetime.now(UTC) - timedelta(hours=1))
    return told_operator(look, leads=False, ready=("False", "Warming"), cache=("False", "Thrashing"))


class Router(Collector):
    """A router's own text."""

    def __init__(self) -> None:
        self._metrics = Metrics()
        self._metrics.requests.add("chat/support", "200")

    def collect(self) -> Iterator[Any]:
        return iter(text_string_to_metric_families(self._metrics.text()))


@contextmanager
def served(registries: dict[int, CollectorRegistry]) -> Iterator[None]:
    """Each at its port, from a thread."""
    loop, begun, ended = asyncio.new_event_loop(), threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with AsyncExitStack() as stack:
            for port, registry in registries.items():
                await stack.enter_async_context(serving(registry, "127.0.0.1", port))
            begun.set()
            await ended.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert begun.wait(10)
        yield
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(10)
        loop.close()


def test_every_documented_query_finds_the_trouble_it_is_for(tmp_path: Path) -> None:
    operator_port, router_port, port = free_ports(3)
    instruments, router = trouble(), CollectorRegistry()
    router.register(Router())
    targets = {f"127.0.0.1:{operator_port}": {"namespace": "promptgroup-system"}, f"127.0.0.1:{router_port}": {}}
    with (
        served({operator_port: instruments.registry, router_port: router}),
        prometheus(tmp_path, port, targets) as server,
    ):

        def ask(query: str) -> list[dict[str, Any]] | None:
            instruments.pass_failures.labels(FAULT).inc()  # an increase is between two scrapes
            return server.ask(query) or None

        assert len(QUERIES) == 8
        found = {query: wait_for(lambda query=query: ask(query), query) for query in QUERIES}
        named = {query: each[0]["metric"] for query, each in found.items() if "namespace" in each[0]["metric"]}
        assert {labels["namespace"] for query, labels in named.items() if "_operator_" not in query} == {"chat"}
        wait_for(lambda: True if len(ask("up == 1") or []) == 2 else None, "both", lambda: ask("up"))
