"""README: apply the manifests and a PromptGroup, and its requests find their prompt cached."""

import json
import os
import urllib.request
from pathlib import Path

from promptgroup_local import lab
from promptgroup_local.kubectl import Kubectl, wait_for

ROOT = Path(__file__).parents[1]
SYSTEM = "You are the quickstart's assistant. " + " ".join(f"Rule {number}: be brief." for number in range(120))


def ask(url: str, model: str) -> dict:
    body = {"model": model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
    request = urllib.request.Request(
        f"{url}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)


def test_apply_wait_ask(kubectl: Kubectl) -> None:
    kubectl.within("promptgroup-system").run("apply", "--server-side", "-k", str(ROOT / "manifests"))
    kubectl.run("create", "namespace", "e2e")
    try:
        kubectl.run("apply", "--server-side", "-k", str(ROOT / "manifests/router"))
        kubectl.apply(lab.group("quick", "demo-model", SYSTEM, replicas=2))
        kubectl.run("wait", "promptgroup/quick", "--for=condition=Ready", "--timeout=120s")
        url = os.environ.get("ROUTER_URL") or lab.router_url(kubectl)

        def routed() -> dict | None:
            try:
                return ask(url, "quick")
            except OSError:
                return None

        usage = wait_for(routed, "an answer through the router")["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] > 0.8 * usage["prompt_tokens"]
    finally:
        kubectl.run("delete", "namespace", "e2e", "--wait=false")
