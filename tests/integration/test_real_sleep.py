"""A request wakes a group with a real vLLM engine: what the time from the request to its first token went to.

Skipped where VLLM names no folder with venv/ and tiny/. The weights are random, and are read from the disk.
"""

import json
import logging
import re
import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import urllib3

from promptgroup_local import lab
from promptgroup_local.cluster.images import repository
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from promptgroup_local.real.engine import MODEL, START_SECONDS
from promptgroup_local.real.random_weights import write_model
from promptgroup_local.real.vllm import VLLM
from promptgroup_operator.base.timestamps import rfc3339
from support.realengines import marks, named
from support.routed import reason

pytestmark = marks(VLLM)

logger = logging.getLogger(__name__)

NAME = "sleeper"
IDLE = timedelta(minutes=1)
SIZING = {"minReplicas": 0, "maxReplicas": 1, "idleAfter": "1m"}
WEIGHTS = re.compile(r"Loading weights took ([0-9.]+) seconds")
COMPILED = re.compile(r"init engine .* took ([0-9.]+) s")


@pytest.fixture(scope="module")
def asleep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalCluster, Kubectl]]:
    """A group that was warm once, and sleeps."""
    given, folder = Path(named("VLLM")).resolve(), tmp_path_factory.mktemp("real-sleep")
    shutil.copytree(given / MODEL, folder / MODEL)
    write_model(folder / MODEL, json.loads((folder / MODEL / "config.json").read_text()))
    start = f'cd "{folder}" && exec "{given}/venv/bin/vllm" serve "$@" --host {{pod_ip}}'
    with LocalCluster(folder / "cluster", images={repository(VLLM.image): ["bash", "-c", start, VLLM.name]}) as local:
        kube = local.kubectl("real-sleep")
        lab.install_operator(kube)
        kube.make_namespace("real-sleep")
        lab.install_router(kube)
        made = VLLM.group(NAME, sizing=SIZING, routing={"wakeTimeout": f"{START_SECONDS:.0f}s"})
        made["spec"].pop("replicas", None)
        engine = made["spec"]["engine"]
        engine["args"] = [arg for arg in engine["args"] if arg != "--load-format=dummy"]
        kube.apply(made)
        kube.wait_warm(NAME, "1/1", START_SECONDS)
        route = kube.get("promptroute", NAME) or {}
        since = rfc3339(datetime.now(UTC) + IDLE / 2)  # as if it had been idle: requests from now on wake it
        sleep = {"spec": {"sleep": {**route["spec"]["sleep"], "since": since}}}
        kube.run("patch", "promptroute", NAME, "--type=merge", "-p", json.dumps(sleep))
        wait_for(lambda: reason(kube, NAME, "Ready") == "Asleep" or None, "it to sleep")
        wait_for(lambda: True if not lab.engine_pods(kube, NAME) else None, "no pod")
        yield local, kube


def test_the_time_of_a_wake_is_that_of_the_start_and_the_first_answer_is_warm(
    asleep: tuple[LocalCluster, Kubectl],
) -> None:
    local, kube = asleep
    latest = (kube.get("promptgroup", NAME) or {})["status"]["start"]["finishedAt"]
    body = {"model": NAME, "messages": [{"role": "user", "content": "What do you say?"}], "max_tokens": 8}
    body |= {"stream": True, "stream_options": {"include_usage": True}}
    began = time.monotonic()
    url = f"{lab.router_url(kube)}/v1/chat/completions"
    answer = urllib3.request("POST", url, json=body, timeout=START_SECONDS, retries=False, preload_content=False)
    assert answer.status == 200, answer.read()
    events = (line[6:].strip() for line in answer if line.startswith(b"data: "))
    first = json.loads(next(events))
    waited = time.monotonic() - began
    usage = next(event["usage"] for line in events if line != b"[DONE]" and (event := json.loads(line)).get("usage"))

    def recorded() -> dict | None:
        start = (kube.get("promptgroup", NAME) or {})["status"]["start"]
        return start if start["finishedAt"] != latest else None

    start = wait_for(recorded, "the start to be recorded")
    [pod] = lab.engine_pods(kube, NAME)
    log = local.logs(kube.namespace, pod["metadata"]["name"])
    parts = {name: re.findall(pattern, log) for name, pattern in (("weights", WEIGHTS), ("init", COMPILED))}
    total = start["latestSeconds"][-1]
    logger.info("first token after %.1f s; start %d s: %s; of loading: %s", waited, total, start["phaseSeconds"], parts)
    assert first["choices"]
    assert total <= waited + 2  # times of Kubernetes are whole seconds
    assert waited - total < 15
    cached, prompt = usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"]
    assert prompt - cached < 2 * 32
