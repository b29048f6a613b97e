"""Loads of real traffic, read by the operator itself and by a real Prometheus: they agree, and neither invents any."""

import itertools
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

import pytest
import urllib3

from promptgroup_contract.fingerprint import fingerprint
from promptgroup_local import lab
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from promptgroup_local.ports import free_ports
from promptgroup_operator.base.errors import EngineError
from promptgroup_operator.base.settings import Settings
from promptgroup_operator.engines.dialects.vllm import VLLM
from promptgroup_operator.engines.engine import EngineClient
from promptgroup_operator.load import engine_history, prometheus, promql, router_history
from promptgroup_operator.load.engine_history import EngineHistory
from promptgroup_operator.load.load_source import LoadSubject, ScrapedLoad
from promptgroup_operator.load.prometheus import Prometheus
from promptgroup_operator.load.router_history import RouterHistory
from promptgroup_operator.load.router_metrics import parse
from promptgroup_operator.telemetry.collector import NUMBERS
from promptgroup_operator.world.engine_facts import Measured
from promptgroup_operator.world.load import GroupLoad
from promptgroup_operator.world.snapshot import Key
from promptgroup_router.feed import table_file
from support.groups import PROMPTS
from support.groups import group as group_of
from support.operators import SYSTEM as SYSTEM_NAMESPACE
from support.operators import metrics
from support.prometheus import Prometheus as PrometheusServer
from support.prometheus import prometheus as running_prometheus
from support.prometheus import until
from support.routed import routers_know
from support.tables import group, revision, slot, table

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SYSTEM = "You are the support assistant of Example Ltd. " + "Rule: answer kindly and be brief. " * 40
KEY = Key("chat", "support")
DEPLOYMENT = "support-12345678"
WINDOW = timedelta(seconds=15)
SESSIONS = 6
PACE = {"STANDIN_STEP_MS": "100"}
"""Answers take most of a client's time, so that a gauge of running requests says the same at any moment it is read."""


@contextmanager
def process(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    running = subprocess.Popen(
        [sys.executable, "-m", *command],
        env={**os.environ, **PACE},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield running
    finally:
        running.terminate()
        running.wait(timeout=20)


def answers(url: str) -> None:
    def probe() -> bool | None:
        try:
            return urllib3.request("GET", url, timeout=1, retries=False).status == 200 or None
        except urllib3.exceptions.HTTPError:
            return None

    wait_for(probe, url)


class Fleet:
    """Two engines behind a router, and clients who take turns there."""

    def __init__(self, folder: Path) -> None:
        self.ports = free_ports(5)
        self._stack = ExitStack()
        self._engines = [ExitStack(), ExitStack()]
        self._containers = [0, 0]
        self._done = threading.Event()
        self.pool = EngineClient()
        self.failed = 0
        slots = tuple(slot(index, address=f"127.0.0.1:{self.ports[index]}") for index in (0, 1))
        table_file.write(folder / "table.json", table(group("support", revision(SYSTEM, slots), model="tiny")))
        self._table = folder / "table.json"

    def __enter__(self) -> Self:
        for index in (0, 1):
            self.start(index)
        flags = ("--host=127.0.0.1", f"--port={self.ports[2]}", f"--admin-port={self.ports[3]}")
        self._stack.enter_context(process("promptgroup_router", f"--table={self._table}", *flags))
        answers(f"http://127.0.0.1:{self.ports[3]}/readyz")
        for number in range(SESSIONS):
            worker = threading.Thread(target=self._talk, args=(number,), daemon=True)
            worker.start()
            self._stack.callback(worker.join, 20)
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._stack.close()
        for engine in self._engines:
            engine.close()
        self.pool.close()

    def start(self, index: int) -> None:
        """A new process of an engine, with counters at zero."""
        self._containers[index] += 1
        port = self.ports[index]
        self._engines[index].enter_context(
            process("promptgroup_local.engine", "tiny", "--host=127.0.0.1", f"--port={port}")
        )
        answers(f"http://127.0.0.1:{port}/health")

    def restart(self, index: int) -> None:
        self._engines[index].close()
        self.start(index)

    def container(self, index: int) -> str:
        return f"c{index}-{self._containers[index]}"

    def text(self, index: int, path: str = "/metrics") -> str:
        return self.pool.text(f"127.0.0.1:{self.ports[index]}", path)

    def _talk(self, number: int) -> None:
        """Sessions of three turns, one after the other; each third asks with a date on top of the prompt."""
        http, session = urllib3.PoolManager(), 0
        while not self._done.is_set():
            session += 1
            system = f"Today is day {session}.\n{SYSTEM}" if number % 3 == 2 else SYSTEM
            messages = [{"role": "system", "content": system}]
            for turn in range(3):
                messages.append({"role": "user", "content": f"session {number}-{session}: question {turn}? " * 5})
                body = {"model": "tiny", "messages": messages, "max_tokens": 8}
                try:
                    answer = http.request(
                        "POST", f"http://127.0.0.1:{self.ports[2]}/v1/chat/completions", json=body, timeout=10
                    )
                    messages.append(json.loads(answer.data)["choices"][0]["message"])
                except (urllib3.exceptions.HTTPError, ValueError, KeyError):
                    self.failed += 1
                    break
                self._done.wait(0.05)


class Watching:
    """The operator's own readings, once a second."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.engines, self.routers = EngineHistory(), RouterHistory()
        self.since = datetime.now(UTC)
        self.serving = {fleet.container(index): self.since for index in (0, 1)}

    def look(self) -> datetime:
        now = datetime.now(UTC)
        for index in (0, 1):
            container = self.fleet.container(index)
            self.serving.setdefault(container, now)
            try:
                self.engines.begin(now)
                reading = self.fleet.pool.read(f"127.0.0.1:{self.fleet.ports[index]}", VLLM)
                self.engines.add(container, reading, now, (KEY, fingerprint(SYSTEM)))
            except EngineError:
                continue
        self.routers.add("r", parse(self.fleet.text(3), lambda _: True), now)
        return now

    def watch(self, seconds: float) -> datetime:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            moment = time.monotonic()
            now = self.look()
            until(moment + 1)
        return now

    def subject(self) -> LoadSubject:
        current = {self.fleet.container(index) for index in (0, 1)}
        return LoadSubject(
            KEY,
            fingerprint(SYSTEM),
            VLLM.metrics,
            DEPLOYMENT,
            pods={f"{DEPLOYMENT}-p{index}": self.since for index in (0, 1)},
            serving={container: since for container, since in self.serving.items() if container in current},
            measured=Measured(400_000, 9000, 900),
            declared_bytes=len(SYSTEM.encode()),
        )


@pytest.fixture
def short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of seconds, so that a test need not wait for minutes."""
    second = timedelta(seconds=1)
    monkeypatch.setattr(engine_history, "LOAD_WINDOW", WINDOW)
    monkeypatch.setattr(engine_history, "PERIOD", second)
    monkeypatch.setattr(router_history, "LOAD_WINDOW", WINDOW)
    monkeypatch.setattr(router_history, "SPACING", second)
    monkeypatch.setattr(promql, "WINDOW", WINDOW)
    monkeypatch.setattr(prometheus, "PERIOD", timedelta())
    monkeypatch.setattr(prometheus, "PATIENCE", 10.0)


def close(own: float | None, told: float | None, share: float = 0.2, least: float = 0.1) -> bool:
    assert own is not None
    assert told is not None
    return abs(own - told) <= max(least, share * max(abs(own), abs(told)))


def whole_window(server: PrometheusServer, targets: int) -> bool:
    """Return whether it has scraped for a window: rates are too low before, and targets are found late."""
    return len(server.ask(f"up offset {WINDOW.total_seconds() + 1:.0f}s == 1")) == targets


def agree(own: GroupLoad, told: GroupLoad) -> None:
    """Both sources say the same; they sample at other moments, and Prometheus extrapolates to the window's ends."""
    assert own.stale == told.stale == ""
    assert own.engines is not None
    assert told.engines is not None
    for field in ("requests", "queries", "hits", "generated", "computed", "prefill_busy", "decode_busy"):
        assert close(getattr(own.engines, field), getattr(told.engines, field)), field
    assert close(own.engines.hit_rate, told.engines.hit_rate, least=0.05)
    assert close(own.engines.replicas, told.engines.replicas, least=0.2)
    assert close(own.engines.running, told.engines.running, least=1.5)
    assert close(own.engines.first_token.total, told.engines.first_token.total, least=5)
    assert (told.engines.kv_tokens, told.engines.prefill_rate) == (400_000, 9000)
    assert own.clients is not None
    assert told.clients is not None
    for field in ("requests", "prompt_tokens", "sessions", "session_tokens"):
        assert close(getattr(own.clients, field), getattr(told.clients, field), least=3), field
    assert own.drift is not None
    assert told.drift is not None
    assert close(own.drift.share, told.drift.share)
    assert own.drift.at == told.drift.at == 0
    assert own.drift.length == told.drift.length == len(SYSTEM.encode())


def test_both_sources_tell_the_same_load_and_a_restart_or_an_outage_is_no_load(
    tmp_path: Path, short_windows: None
) -> None:
    with Fleet(tmp_path) as fleet:
        labels = [{"namespace": "chat", "pod": f"{DEPLOYMENT}-p{index}"} for index in (0, 1)]
        targets = {f"127.0.0.1:{fleet.ports[index]}": labels[index] for index in (0, 1)}
        targets[f"127.0.0.1:{fleet.ports[3]}"] = {"namespace": "chat", "pod": "router"}
        watching = Watching(fleet)
        own = ScrapedLoad(watching.engines, watching.routers)
        with running_prometheus(tmp_path, fleet.ports[4], targets) as server:
            asked = Prometheus(
                Settings(prometheus_url=f"http://user:secret@127.0.0.1:{fleet.ports[4]}"), EngineHistory()
            )
            now = watching.watch(WINDOW.total_seconds() + 4)
            while not whole_window(server, len(targets)):
                assert now - watching.since < timedelta(minutes=2), server.ask("up")
                now = watching.watch(1)
            before = own.load(watching.subject(), now)
            agree(before, asked.load(watching.subject(), now))
            assert before.engines is not None
            assert (before.engines.coverage, before.engines.replicas) == (
                pytest.approx(1, abs=0.1),
                pytest.approx(2, abs=0.1),
            )

            fleet.restart(0)
            for _ in range(4):
                now = watching.watch(2)
                for load in (own.load(watching.subject(), now), asked.load(watching.subject(), now)):
                    assert load.engines is not None, load.stale
                    assert 0 <= load.engines.queries < 1.5 * before.engines.queries
                    assert 0 <= load.engines.requests < 1.5 * before.engines.requests

            server.stop()
            later = datetime.now(UTC) + timedelta(minutes=1)
            silent = asked.load(watching.subject(), later)
            assert silent.engines is None
            assert f"Prometheus at http://127.0.0.1:{fleet.ports[4]} has not answered since" in silent.stale
            assert "secret" not in silent.stale
            asked.close()
            assert own.load(watching.subject(), watching.look()).engines is not None


def asked(kube: Kubectl, number: int) -> None:
    """A request that brings the declared prompt, by the router."""
    body = {"model": "tiny", "max_tokens": 4, "messages": [{"role": "system", "content": PROMPTS["a"]}]}
    body["messages"] += [{"role": "user", "content": f"question {number}?"}]
    url = f"{lab.router_url(kube)}/v1/chat/completions"
    assert urllib3.request("POST", url, json=body, timeout=10).status == 200


def condition(kube: Kubectl, name: str, kind: str) -> dict[str, str]:
    found = kube.get("promptgroup", name)["status"].get("conditions", [])
    return next((each for each in found if each["type"] == kind), {})


def test_the_load_of_a_sized_group_reaches_its_conditions_and_prometheus(
    kube: Kubectl, cluster: LocalCluster, operator: None
) -> None:
    lab.install_router(kube)
    made = group_of("sized")
    del made["spec"]["replicas"]
    made["spec"]["sizing"] = {"minReplicas": 1, "maxReplicas": 2}
    kube.apply(made)
    kube.wait_warm("sized", "1/1")
    routers_know(kube, "sized")
    numbers = itertools.count()

    def active() -> dict[str, str] | None:
        asked(kube, next(numbers))
        found = condition(kube, "sized", "ScalingActive")
        return found if found.get("status") == "True" else None

    found = wait_for(active, "a load", lambda: kube.get("promptgroup", "sized")["status"], seconds=120)
    assert found["reason"] != "FailedGetMetrics", found
    told = "".join(metrics(cluster.kubectl(SYSTEM_NAMESPACE)).values())
    mine = f'{{name="sized",namespace="{kube.namespace}"}}'
    values = dict(re.findall(rf"^(promptgroup_\w+){mine} (\S+)$", told, re.MULTILINE))
    assert {name for name, *_ in NUMBERS} - set(values) <= {"promptgroup_sizing_working_set_ratio"}  # no live session
    assert abs(float(values["promptgroup_sizing_load_timestamp_seconds"]) - datetime.now(UTC).timestamp()) < 120
    assert 0 < float(values["promptgroup_sizing_utilization_ratio"]) < 1
