"""The port, over a socket; and that the page in docs/ names what is served there, and nothing else."""

import asyncio
import contextlib
import re
import socket
from pathlib import Path

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from promptgroup_local.ports import free_ports
from promptgroup_operator.sizing.recommend import SizingDecision
from promptgroup_operator.telemetry import metrics_server
from promptgroup_operator.telemetry.collector import (
    NUMBERS,
    OF_REPLICAS,
    REPLICA_LABELS,
    SOURCE_LABELS,
    SOURCE_RATIO,
    PassSummary,
    families,
)
from promptgroup_operator.telemetry.metrics import PREFIX, OperatorMetrics
from promptgroup_operator.telemetry.metrics_server import GroupCollector, PortError, serving
from promptgroup_operator.world.snapshot import Key

PAGE = (Path(__file__).parents[4] / "docs/reference/metrics.md").read_text()
KEY = Key("chat", "support")
GROUP = {
    "metadata": {"namespace": "chat", "name": "support"},
    "spec": {"model": "llama", "engine": {"resources": {"limits": {"nvidia.com/gpu": 1}}}},
    "status": {
        "conditions": [
            {"type": "CacheEffective", "status": "True", "reason": "Healthy"},
            {"type": "Degraded", "status": "False", "reason": "AsExpected"},
        ],
        "replicas": 2,
    },
}
PRICE = 2.5
LOOK = PassSummary(SizingDecision(2, "FixedReplicas", "", active=False), 0.9, None)


class Operator:
    """What there is to tell."""

    def __init__(self):
        self.leads, self.groups, self.instruments = True, [GROUP], OperatorMetrics()
        self.instruments.registry.register(GroupCollector(lambda: self.leads, lambda: self.groups, lambda: {KEY: LOOK}))


def scraped(operator, path="/metrics", method="GET", **headers):
    async def scrape(port):
        async with (
            serving(operator.instruments.registry, "127.0.0.1", port),
            aiohttp.ClientSession() as client,
            client.request(method, f"http://127.0.0.1:{port}{path}", headers=headers) as answer,
        ):
            return answer.status, dict(answer.headers), await answer.text()

    return asyncio.run(scrape(free_ports(1)[0]))


def names(text):
    return {each.name for family in text_string_to_metric_families(text) for each in family.samples}


def test_prometheus_reads_all_of_it():
    status, headers, text = scraped(Operator())
    assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert {"promptgroup_hit_ratio", "promptgroup_operator_queue_depth", "process_cpu_seconds_total"} <= names(text)


def test_it_is_asked_for_openmetrics_and_for_less_bytes():
    accept = "application/openmetrics-text; version=1.0.0"
    _, headers, text = scraped(Operator(), Accept=accept, Accept_Encoding="gzip")
    assert headers["Content-Type"].startswith(accept)
    assert text.endswith("# EOF\n")
    _, headers, _ = scraped(Operator(), **{"Accept-Encoding": "gzip"})
    assert headers["Content-Encoding"] == "gzip"


def test_who_waits_to_lead_tells_of_itself_alone():
    operator = Operator()
    operator.leads = False
    _, _, text = scraped(operator)
    assert {name for name in names(text) if name.startswith("promptgroup_")} >= {"promptgroup_operator_leader"}
    assert not {name for name in names(text) if name.startswith("promptgroup_") and PREFIX not in name}


def test_the_series_of_a_deleted_group_end_with_it():
    operator = Operator()
    assert "promptgroup_info" in names(scraped(operator)[2])
    operator.groups = []
    assert "promptgroup_info" not in names(scraped(operator)[2])


def test_nothing_else_is_served():
    assert scraped(Operator(), "/")[0] == 404
    assert scraped(Operator(), method="POST")[0] == 405


async def begin(port):
    async with serving(OperatorMetrics().registry, "127.0.0.1", port):
        pass


def test_port_0_is_none(monkeypatch):
    monkeypatch.setattr(metrics_server.web, "TCPSite", None)
    asyncio.run(begin(0))


def test_a_port_in_use_is_told_with_the_flag():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortError, match=rf"--metrics-port: cannot listen on 127\.0\.0\.1, port {port}.*0 for none"):
            asyncio.run(begin(port))


# --- docs/reference/metrics.md ---


def documented(prefix):
    """Name → (type, labels), from the rows of the page's tables."""
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]*)\|", PAGE, re.MULTILINE)
    found = {name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    assert len(found) == len(rows)
    return {name: each for name, each in found.items() if name.startswith(prefix)}


def test_the_page_has_every_series_of_groups_with_its_labels():
    told = {}
    for family in families([GROUP], {}, PRICE):
        for each in family.samples:
            told[each.name] = ("gauge", tuple(each.labels))
    told |= {name: ("gauge", ("namespace", "name")) for name, *_ in NUMBERS} | {SOURCE_RATIO: ("gauge", SOURCE_LABELS)}
    told |= {name: (kind(name, "").type, REPLICA_LABELS) for kind, name, *_ in OF_REPLICAS}
    assert {
        name: each
        for name, each in documented("promptgroup_").items()
        if "_operator_" not in name and "_router_" not in name
    } == told


def test_the_page_has_every_series_of_the_process_with_its_labels():
    kept = [each for each in vars(OperatorMetrics()).values() if hasattr(each, "_labelnames")]
    told = {}
    for each in kept:
        name = f"{each._name}_total" if each._type == "counter" else each._name
        told[name] = (each._type, tuple(each._labelnames))
    assert documented(PREFIX) == told
    exposed = re.findall(
        rf"^# TYPE ({PREFIX}\w+) (\w+)", generate_latest(OperatorMetrics().registry).decode(), re.MULTILINE
    )
    assert dict(exposed) == {name: kind for name, (kind, _) in told.items()}


def test_a_page_is_made_once_however_many_ask(monkeypatch):
    monkeypatch.setattr(metrics_server, "PAGE_SECONDS", 60.0)
    made = []

    class Counted:
        def collect(self):
            made.append(1)
            return ()

    registry = CollectorRegistry()
    registry.register(Counted())
    made.clear()

    async def scrape(port):
        async with serving(registry, "127.0.0.1", port), aiohttp.ClientSession() as client:

            async def page(accept):
                async with client.get(f"http://127.0.0.1:{port}/metrics", headers={"Accept": accept}) as answer:
                    assert answer.headers["Connection"] == "close"
                    return await answer.text()

            await asyncio.gather(*[page("text/plain") for _ in range(20)])
            await page("application/openmetrics-text; version=1.0.0")

    asyncio.run(scrape(free_ports(1)[0]))
    assert len(made) == 2


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.1\r\nx: "], ids=["nothing", "half a head"])
def test_connections_that_stay_open_are_closed_and_scrapes_go_on(sent, monkeypatch):
    monkeypatch.setattr(metrics_server, "OPEN_SECONDS", 0.2)
    monkeypatch.setattr(metrics_server, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(metrics_server, "CONNECTIONS", 5)

    async def check(port):
        async with serving(CollectorRegistry(), "127.0.0.1", port), aiohttp.ClientSession() as client:
            opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
            for _, writer in opened:
                writer.write(sent)
            for reader, writer in opened:
                with contextlib.suppress(ConnectionError):
                    await asyncio.wait_for(reader.read(), 10)
                writer.close()
            async with client.get(f"http://127.0.0.1:{port}/metrics") as answer:
                assert answer.status == 200

    asyncio.run(check(free_ports(1)[0]))
