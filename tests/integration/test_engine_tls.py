"""Engines that serve TLS on a real control plane: begun under load, verified by what the group names, and replaced."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3

from promptgroup_local import lab
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from support.enginecerts import BY_NAME, TLS, EngineCerts, bundle, certificate
from support.groups import PROMPTS, group
from support.routed import answered, reason, routed

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture
def kube(cluster: LocalCluster) -> Iterator[Kubectl]:
    with routed(cluster, "secure") as kubectl:
        yield kubectl


def slots(kube: Kubectl) -> list[dict]:
    return (kube.get("promptroute", "secure") or {}).get("spec", {}).get("revisions", [{}])[0].get("slots", [])


def ready(kube: Kubectl, tls: str | None) -> bool | None:
    """True once each slot is ready and says this of its engine."""
    found = slots(kube)
    return True if found and all((each["state"], each.get("tls")) == ("Ready", tls) for each in found) else None


def test_engines_begin_to_serve_tls_under_load_and_their_authority_is_replaced(kube: Kubectl, tmp_path: Path) -> None:
    made = group("secure", PROMPTS["a"], replicas=2)
    kube.apply(made)
    kube.wait_warm("secure", "2/2")
    pool = urllib3.PoolManager(retries=False, timeout=20)
    url = f"{lab.router_url(kube)}/v1/chat/completions"
    body = json.dumps({"model": "secure", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}).encode()

    def status() -> int:
        return pool.request("POST", url, body=body, headers={"content-type": "application/json"}).status

    wait_for(lambda: True if status() == 200 else None, "the first answer", lambda: str(status()))
    first, second = EngineCerts(tmp_path / "first"), EngineCerts(tmp_path / "second")
    made["spec"]["engine"]["tls"] = TLS
    with answered(status) as done:
        # a group whose authorities are missing keeps serving as it did
        kube.apply(made)
        wait_for(
            lambda: True if reason(kube, "secure", "ResolvedRefs") == "AuthorityNotFound" else None, "the condition"
        )
        # those of somebody else: the new pods are not let in, and the old ones serve on
        kube.apply(certificate(first), bundle(second.ca))
        wait_for(
            lambda: (
                True
                if "EngineNotTrusted"
                in json.dumps([each["status"] for each in kube.list("pods", "promptgroup.dev/group")])
                else None
            ),
            "an engine that is not trusted",
            lambda: json.dumps(slots(kube)),
        )
        assert not [each for each in slots(kube) if "tls" in each]
        kube.apply(bundle(second.ca, first.ca))
        wait_for(lambda: ready(kube, BY_NAME.text()), "all engines over TLS", lambda: json.dumps(slots(kube)))
        seen = done()
        wait_for(lambda: True if done() > seen + 20 else None, "requests over TLS")
    address = slots(kube)[0]["address"]  # a pod of before may still be on its way out
    with pytest.raises(urllib3.exceptions.HTTPError):  # plain HTTP is over
        pool.request("GET", f"http://{address}/health")
    # an authority that is withdrawn: the engines' certificate is not renewed here, so that nobody trusts them
    kube.apply(bundle(second.ca))

    def refused() -> str | None:
        """Return why an engine gives no answer; those that fail are left alone for a while, which is no 502."""
        answer = pool.request("POST", url, body=body, headers={"content-type": "application/json"})
        return answer.json()["error"]["message"] if answer.status == 502 else None

    assert "certificate not trusted" in wait_for(refused, "the end of trust", lambda: str(status()))
    kube.apply(bundle(first.ca))
    wait_for(lambda: True if status() == 200 else None, "trust again", lambda: str(status()))
    pool.clear()
