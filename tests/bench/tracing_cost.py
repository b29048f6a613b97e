"""CPU that spans add to a request, as shares of a request without them, in one run.

    python tests/bench/tracing_cost.py [--rounds 400] [--body 8192] [--instructions N]

The router of `python_part.py` (the real classes, from a client's bytes to the answer's last, between transports that
only count) serves short rounds of requests, in another order each time: without spans, with 1 % or all sampled.
Figures are a low quantile of the rounds, so that they stand for an undisturbed processor. What is sampled is encoded
and sent between rounds, to a collector in another process; its CPU time is added by the share that is sampled.

With --instructions it only serves N requests with spans as OTEL_* say, for `valgrind --tool=callgrind`.
"""

import argparse
import asyncio
import gc
import logging
import multiprocessing
import os
import random
import socket
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.python_part import Bench, python
from promptgroup_router.base import build
from promptgroup_router.features.tracing.sampling import Sampling
from promptgroup_router.features.tracing.tracer import Tracer
from promptgroup_router.span_export import SpanExport, span_export

ROUND = 100
"""Requests of a round: short, so that some are undisturbed."""
BATCH = 4
"""Rounds after which spans are sent: as many as the SDK takes for a batch, 512, or fewer."""
LOW = 0.1
"""The quantile of the rounds that is reported."""
RATIOS = {"off": None, "off, once more": None, "on, nothing sampled": 0.0, "on, 1 %": 0.01, "on, all": 1.0}


class Collector(BaseHTTPRequestHandler):
    """Takes everything."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def collect(listening: socket.socket) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector, bind_and_activate=False)
    server.socket = listening
    server.serve_forever()


def cpu(bench: Bench, tracer: Tracer | None) -> float:
    """Return the CPU of one request, in microseconds."""
    bench.state.features.tracer = tracer
    began = time.process_time_ns()
    for _ in range(ROUND):
        bench.whole()
    return (time.process_time_ns() - began) / ROUND / 1e3


def low(found: list[float]) -> float:
    return sorted(found)[int(len(found) * LOW)]


def tracers(export: SpanExport) -> dict[str, Tracer | None]:
    made: dict[str, Tracer | None] = {}
    for name, ratio in RATIOS.items():
        made[name] = None
        if ratio is not None:
            full = export.tracer
            made[name] = Tracer(Sampling(ratio, parent_based=True), full._random, full._export, 1.8e9)
    return made


async def measure(given: argparse.Namespace) -> None:
    bench = Bench(given, asyncio.get_running_loop())
    await bench.warm_up()
    export = span_export(os.environ, "bench")
    if given.instructions:
        bench.state.features.tracer = export.tracer if export is not None else None
        for _ in range(given.instructions):
            bench.whole()
        return
    if export is None:
        sys.exit("no spans are exported: run it without OTEL_SDK_DISABLED")
    cases = tracers(export)
    cost: dict[str, list[float]] = {name: [] for name in cases}
    sent: list[float] = []
    draw = random.Random(1)
    flush = export._shut_down.__self__.force_flush  # type: ignore[attr-defined]
    gc.collect()
    gc.freeze()
    for number in range(given.rounds):
        for name in draw.sample(list(cases), len(cases)):  # what runs behind a case finds its caches
            cost[name].append(cpu(bench, cases[name]))
        if number % BATCH == BATCH - 1:
            began = time.process_time_ns()
            flush()
            sent.append((time.process_time_ns() - began) / (BATCH * ROUND) / 1e3)
    sys.stdout.write(f"{python()}, router {'compiled' if build.compiled() else 'interpreted'}\n\n")
    sys.stdout.write("| spans | µs of CPU for a request | share of a request without |\n|---|--:|--:|\n")
    off, sending = low(cost["off"]), low(sent)
    for name, found in cost.items():
        whole = low(found) + (RATIOS[name] or 0.0) * sending
        sys.stdout.write(f"| {name} | {whole:.1f} | {whole / off:.3f} |\n")
    sys.stdout.write(f"\nOf that, a span takes {sending:.1f} µs in the thread that sends it.\n")
    await export.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=400, help="rounds of each case (default: %(default)s)")
    parser.add_argument("--instructions", type=int, default=0, metavar="N", help="only serve N requests")
    parser.add_argument("--body", type=int, default=8192, help="bytes of a body (default: %(default)s)")
    parser.set_defaults(groups=1, slots=4, sessions=500, clients=16, keys=None)
    given = parser.parse_args()
    logging.disable()
    listening = socket.create_server(("127.0.0.1", 0))
    if not given.instructions:
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{listening.getsockname()[1]}"
        os.environ["OTEL_BSP_SCHEDULE_DELAY"] = "60000"
    collector = multiprocessing.get_context("fork").Process(target=collect, args=(listening,), daemon=True)
    collector.start()
    try:
        asyncio.run(measure(given))
    finally:
        collector.kill()


if __name__ == "__main__":
    main()
