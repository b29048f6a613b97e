"""A real Prometheus as a process. The first of these that has one:

1. PROMETHEUS, the path of a program
2. PATH (Debian: apt install prometheus)
3. the cache that an earlier run filled
4. built from its Go module (tests/support/prometheus-go), where a module proxy can be reached
"""

import fcntl
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import urllib3
import yaml

from promptgroup_local.kubectl import wait_for

GO_MODULE = Path(__file__).parent / "prometheus-go"
BUILD_SECONDS = 1800
"""Longest build: some five minutes on two cores."""
SCRAPE_SECONDS = 1


def program() -> str:
    """Path of the program."""
    found = os.environ.get("PROMETHEUS") or shutil.which("prometheus")
    if found:
        return found
    version = re.search(r"github.com/prometheus/prometheus (v[0-9.]+)", (GO_MODULE / "go.mod").read_text())[1]
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "promptgroup" / "prometheus" / version
    folder.mkdir(parents=True, exist_ok=True)
    built = folder / "prometheus"
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists():
            _build(built)
    return str(built)


def _build(path: Path) -> None:
    # without service discovery, which is most of its dependencies, and without the web interface's files
    flags = ["-trimpath", "-buildvcs=false", "-tags=remove_all_sd,netgo", "-ldflags=-s -w", f"-o={path}.new"]
    subprocess.run(
        ["go", "build", *flags, "github.com/prometheus/prometheus/cmd/prometheus"],
        cwd=GO_MODULE,
        env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local"},
        timeout=BUILD_SECONDS,
        check=True,
    )
    Path(f"{path}.new").rename(path)


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
                    "honor_labels": True,  # as docs/metrics.md has it: a target's own labels stand
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
                program(),
                f"--config.file={self._folder}/prometheus.yml",
                f"--storage.tsdb.path={self._folder}/data",
                f"--web.listen-address=127.0.0.1:{self._port}",
                "--log.level=error",
            ]
        )
        wait_for(self._ready, "Prometheus")

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
