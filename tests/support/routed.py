"""A namespace with a router and the cluster's operator, what its groups say, and requests that are all answered."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from promptgroup_local import lab
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl

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
