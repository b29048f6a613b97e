"""Each query of the dashboard finds something in a real Prometheus that watches a router at work and an operator."""

import asyncio
import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_client import start_http_server

from promptgroup_cli.dashboard.past import FRESH_SECONDS, DashboardPast, asking, past_queries
from promptgroup_local.kubectl import wait_for
from promptgroup_local.load.client import Target, drive
from promptgroup_local.load.workload import Task, conversations, sessions
from promptgroup_local.ports import free_ports
from promptgroup_operator.base.settings import Settings
from promptgroup_operator.load.prometheus_api import PrometheusApi
from promptgroup_operator.sizing.model import fit
from promptgroup_operator.sizing.recommend import SizingDecision
from promptgroup_operator.telemetry.collector import PassSummary, ReplicaSummary
from promptgroup_operator.telemetry.metrics import FAULT, OperatorMetrics
from promptgroup_router.contract.fingerprint import ShortFingerprint
from support.builders import reading
from support.loads import load
from support.prometheus import prometheus
from support.served import Served, served
from support.tables import SYSTEM
from support.toldoperator import told_operator

pytestmark = pytest.mark.integration

DASHBOARD = json.loads((Path(__file__).parents[2] / "manifests/monitoring/dashboard.json").read_text())
QUERIES = {
    f"{panel['title']} {target['refId']}": target["expr"]
    .replace("$namespace/$name", ".+/.+")
    .replace("$namespace", ".*")
    .replace("$name", ".*")
    .replace("$__rate_interval", "1m")
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", [])
}
OF_TROUBLE = frozenset(
    {
        "Does the new revision fail more often? A",
        "Do requests wait, or are they sent again? B",
        "How many sessions move a second? A",
    }
)
"""Queries that are empty while no request fails and no session moves."""


def operator() -> OperatorMetrics:
    """What an operator tells of a group with one replica."""
    last = reading(usage=0.4, tiered=100.0, evicted=50.0, memory_usage=0.5)
    replica = ReplicaSummary(ShortFingerprint("0123abcd"), 0, last, 12.0)
    size = SizingDecision(4, "WithinTarget", "", active=True, asked=4, model=fit(load()))
    look = PassSummary(size, 0.9, datetime.now(UTC), (replica,), tier_hit_rate=0.2, tier_hit_rates={"memory": 0.2})
    return told_operator(look, leads=True, ready=("True", "Warm"), cache=("True", "Healthy"))


@contextmanager
def working(found: Served, told: OperatorMetrics) -> Iterator[None]:
    """Sessions and passes that go on, so that every counter rises between two scrapes."""
    done = threading.Event()

    def work() -> None:
        for seed in range(1000):
            if done.is_set():
                return
            drawn = conversations(sessions([Task("support", SYSTEM)], 2, seed, turns=2))
            asyncio.run(drive(drawn, Target([found.url], "llama", usage=True), concurrency=2))
            told.passes.observe(0.01)
            told.pass_failures.labels(FAULT).inc()
            told.warmups.labels("PrefixCached").inc()
            done.wait(0.2)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(30)


def test_every_panel_has_an_answer(tmp_path: Path) -> None:
    operator_port, port = free_ports(2)
    told = operator()
    server, thread = start_http_server(operator_port, "127.0.0.1", told.registry)
    (tmp_path / "router").mkdir()
    with served(tmp_path / "router", engines=2) as found:
        found.router.state.metrics.held_seconds.observe("chat/support", value=0.1)
        targets = {
            f"127.0.0.1:{operator_port}": {"namespace": "promptgroup-system"},
            f"127.0.0.1:{found.router.admin_port}": {"namespace": "chat", "pod": "router-0"},
        }
        with prometheus(tmp_path, port, targets) as scraper, working(found, told):

            def answered(query: str) -> bool:
                return any(each["value"][1] != "NaN" for each in scraper.ask(query))

            def silent() -> set[str]:
                return {title for title, query in QUERIES.items() if not answered(query)}

            wait_for(lambda: silent() == OF_TROUBLE or None, "every panel to have an answer", silent, 60)
            past = DashboardPast(asking(PrometheusApi(Settings(prometheus_url=scraper.url))))
            fresh = itertools.count(0.0, FRESH_SECONDS)

            def shown() -> set[str]:
                """What `promptgroup dashboard` shows of the hour before, which ends at a whole second."""
                past.refresh("chat/support", datetime.now(UTC), next(fresh))
                assert past.problem == ""
                return {name for name, values in past.columns.items() if values}

            wanted = past_queries("chat/support").keys() - {"moved"}
            wait_for(lambda: shown() >= wanted or None, "the hour before", shown, 60)
            assert all(0 <= share <= 1 for share in past.columns["hitRate"].values())
    server.shutdown()
    server.server_close()
    thread.join()
