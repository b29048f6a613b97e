"""A namespace with a router and the cluster's operator, what its groups say, and requests that are all answered."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import urllib3

from promptgroup_cli.reach.explained import explain_question
from promptgroup_contract import names
from promptgroup_local import lab
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from support.operators import is_ready

_AT_ONCE = 2


@contextmanager
def routed(cluster: LocalCluster, name: str) -> Iterator[Kubectl]:
    """A namespace of this name with a router; it is on its way out at the end."""
    lab.install_operator(cluster.kubectl())
    kubectl = cluster.kubectl(name)
    kubectl.make_namespace(name)
    lab.install_router(kubectl)
    yield kubectl
    kubectl.delete("namespace", name, wait=False)


def routers_know(kube: Kubectl, *groups: str) -> None:
    """Wait until each router that is ready has the PromptRoutes of these groups as they stand, and their prompts.

    A group is Ready as soon as its PromptRoute is written: routers read it, and the prompt that it names, a moment
    later.
    """

    def differ() -> list[str]:
        pods = kube.list("pods", f"app.kubernetes.io/name={names.ROUTER}")
        ready = [pod["status"]["podIP"] for pod in pods if is_ready(pod)]
        routes = {name: _slots((kube.get("promptroute", name) or {}).get("spec", {})) for name in groups}
        differing = [] if ready else ["no router is ready"]
        for address in ready:
            url = f"http://{address}:{names.PORT_ROUTER_ADMIN}"
            table = {item["name"]: item for item in urllib3.request("GET", f"{url}/table", timeout=20).json()["groups"]}
            differing += [
                f"{name} at {address}"
                for name, slots in routes.items()
                if not slots or slots != _slots(table.get(name, {})) or not _chosen(url, name)
            ]
        return differing

    wait_for(lambda: True if not differ() else None, f"routers to know {', '.join(groups)}", differ)


def _chosen(url: str, group: str) -> bool:
    """Return True if a router, by the URL of its admin port, has a replica for a request that names the group."""
    body = {"model": group, "messages": [{"role": "user", "content": "Hello"}]}
    question = explain_question(json.dumps(body), {})
    return bool(urllib3.request("POST", f"{url}/explain", body=question, timeout=20).json().get("choice"))


def _slots(route: dict[str, Any]) -> set[tuple[str, int, int, str]]:
    """Revision, its weight, slot and state: of a PromptRoute's spec, or of a group in a router's table."""
    return {
        (revision["fingerprint"], revision["weight"], slot["slot"], slot["state"])
        for revision in route.get("revisions", ())
        for slot in revision.get("slots", ())
    }


def reason(kube: Kubectl, group: str, condition: str) -> str:
    """The reason of a group's condition; empty if it has none."""
    status = (kube.get("promptgroup", group) or {}).get("status", {})
    return next((each["reason"] for each in status.get("conditions", []) if each["type"] == condition), "")


@contextmanager
def answered(status: Callable[[], int]) -> Iterator[Callable[[], int]]:
    """Requests while the context lasts, all of which must be answered; gives how many were.

    Args:
        status: makes a request, in a thread, and returns the status of its answer.
    """
    found: list[int] = []
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            found.append(status())

    threads = [threading.Thread(target=ask) for _ in range(_AT_ONCE)]
    for thread in threads:
        thread.start()
    try:
        yield lambda: len(found)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert set(found) <= {200}
