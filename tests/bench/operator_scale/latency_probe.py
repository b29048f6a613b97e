"""What the machine itself takes: another client writes a pod and an object as large as a route, and watches for it.

A replica that is warm is in its route after two writes of the operator. Whatever the operator decides, it cannot be
sooner than a client that has nothing to decide, on the same machine at the same time.
"""

import json
import multiprocessing
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Self

import urllib3

from support.adminclient import AdminClient, chunks_of_lines
from support.fleet import now

NAMESPACE = "latency-probe"
PERIOD_SECONDS = 1.0
"""Between two measurements."""
RETRY_SECONDS = 0.5
"""Until the next try while the API server is away."""
ROUTE_BYTES = 8192
"""Of the object that stands for a route: that of a group of five with a prompt of 4,000 characters, and its slots."""
POD = {
    "metadata": {"name": "probe"},
    # nothing may ever run it
    "spec": {"schedulingGates": [{"name": "example.com/never"}], "containers": [{"name": "engine", "image": "none"}]},
}
ROUTE = {"metadata": {"name": "probe"}, "data": {"route": "x" * ROUTE_BYTES}}


class LatencyProbe:
    """A client in a process of its own, so that it waits for no lock of this one.

    Args:
        server: URL of the API server.
        ca: file of its authority.
        certificate: file of an administrator.
        key: file of the administrator's key.
    """

    def __init__(self, server: str, ca: Path, certificate: Path, key: Path) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._connection, child = spawn.Pipe(duplex=False)
        self._process = spawn.Process(target=_measure, args=(server, ca, certificate, key, child), daemon=True)
        self._took: list[tuple[float, float]] = []
        """When measurements ended, in seconds since 1970, and the seconds that they took."""

    def __enter__(self) -> Self:
        self._process.start()
        threading.Thread(target=self._collect, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()

    def _collect(self) -> None:
        try:
            while True:
                self._took.append(self._connection.recv())
        except (EOFError, OSError):
            pass

    def seconds(self, since: float, until: float) -> list[float]:
        """Return what the measurements took that ended between two times (seconds since 1970), ascending."""
        return sorted(seconds for ended, seconds in self._took.copy() if since <= ended < until)


class _Client:
    def __init__(self, api: AdminClient) -> None:
        self._api = api
        self._space = f"/api/v1/namespaces/{NAMESPACE}"

    def create(self) -> None:
        """Create the objects; those that are there stay."""
        for path, body in (
            ("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}}),
            (f"{self._space}/serviceaccounts", {"metadata": {"name": "default"}}),
            (f"{self._space}/pods", POD),
            (f"{self._space}/configmaps", ROUTE),
        ):
            self._api.request("POST", path, body, there=True)

    def annotate(self, plural: str, value: str) -> None:
        body = {"metadata": {"annotations": {"example.com/at": value}}}
        self._api.request("PATCH", f"{self._space}/{plural}/probe", body)

    def events(self, plural: str) -> Iterator[str]:
        """Yield the annotation of each version of an object."""
        query = "watch=true&fieldSelector=metadata.name%3Dprobe&timeoutSeconds=3600"
        for lines in chunks_of_lines(self._api.watch(f"{self._space}/{plural}?{query}")):
            for line in lines:
                yield json.loads(line)["object"]["metadata"].get("annotations", {}).get("example.com/at", "")


def _measure(server: str, ca: Path, certificate: Path, key: Path, connection: Connection) -> None:
    """Measure until the process is killed; while the API server is away, there is nothing to measure."""
    client = _Client(AdminClient(server, ca, certificate, key))
    while True:
        try:
            client.create()
            pods, routes = client.events("pods"), client.events("configmaps")
            while True:
                connection.send((now().timestamp(), _chain(client, pods, routes)))
                time.sleep(PERIOD_SECONDS)
        except (urllib3.exceptions.HTTPError, OSError, StopIteration, KeyError, AssertionError):
            time.sleep(RETRY_SECONDS)


def _chain(client: _Client, pods: Iterator[str], routes: Iterator[str]) -> float:
    """Return the seconds from the event of a pod to that of a route which follows it by two writes."""
    warm, routed = (f"{step} {time.monotonic_ns()}" for step in ("warm", "routed"))
    client.annotate("pods", warm)
    _await(pods, warm)
    start = time.monotonic()
    client.annotate("pods", routed)
    client.annotate("configmaps", routed)
    _await(routes, routed)
    return time.monotonic() - start


def _await(events: Iterator[str], value: str) -> None:
    while next(events) != value:
        pass
