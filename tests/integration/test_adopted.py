"""The walk of docs/how-to/adopt.md: a Deployment is adopted, its prompts become guests, and one is released."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml

from promptgroup_contract import names
from promptgroup_local import lab
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from support.groups import PROMPTS
from support.operators import REPLICAS, set_operators
from support.routed import answered, routed, routers_know

pytestmark = pytest.mark.integration

NAMESPACE, OLD = "adopted", "mistral"
MODEL = "mistral-7b"
HELLO = [{"role": "user", "content": "Hello"}]
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": OLD},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": OLD}},
        "template": {
            "metadata": {"labels": {"app": OLD}},
            "spec": {
                "containers": [
                    {
                        "name": "vllm",
                        "image": "vllm/vllm-openai:v0.32.0",
                        "args": [MODEL, "--host=$(POD_IP)", "--port=8000", "--max-model-len=8192"],
                        "env": [
                            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                            {"name": "STANDIN_STARTUP_SECONDS", "value": "0"},
                        ],
                        "ports": [{"containerPort": 8000}],
                        "readinessProbe": {"httpGet": {"path": "/health", "port": 8000}, "periodSeconds": 1},
                        "resources": {"limits": {"nvidia.com/gpu": 1}},
                    }
                ],
            },
        },
    },
}
SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "llm"},
    "spec": {"selector": {"app": OLD}, "ports": [{"port": 80, "targetPort": 8000}]},
}


@pytest.fixture
def kube(cluster: LocalCluster) -> Iterator[Kubectl]:
    with routed(cluster, NAMESPACE) as kube:
        set_operators(cluster, REPLICAS)
        kube.apply(DEPLOYMENT, SERVICE)
        kube.rolled_out(OLD)
        yield kube


@pytest.fixture
def promptgroup(cluster: LocalCluster, tmp_path: Path) -> Callable[..., str]:
    """The command, as a process in an empty folder."""

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "promptgroup_cli", *arguments],
            cwd=tmp_path,
            env=os.environ | {"KUBECONFIG": str(cluster.kubeconfig)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        return done.stdout

    return run


def request(letter: str, number: int) -> dict[str, Any]:
    """What a client sends, of one of three applications."""
    messages = [
        {"role": "system", "content": PROMPTS[letter]},
        {"role": "user", "content": f"Question {number} of {letter}?"},
    ]
    return {"model": MODEL, "messages": messages, "max_tokens": 2}


def post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = urllib3.request("POST", f"{url}/v1/chat/completions", json=body, timeout=60, retries=False)
    assert answer.status == 200, answer.data
    document: dict[str, Any] = answer.json()
    return document


def cached(document: dict[str, Any]) -> bool:
    """Return True if the declared prompt was cached, which has some 870 tokens."""
    return bool(document["usage"]["prompt_tokens_details"]["cached_tokens"] > 800)


def test_a_deployment_is_adopted_its_prompts_become_guests_and_one_is_released(
    kube: Kubectl, promptgroup: Callable[..., str], tmp_path: Path
) -> None:
    # 1. make the manifest
    said = promptgroup("adopt", OLD, "-n", NAMESPACE, "--write", "host.yaml")
    assert "http://promptgroup-router.adopted/v1 in the place of http://llm" in said
    manifest = (tmp_path / "host.yaml").read_text()
    host = yaml.safe_load(manifest)
    assert "prompt" not in host["spec"]
    # 2. beside, warm, switch, remove
    kube.run("apply", "-f", str(tmp_path / "host.yaml"))
    kube.run("wait", f"promptgroup/{OLD}", "--for=condition=Ready", "--timeout=170s")
    url = lab.router_url(kube)
    wait_for(lambda: urllib3.request("GET", f"{url}/v1/models").json()["data"] or None, "the router's table")
    requests = [request(letter, number) for letter in "abc" for number in range(4)]
    for body in requests:
        post(url, body)
    kube.run("delete", "deployment", OLD)
    # 3. find the prompts, and make guests
    (tmp_path / "requests.jsonl").write_text("".join(json.dumps(body) + "\n" for body in requests))
    (discover,) = (line for line in manifest.splitlines() if "kubectl promptgroup discover" in line)
    # the API server of this cluster proxies to no pod, since pods have loopback addresses
    promptgroup(*shlex.split(discover, comments=False)[3:], "--router", lab.router_admin_url(kube))
    guests = list(yaml.safe_load_all((tmp_path / "guests.yaml").read_text()))
    assert {guest["spec"]["prompt"]["system"] for guest in guests} == {PROMPTS[letter] for letter in "abc"}
    assert {guest["spec"]["engineFrom"]["promptGroup"] for guest in guests} == {OLD}
    kube.run("apply", "-f", str(tmp_path / "guests.yaml"))
    for guest in guests:
        kube.run("wait", f"promptgroup/{guest['metadata']['name']}", "--for=condition=Ready", "--timeout=170s")
        kube.wait_warm(guest["metadata"]["name"], "2/2")
    routers_know(kube, *(guest["metadata"]["name"] for guest in guests))
    assert all(cached(post(url, request(letter, 9))) for letter in "abc")
    # release one of them
    pods = {pod["metadata"]["uid"] for pod in kube.list("pods") if names.LABEL_GROUP in pod["metadata"]["labels"]}
    (released, *_) = guests
    old = (kube.get("promptgroup", released["metadata"]["name"]) or {})["status"]["fingerprint"]
    released["spec"]["prompt"]["system"] = PROMPTS["h"]
    documents: list[dict[str, Any]] = []

    def ask() -> int:
        documents.append(post(url, {**request("b", 10), "model": released["metadata"]["name"], "messages": HELLO}))
        return 200

    with answered(ask):
        kube.apply(released)

        def taken_over() -> bool | None:
            route = kube.get("promptroute", released["metadata"]["name"]) or {}
            weights = {item["fingerprint"]: item["weight"] for item in route["spec"]["revisions"]}
            return True if weights.get(old) == 0 else None

        wait_for(taken_over, "the new prompt to take over")
    assert documents
    assert all(map(cached, documents))
    assert cached(post(url, request("h", 1)))
    assert {
        pod["metadata"]["uid"] for pod in kube.list("pods") if names.LABEL_GROUP in pod["metadata"]["labels"]
    } == pods
