"""The operator before an API server that refuses, throttles and cuts: it stays, waits, and never hammers."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from promptgroup_local.kubectl import wait_for
from promptgroup_local.ports import free_ports
from support.scriptedkube import Answer, ScriptedKube, refusal, scripted_kube

pytestmark = pytest.mark.integration

RESOURCES = {
    "v1": [
        ("pods", "Pod", True),
        ("nodes", "Node", False),
        ("namespaces", "Namespace", False),
        ("events", "Event", True),
    ],
    "apps/v1": [("deployments", "Deployment", True), ("daemonsets", "DaemonSet", True)],
    "policy/v1": [("poddisruptionbudgets", "PodDisruptionBudget", True)],
    "promptgroup.dev/v1alpha1": [("promptgroups", "PromptGroup", True), ("promptroutes", "PromptRoute", True)],
}
WATCHED = 7
"""Watches of an operator of one namespace: one for each store, and one of nodes."""


class Api:
    """Discovery, empty lists and silent watches, until a test puts a fault before them."""

    def __init__(self, kube: ScriptedKube) -> None:
        self.kube = kube
        self.fault = lambda method, path: None
        self.events: list[bytes] = []
        self.asked: Counter[str] = Counter()
        kube.serve = self.serve

    def serve(self, method: str, path: str) -> Answer:
        split = urlsplit(path)
        watch = "watch" in parse_qs(split.query)
        self.asked["watch" if watch else "list" if split.path.count("/") > 4 else "other"] += 1
        broken = self.fault(method, "watch" if watch else split.path)
        if broken is not None:
            return broken
        if watch:
            return Answer(body=self.events.pop() if self.events else b"", watch=True)
        return Answer(body=json.dumps(self.read(split.path)).encode())

    def read(self, path: str) -> dict:
        if path == "/api":
            return {"versions": ["v1"]}
        if path == "/apis":
            versions = [{"groupVersion": each, "version": each.split("/")[1]} for each in RESOURCES if "/" in each]
            return {
                "groups": [
                    {"name": each["groupVersion"].split("/")[0], "versions": [each], "preferredVersion": each}
                    for each in versions
                ]
            }
        version = path.removeprefix("/apis/").removeprefix("/api/")
        if version in RESOURCES:
            return {
                "resources": [
                    {
                        "name": name,
                        "singularName": "",
                        "kind": kind,
                        "namespaced": spaced,
                        "verbs": ["get", "list", "watch"],
                    }
                    for name, kind, spaced in RESOURCES[version]
                ]
            }
        return {"metadata": {"resourceVersion": "1"}, "items": []}

    def log(self) -> str:
        """The end of what the operator wrote."""
        return (self.kube.folder / "log").read_text()[-3000:]

    def watched(self) -> bool | None:
        return True if self.asked["watch"] >= WATCHED else None


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with scripted_kube(tmp_path) as kube:
        yield Api(kube)


@contextmanager
def operator(api: Api) -> Iterator[subprocess.Popen]:
    environment = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"} | {
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": str(api.kube.port),
    }
    flags = ["--namespaces=chat", "--host=127.0.0.1", f"--health-port={free_ports(1)[0]}", "--metrics-port=0"]
    argv = [sys.executable, "-m", "promptgroup_operator", "run", *flags, f"--service-account-dir={api.kube.folder}"]
    with (api.kube.folder / "log").open("ab") as log:
        process = subprocess.Popen(argv, env=environment, stdout=log, stderr=log)
    try:
        yield process
        assert process.poll() is None, api.log()
    finally:
        process.kill()
        process.wait()


def window(api: Api, seconds: float) -> Counter[str]:
    """What is asked in so many seconds: a rate is of a time, so this one waits."""
    return windows({"": api}, seconds)[""]


def windows(apis: dict[str, Api], seconds: float) -> dict[str, Counter[str]]:
    """What each of some is asked in the same seconds."""
    before = {name: Counter(api.asked) for name, api in apis.items()}
    time.sleep(seconds)
    return {name: api.asked - before[name] for name, api in apis.items()}


REFUSALS = {
    "throttled": refusal(429, Retry_After="1"),
    "broken": refusal(500),
    "overloaded": refusal(503),
    "forbidden for a moment": refusal(403),
    "cut": Answer(cut=True),
}


@pytest.fixture
def refusing(tmp_path: Path) -> Iterator[dict[str, Api]]:
    """An API server for each of the refusals, which it does not give yet: what takes time is waited for at once."""
    with ExitStack() as stack:
        made = {}
        for number, case in enumerate(REFUSALS):
            folder = tmp_path / str(number)
            folder.mkdir()
            made[case] = Api(stack.enter_context(scripted_kube(folder)))
        yield made


def test_it_waits_out_whatever_it_is_refused_with(refusing: dict[str, Api]) -> None:
    for case, api in refusing.items():
        api.fault = lambda method, path, case=case: REFUSALS[case]
    with ExitStack() as stack:
        processes = {case: stack.enter_context(operator(api)) for case, api in refusing.items()}
        for case, api in refusing.items():
            wait_for(lambda api=api: True if sum(api.asked.values()) >= 2 else None, f"it to ask: {case}", api.log)
        asked = {case: sum(found.values()) for case, found in windows(refusing, 4).items()}
        # each after 0.1, 0.2, 0.4, ... s at the soonest; a loop asks hundreds
        assert {case: count for case, count in asked.items() if count > WATCHED * 10} == {}
        assert {case: process.poll() for case, process in processes.items()} == dict.fromkeys(REFUSALS)
        for case, api in refusing.items():
            api.fault = lambda method, path: None
            wait_for(api.watched, f"the watches to begin: {case}", api.log)


def test_watches_that_are_refused_wait_and_go_on(refusing: dict[str, Api]) -> None:
    for case, api in refusing.items():
        api.fault = lambda method, path, case=case: REFUSALS[case] if path == "watch" else None
    with ExitStack() as stack:
        for api in refusing.values():
            stack.enter_context(operator(api))
        for case, api in refusing.items():
            wait_for(api.watched, f"it to try: {case}", api.log)
        asked = {case: found["watch"] for case, found in windows(refusing, 4).items()}
        assert {case: count for case, count in asked.items() if count > WATCHED * 8} == {}
        for case, api in refusing.items():
            api.fault = lambda method, path: None
            api.asked.clear()
            wait_for(api.watched, f"the watches to begin: {case}", api.log)


def test_a_watch_whose_version_is_too_old_begins_with_a_list(api: Api) -> None:
    gone = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}}
    api.events = [json.dumps(gone).encode() + b"\n"] * WATCHED
    with operator(api):
        wait_for(lambda: True if api.asked["list"] >= 2 * WATCHED else None, "lists anew", lambda: dict(api.asked))
        wait_for(lambda: True if api.asked["watch"] >= 2 * WATCHED else None, "watches anew")


def test_a_token_that_is_refused_is_read_anew(api: Api) -> None:
    def renew(method: str, path: str) -> Answer | None:
        """The first refusal makes the node write the token that is good."""
        if api.kube.requests[-1][2].get("authorization", "").endswith("token-1"):
            api.kube.token("token-2")
            return refusal(401)
        return None

    api.fault = renew
    with operator(api):
        wait_for(api.watched, "the watches to begin", api.log)


def test_a_token_that_is_refused_for_long_is_not_hammered(api: Api) -> None:
    api.fault = lambda method, path: refusal(401)
    with operator(api) as process:
        wait_for(lambda: True if sum(api.asked.values()) >= 2 else None, "it to ask", api.log)
        asked = sum(window(api, 8).values())
        assert asked <= 10 + WATCHED * 6, "each store after 0.2, 0.4, 0.8, ... s"
        assert process.poll() is None
        api.fault = lambda method, path: None
        wait_for(api.watched, "the watches to begin", api.log)


def test_watches_that_end_at_once_are_not_hammered(api: Api) -> None:
    api.kube.watches_end = True
    with operator(api):
        wait_for(api.watched, "the watches to begin", api.log)
        began = time.monotonic()
        asked = window(api, 4)["watch"]
        # one more at either end; twice a second would be forty
        assert asked <= WATCHED * (time.monotonic() - began + 2), "each once a second"
