"""A real Prometheus as a process; gotools says where it comes from."""

import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import urllib3
import yaml

from promptgroup_local.kubectl import wait_for
from support.gotools import program

SCRAPE_SECONDS = 1


class Prometheus:
    """A server that scrapes its targets once a second."""

    def __init__(self, folder: Path, port: int, targets: Mapping[str, Mapping[str, str]]) -> None:
        self._folder = folder
        self._port = port
        self._targets = folder / "targets.json"
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"http://127.0.0.1:{port}"
        self.aim(targets)
        config = {
            "global": {"scrape_interval": f"{SCRAPE_SECONDS}s", "scrape_timeout": f"{SCRAPE_SECONDS}s"},
            "scrape_configs": [
                {
                    "job_name": "engines",
                    "honor_labels": True,  # as docs/reference/metrics.md has it: a target's own labels stand
                    "file_sd_configs": [{"files": [str(self._targets)]}],
                }
            ],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))

    def aim(self, targets: Mapping[str, Mapping[str, str]]) -> None:
        """Scrape these from here on; it notices within a moment."""
        every = [{"targets": [address], "labels": dict(labels)} for address, labels in targets.items()]
        written = self._targets.with_suffix(".new")
        written.write_text(json.dumps(every))
        written.rename(self._targets)

    def start(self) -> None:
        """Run; returns once it answers."""
        self._process = subprocess.Popen(
            [
                program("prometheus"),
                f"--config.file={self._folder}/prometheus.yml",
                f"--storage.tsdb.path={self._folder}/data",
                f"--web.listen-address=127.0.0.1:{self._port}",
                "--enable-feature=exemplar-storage",
                "--log.level=error",
            ]
        )
        wait_for(self._ready, "Prometheus")

    def ask(self, query: str) -> list[dict[str, Any]]:
        """Result of an instant query."""
        answer = urllib3.request("GET", f"{self.url}/api/v1/query", fields={"query": query}, timeout=5)
        assert answer.status == 200, answer.data
        found: list[dict[str, Any]] = answer.json()["data"]["result"]
        return found

    def exemplars(self, query: str) -> list[dict[str, Any]]:
        """Exemplars of a query's series within the last hour; of each its labels, and those of its series."""
        now = datetime.now(UTC).timestamp()
        fields = {"query": query, "start": f"{now - 3600}", "end": f"{now + 60}"}
        answer = urllib3.request("GET", f"{self.url}/api/v1/query_exemplars", fields=fields, timeout=5)
        assert answer.status == 200, answer.data
        return [
            {"series": series["seriesLabels"], **exemplar}
            for series in answer.json()["data"]
            for exemplar in series["exemplars"]
        ]

    def stop(self) -> None:
        """End."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(timeout=20)
            self._process = None

    def _ready(self) -> bool | None:
        try:
            return urllib3.request("GET", f"{self.url}/-/ready", timeout=1, retries=False).status == 200 or None
        except urllib3.exceptions.HTTPError:
            return None


@contextmanager
def prometheus(folder: Path, port: int, targets: Mapping[str, Mapping[str, str]]) -> Iterator[Prometheus]:
    """A running server; targets: address → the labels that its series get."""
    server = Prometheus(folder, port, targets)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def until(moment: float) -> None:
    """Let time pass where time itself is what is tested: windows of samples."""
    while (left := moment - time.monotonic()) > 0:
        time.sleep(min(left, 0.2))
