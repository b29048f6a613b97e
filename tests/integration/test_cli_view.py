"""`promptgroup status`, `top` and `explain` beside what kubectl says and what routers do."""

import io
import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml

from promptgroup_cli.__main__ import main
from promptgroup_contract import names
from promptgroup_local import lab
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from promptgroup_local.load.client import Target
from promptgroup_local.load.workload import Task
from support.groups import PROMPTS, group
from support.load import Load, endless
from support.routed import routed

pytestmark = pytest.mark.integration

HEADER = {"content-type": "application/json"}
HELD = 5
"""Streams that stay open while requests are explained: replicas then differ in what they have."""


@pytest.fixture(scope="module")
def kube(cluster: LocalCluster) -> Iterator[Kubectl]:
    """A namespace with routers, a group by expected TTFT and one by turns, which lend each other replicas."""
    with routed(cluster, "cliview") as kubectl:
        slow = {"STANDIN_STEP_MS": "40"}
        kubectl.apply(
            group("talks", PROMPTS["a"], replicas=3, env=slow),
            group("turns", PROMPTS["b"], replicas=2, env=slow, routing={"policy": "RoundRobin"}),
        )
        kubectl.wait_warm("talks", "3/3")
        kubectl.wait_warm("turns", "2/2")
        yield kubectl


@pytest.fixture(scope="module")
def admin(kube: Kubectl) -> str:
    """Admin port of the router that gets all requests, once it knows both groups warm."""
    url = lab.router_admin_url(kube)

    def knows() -> bool | None:
        table = urllib3.request("GET", f"{url}/table").json()
        return True if len(table["replicas"]) == 5 else None

    wait_for(knows, "the router to know five replicas")
    return url


@pytest.fixture
def run(cluster: LocalCluster) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The command, as a process."""

    def run(*arguments: str, kubeconfig: Path | None = None) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "promptgroup_cli", *arguments]
        environment = {"KUBECONFIG": str(kubeconfig or cluster.kubeconfig), "PATH": "/usr/bin:/bin"}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

    return run


# --- status ------------------------------------------------------------------------------------------------


def test_status_says_what_kubectl_says(kube: Kubectl, run: Callable[..., Any]) -> None:
    done = run("status", "talks", "-n", "cliview", "-o", "json")
    assert (done.returncode, done.stderr) == (0, "")
    (told,) = json.loads(done.stdout)["groups"]
    found = kube.get("promptgroup", "talks")
    status = found["status"]
    assert (told["namespace"], told["name"], told["model"]) == ("cliview", "talks", found["spec"]["model"])
    assert (told["ready"], told["warm"], told["replicas"]) == (True, status["warm"], status["replicas"])
    assert (told["revision"], told["waitsFor"]) == (status["revision"], [])
    pods = {
        each["metadata"]["labels"][names.LABEL_SLOT]: each["metadata"]["name"]
        for each in lab.engine_pods(kube, "talks")
    }
    (revision,) = told["revisions"]
    assert revision["fingerprint"] == status["fingerprint"]
    assert {str(each["slot"]): each["pod"] for each in revision["slots"]} == pods
    assert {(each["state"], each["warm"]) for each in revision["slots"]} == {("Ready", "True")}


def test_status_of_a_namespace_has_a_line_a_group_and_of_what_does_not_start_why(
    kube: Kubectl, run: Callable[..., Any]
) -> None:
    broken = group("broken", PROMPTS["c"], replicas=1)
    broken["spec"]["engine"]["image"] = "no-such-image"
    kube.apply(broken)
    kube.wait_condition("broken", "PrefixWarm", "False", "PodNotStarting")
    done = run("status", "-n", "cliview")
    assert done.returncode == 1
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [
        ["NAME", "READY"],
        ["broken", "False"],
        ["talks", "True"],
        ["turns", "True"],
    ]
    said = run("status", "broken", "-n", "cliview").stdout
    assert "Not ready:" in said
    assert "no-such-image" in said
    assert "cliview" in run("status", "-A").stdout
    kube.delete("promptgroup", "broken")


def test_what_is_missing_or_forbidden_is_one_line(
    kube: Kubectl, cluster: LocalCluster, run: Callable[..., Any], tmp_path: Path
) -> None:
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": kube.run("create", "token", "default").stdout.strip()}
    unprivileged = tmp_path / "kubeconfig"
    unprivileged.write_text(yaml.safe_dump(config))
    for done, status, words in (
        (run("status", "nobody", "-n", "cliview"), 2, ("no PromptGroup nobody", "-A")),
        (run("status", "-n", "cliview", kubeconfig=unprivileged), 3, ("forbidden", "ask for a role")),
        (run("top", "--once", "-n", "default"), 3, ("no router is ready in namespace default", "manifests/router")),
        (
            run("top", "--once", "-n", "cliview"),
            3,
            ("through the API server", "kubectl port-forward"),
        ),  # pods on loopback
        (run("status", kubeconfig=tmp_path / "none"), 2, ("set KUBECONFIG",)),
    ):
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (status, "", 1)
        assert all(word in done.stderr for word in words), done.stderr


# --- top ---------------------------------------------------------------------------------------------------


def test_top_has_the_rates_of_a_load(kube: Kubectl, admin: str, run: Callable[..., Any]) -> None:
    target = Target([admin.replace("9090", "8080")], "tiny", groups={"talk": "talks"})
    with Load(target, endless(Task("talk", PROMPTS["a"])), int):
        told = json.loads(run("top", "--once", "--router", admin, "-o", "json").stdout)
        text = run("top", "--once", "--router", admin, "--interval", "1").stdout
    talks, turns = (
        next(each for each in told["groups"] if each["group"] == f"cliview/{name}") for name in ("talks", "turns")
    )
    assert talks["requestsPerSecond"] > 1
    assert talks["hitRate"] > 0.8
    assert 0 < talks["ttftP50"] <= talks["ttftP99"] < 30  # seconds
    assert len(talks["replicas"]) == 3
    assert turns["requestsPerSecond"] == 0
    assert "cliview/talks" in text


# --- dashboard ---------------------------------------------------------------------------------------------


@pytest.fixture
def page(cluster: LocalCluster, admin: str) -> Iterator[str]:
    """The address of a page that the command serves."""
    command = [sys.executable, "-m", "promptgroup_cli", "dashboard", "-n", "cliview", "--router", admin]
    environment = {"KUBECONFIG": str(cluster.kubeconfig), "PATH": "/usr/bin:/bin"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as serving:
        try:
            assert serving.stdout is not None
            yield serving.stdout.readline().split()[-1]
        finally:
            serving.terminate()
            try:
                assert serving.wait(20) == 0
            finally:
                serving.kill()


def test_the_page_shows_what_kubectl_and_the_router_say(kube: Kubectl, admin: str, page: str) -> None:
    target = Target([admin.replace("9090", "8080")], "tiny", groups={"talk": "talks"})

    def shown() -> dict[str, Any] | None:
        told: dict[str, Any] = urllib3.request("GET", f"{page}view?group=cliview%2Ftalks").json()
        known = told["group"] and told["group"]["hitRate"] is not None and not told["problems"]
        return told if known else None

    with Load(target, endless(Task("talk", PROMPTS["a"])), int):
        told = wait_for(shown, "the page to show a load and no problem")
    assert [(each["label"], each["state"]) for each in told["groups"]] == [
        ("cliview/talks", "Ready"),
        ("cliview/turns", "Ready"),
    ]
    group = told["group"]
    assert group["requestsPerSecond"] > 1
    assert group["hitRate"] > 0.8
    (revision,) = group["revisions"]
    pods = {
        int(each["metadata"]["labels"][names.LABEL_SLOT]): each["metadata"]["name"]
        for each in lab.engine_pods(kube, "talks")
    }
    assert {each["slot"]: each["pod"] for each in revision["slots"]} == pods
    assert {(each["state"], each["warm"], round(each["share"], 3)) for each in revision["slots"]} == {
        ("Ready", "warm", 0.333)
    }
    assert {"Warm"} <= {each["reason"] for each in group["events"]}
    body = json.dumps(chat(PROMPTS["a"], "a question to the page"))
    question = json.dumps({"body": body, "headers": {"x-session-id": "page"}})
    origin = {"origin": page.rsplit("/", 2)[0], "content-type": "application/json"}
    explained = urllib3.request("POST", f"{page}explain", body=question, headers=origin).json()
    front = f"{admin.replace('9090', '8080')}/v1/chat/completions"
    answer = urllib3.request("POST", front, body=body, headers=HEADER | {"x-session-id": "page"})
    assert explained["choice"] == answer.headers[names.HEADER_SERVED_BY]


# --- explain -----------------------------------------------------------------------------------------------


def chat(prompt: str, *said: str, model: str = "tiny", **fields: Any) -> dict[str, Any]:
    """A chat; what was said is the user's and the assistant's in turn."""
    messages = [{"role": "system", "content": prompt}] if prompt else []
    messages += [{"role": ("user", "assistant")[number % 2], "content": text} for number, text in enumerate(said)]
    return {"model": model, "messages": messages, "max_tokens": 2, **fields}


def kinds(number: int) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
    """Bodies and headers of ten kinds of requests."""
    a, case = PROMPTS["a"], f"case {number} " + "of many " * 40
    yield chat(a, case), {}
    yield chat(a, case, "Well.", "And then?"), {}
    yield chat(a, "hello"), {"x-session-id": f"s{number}"}
    yield chat(a, "hello", prompt_cache_key=f"k{number}"), {"authorization": "Bearer mine"}
    yield chat("", "hello", case, model="talks"), {}
    yield chat("", "hello", model="talks"), {"x-session-id": f"n{number}"}
    yield {"model": "talks", "prompt": f"Once {case}", "max_tokens": 2}, {}
    yield {"model": "tiny", "prompt": f"{a} Once {case}", "max_tokens": 2}, {"session-id": f"c{number}"}
    yield chat(PROMPTS["b"], case), {}
    yield chat("", case, model="tiny"), {"x-promptgroup": "cliview/turns"}


def test_explain_names_the_slot_that_the_router_takes(
    kube: Kubectl, admin: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def explain(body: bytes, headers: dict[str, str]) -> dict[str, Any]:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(body)))
        flags = itertools.chain.from_iterable(("-H", f"{name}: {value}") for name, value in headers.items())
        monkeypatch.setattr("sys.argv", ["promptgroup", "explain", "--router", admin, "-o", "json", *flags])
        assert main() == 0
        told: dict[str, Any] = json.loads(capsys.readouterr().out)
        return told

    front = admin.replace("9090", "8080")
    told: list[dict[str, Any]] = []
    taken: list[str] = []
    with urllib3.PoolManager(retries=False, timeout=30) as pool:
        held = []
        for number in range(HELD):
            body = json.dumps(chat(PROMPTS["a"], f"story {number} " * 200, stream=True) | {"max_tokens": 4000})
            url = f"{front}/v1/chat/completions"
            held.append(pool.request("POST", url, body=body, headers=HEADER, preload_content=False))
        for body, headers in itertools.chain.from_iterable(map(kinds, range(5))):
            data = json.dumps(body).encode()
            told.append(explain(data, headers))
            path = "/v1/completions" if "prompt" in body else "/v1/chat/completions"
            answer = pool.request("POST", f"{front}{path}", body=data, headers=HEADER | headers)
            assert answer.status == 200
            taken.append(answer.headers[names.HEADER_SERVED_BY])
        for stream in held:
            stream.close()
    assert len(taken) == 50
    assert [each["choice"] for each in told] == taken
    assert len(set(taken)) == 5
    assert {each["match"]["how"] for each in told} == {"content", "name"}
    assert {each["session"]["source"] for each in told} >= {"", "header x-session-id", "field prompt_cache_key"}
    assert any(each["session"]["last"] is not None for each in told)
    assert any(candidate["requests"] for each in told for candidate in each["candidates"])


def test_explain_of_a_prompt_that_no_group_declares(
    kube: Kubectl, admin: str, run: Callable[..., Any], tmp_path: Path
) -> None:
    file = tmp_path / "request.json"
    file.write_text(json.dumps(chat(PROMPTS["a"][:-9] + " secret!!", "my password")))
    done = run("explain", str(file), "--router", admin)
    assert done.returncode == 0
    assert "it departs from the prompt of cliview/talks at byte" in " ".join(done.stdout.split())
    logs = [
        kube.run("logs", each["metadata"]["name"]).stdout
        for each in kube.list("pods", f"app.kubernetes.io/name={names.ROUTER}")
    ]
    assert not any("password" in text for text in [done.stdout, *logs])
