"""A collector in a process of its own: `python collectorprocess.py PORT FOLDER`.

It takes spans by OTLP over HTTP, and writes what it is sent to files of the folder.
"""

import itertools
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from promptgroup_local.kubectl import wait_for
from promptgroup_local.ports import free_ports


def serve(port: int, folder: Path) -> None:
    numbers = itertools.count()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            known = (self.path, self.headers["content-type"]) == ("/v1/traces", "application/x-protobuf")
            if known:
                written = folder / f"{next(numbers)}.part"
                written.write_bytes(body)
                written.rename(written.with_suffix(".otlp"))
            self.send_response(200 if known else 400)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    (folder / "listens").touch()
    server.serve_forever()


class CollectorProcess:
    """The process, and what it was sent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        [self.port] = free_ports(1)
        argv = [sys.executable, "-m", "support.collectorprocess", str(self.port), str(folder)]
        self._process = subprocess.Popen(argv, cwd=Path(__file__).parents[1])

    @property
    def bodies(self) -> list[bytes]:
        return [each.read_bytes() for each in sorted(self.folder.glob("*.otlp"))]

    @property
    def exports(self) -> list[ExportTraceServiceRequest]:
        return [ExportTraceServiceRequest.FromString(each) for each in self.bodies]

    def stop(self) -> None:
        """End."""
        self._process.kill()
        self._process.wait()


@contextmanager
def collector_process(folder: Path) -> Iterator[CollectorProcess]:
    """A collector that listens."""
    folder.mkdir()
    process = CollectorProcess(folder)
    try:
        wait_for(lambda: (folder / "listens").exists() or None, "the collector")
        yield process
    finally:
        process.stop()


if __name__ == "__main__":
    serve(int(sys.argv[1]), Path(sys.argv[2]))
