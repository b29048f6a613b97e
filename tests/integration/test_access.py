"""Callers with API keys on a real control plane: the operator waits for the Secret, routers read it, keys rotate."""

import json
from collections.abc import Iterator

import pytest
import urllib3

from promptgroup_local import lab
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from support.groups import PROMPTS, group
from support.keys import KEY_A, KEY_A2
from support.routed import answered, routed

pytestmark = [pytest.mark.integration, pytest.mark.slow]

ACCESS = {"type": "APIKey", "apiKey": {"secrets": ["keys"]}}


@pytest.fixture
def kube(cluster: LocalCluster) -> Iterator[Kubectl]:
    with routed(cluster, "access") as kubectl:
        yield kubectl


def secret(name: str, **data: str) -> dict:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data}


def test_a_group_with_keys_waits_for_them_is_closed_to_others_and_keys_rotate_under_load(kube: Kubectl) -> None:
    made = group("closed", PROMPTS["a"], replicas=1, access=ACCESS)
    made["spec"]["engine"]["credentialFrom"] = {"name": "engine-key", "key": "key"}
    kube.apply(secret("engine-key", key="engine-key-0123456789"), made)
    kube.wait_condition("closed", "ResolvedRefs", "False", "KeysNotFound")
    kube.apply(secret("keys", **{"team-a": KEY_A}))
    kube.wait_warm("closed", "1/1")
    pool = urllib3.PoolManager(retries=False, timeout=20)
    url = f"{lab.router_url(kube)}/v1/chat/completions"
    body = json.dumps({"model": "closed", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}).encode()

    def status(key: str | None) -> int:
        headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
        return pool.request("POST", url, body=body, headers=headers).status

    wait_for(lambda: True if status(KEY_A) == 200 else None, "the key to open the group", lambda: str(status(KEY_A)))
    assert (status(None), status("sk-" + "x" * 24)) == (401, 401)
    (slot,) = kube.get("promptroute", "closed")["spec"]["revisions"][0]["slots"]
    assert slot["credential"] == "engine-key/key"
    assert KEY_A not in json.dumps(kube.get("promptroute", "closed"))

    current = [KEY_A]
    with answered(lambda: status(current[0])) as done:
        kube.apply(secret("keys", **{"team-a": f"{KEY_A}\n{KEY_A2}"}))
        wait_for(lambda: True if status(KEY_A2) == 200 else None, "the new key", lambda: str(status(KEY_A2)))
        # each router, and each of its workers, reads the Secret in its own time
        wait_for(lambda: True if all(status(KEY_A2) == 200 for _ in range(40)) else None, "all routers to know it")
        current[0] = KEY_A2
        # requests with the old key have ended
        seen = done()
        wait_for(lambda: True if done() > seen + 4 else None, "requests with the new key")
        kube.apply(secret("keys", **{"team-a": KEY_A2}))
        wait_for(lambda: True if status(KEY_A) == 401 else None, "the end of the old key", lambda: str(status(KEY_A)))
    assert done() > 20
    pool.clear()
