"""Each query of the dashboard finds something in a real Prometheus that watches a router at work and an operator."""

import asyncio
import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_client import start_http_server

from promptgroup_cli.dashboard.past import FRESH_SECONDS, DashboardPast, asking, past_queries
from promptgroup_contract.fingerprint import ShortFingerprint
from promptgroup_contract.table import Slot, SlotState
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
from promptgroup_router.feed import table_file
from support.builders import reading
from support.loads import load
from support.prometheus import prometheus
from support.served import Served, served
from support.tables import SYSTEM, slot, table
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
ERRORS = 0.2
"""Share of the requests that engines fail."""
EDITED = SYSTEM[:-4] + "GmbH"
"""A prompt that is nearly the declared one."""
PRICE = 2.5


def operator() -> OperatorMetrics:
    """What an operator tells of a group with one replica."""
    last = reading(usage=0.4, preemptions=7.0, tiered=100.0, evicted=900.0, memory_usage=0.5)
    replica = ReplicaSummary(ShortFingerprint("0123abcd"), 0, last, 12.0, 1.5)
    size = SizingDecision(4, "WithinTarget", "", active=True, requested=4, model=fit(load()))
    look = PassSummary(size, 0.9, datetime.now(UTC), (replica,), tier_hit_rate=0.2, tier_hit_rates={"memory": 0.2})
    return told_operator(look, leads=True, ready=("True", "Warm"), cache=("True", "Healthy"), price=PRICE)


class Tables:
    """The tables of a router whose engines leave and come back by turns, with a slot that nobody answers at."""

    def __init__(self, found: Served, file: Path) -> None:
        self._state, self._file = found.router.state, file
        [self._group] = self._state.index.table.groups
        [closed] = free_ports(1)
        self._dead = slot(len(self._slots), address=f"127.0.0.1:{closed}")

    @property
    def _slots(self) -> tuple[Slot, ...]:
        return self._group.revisions[0].slots

    def leave(self, number: int) -> None:
        """Let one slot be absent, and no other; return when the router knows."""
        slots = [replace(each, state=SlotState.ABSENT) if each.index == number else each for each in self._slots]
        revisions = (replace(self._group.revisions[0], slots=(*slots, self._dead)),)
        table_file.write(self._file, table(replace(self._group, revisions=revisions), version=f"without-{number}"))
        known = f"without-{number}"
        wait_for(lambda: self._state.index.table.version == known or None, "the router to know")


@contextmanager
def working(found: Served, file: Path, told: OperatorMetrics) -> Iterator[None]:
    """Sessions and passes that go on, so that every counter rises between two scrapes; slots leave between turns."""
    done = threading.Event()
    tables = Tables(found, file)

    def work() -> None:
        for seed in range(1000):
            drawn = conversations(sessions([Task("support", SYSTEM), Task("edited", EDITED)], 6, seed, turns=2))
            for turn in range(2):
                if done.is_set():
                    return
                asyncio.run(drive(drawn, Target([found.url], "llama", usage=True), concurrency=6, turns=1))
                tables.leave(turn)
            found.router.state.metrics.queued_seconds.observe("chat/support", value=0.1)
            told.passes.observe(0.01)
            told.pass_failures.labels(FAULT).inc()
            told.warmups.labels("PrefixCached").inc()

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
    with served(tmp_path / "router", engines=2, error_rate=ERRORS) as found:
        targets = {
            f"127.0.0.1:{operator_port}": {"namespace": "promptgroup-system"},
            f"127.0.0.1:{found.router.admin_port}": {"namespace": "chat", "pod": "router-0"},
        }
        with prometheus(tmp_path, port, targets) as scraper, working(found, tmp_path / "router/table.json", told):

            def answered(query: str) -> bool:
                return any(each["value"][1] != "NaN" for each in scraper.ask(query))

            def silent() -> set[str]:
                # a router that listens to no others says nothing of peers
                alone = {title for title, query in QUERIES.items() if "promptgroup_router_peers" in query}
                return {title for title, query in QUERIES.items() if not answered(query)} - alone

            wait_for(lambda: not silent() or None, "every panel to have an answer", silent)
            past = DashboardPast(asking(PrometheusApi(Settings(prometheus_url=scraper.url))))
            fresh = itertools.count(0.0, FRESH_SECONDS)

            def shown() -> set[str]:
                """What `promptgroup dashboard` shows of the hour before, which ends at a whole second."""
                past.refresh("chat/support", datetime.now(UTC), next(fresh))
                return {name for name, values in past.columns.items() if values and not past.problem}

            wanted = past_queries("chat/support").keys()
            wait_for(lambda: shown() >= wanted or None, "the hour before", lambda: (shown(), past.problem))
            assert all(0 <= share <= 1 for share in past.columns["hitRate"].values())
    server.shutdown()
    server.server_close()
    thread.join()
