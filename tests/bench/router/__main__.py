"""What a request, an event and a client cost this router and others, beside each other on one core.

    make bench-router ARGS="--quick"       # PYTHONPATH=tests python -m bench.router --help

All routers run at the same time on one core; engines and load have the others. They are measured in turn, in short
windows that are repeated, so that what else the machine does meets all of them alike. CPU is what the scheduler counted
for the process and its children. Read ratios; microseconds hold for one machine and one hour.
"""

import argparse
import contextlib
import os
import resource
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from statistics import median

import uvloop

from bench.router import contestants, load, machine, report, requests
from bench.router.contestants import Contestant, Place
from bench.router.engine import ANSWER_BODY
from bench.router.report import Figures
from promptgroup_research.output.plots import Bar, bars

ENGINES = 4
NGINX = """
user root; worker_processes 1; daemon off; pid %s/pid; error_log /dev/null crit;
events { worker_connections 20000; }
http {
  access_log off; keepalive_requests 1000000000; client_max_body_size 64m; client_body_buffer_size 2m;
  client_body_temp_path tmp-body; proxy_temp_path tmp-proxy; fastcgi_temp_path tmp-f; uwsgi_temp_path tmp-u;
  scgi_temp_path tmp-s; default_type application/json;
  server {
   %s
    error_page 418 = @streams;
    location / {
      if ($http_authorization = "Bearer %s") { return 418; }
      return 200 '%s';
    }
    location = /health { return 200 ''; }
    location = /v1/models { return 200 '{"object": "list", "data": [{"id": "tiny", "object": "model"}]}'; }
    location = /version { return 200 '{"version": "0.32.0"}'; }
    location ~ info { return 404; }
    location @streams { proxy_pass http://127.0.0.1:%d; proxy_http_version 1.1; proxy_buffering off; }
  }
}
"""
"""It answers at once, and sends what asks for a stream on."""
ENGINE = str(Path(__file__).with_name("engine.py"))
START_SECONDS = 90.0
SAME_RATE = "8 KB, same rate"
"""What is measured while each router gets as many requests a second as the others. Who gets all that it can take keeps
engines and clients awake the better the faster it is, and waking them costs the sender CPU."""


class Running:
    """A router that runs."""

    def __init__(self, contestant: Contestant, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self.port = port
        self.figures = Figures(contestant.name, contestant.version)

    def cpu(self) -> float:
        """Return the CPU seconds that it has used."""
        return machine.cpu_seconds(self.process.pid)

    def memory(self) -> float:
        """Return its memory in MiB."""
        return machine.memory_bytes(self.process.pid) / 2**20


def main() -> None:
    given = _arguments()
    if given.install:
        contestants.install()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    given.clients = min(given.clients, hard // 2 - 500)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    command = shlex.split(given.router_command)
    there, missing = contestants.found(command, floors=given.floors, features=given.features)
    there = [each for each in there if not given.only or any(each.name.startswith(name) for name in given.only)]
    for line in missing:
        print(f"left out: {line}", flush=True)
    with tempfile.TemporaryDirectory() as folder, _running(there, given.core, Path(folder)) as (routers, direct):
        measure(routers, direct, given, Path(folder))
        units = [*(f"{size} KB" for size in given.sizes), "event", *([SAME_RATE] if given.latency else [])]
        some = [each.figures for each in routers]
        text = report.tables(some, units)
        print(f"\n{machine.about()}\n{given.rounds} rounds of {given.seconds:g} s, {given.clients} idle clients")
        print(f"load: {load.wrk() or 'Python'}, engines: {nginx() or 'Python'}\n\n{text}", flush=True)
        own = [each for each in some if each.name.startswith("promptgroup")]
        if given.features and own:
            print(f"\n{report.ratio_table(own, own[0], units)}", flush=True)
        if given.plots:
            _plot(given.plots, some)


def measure(routers: Sequence[Running], direct: int, given: argparse.Namespace, folder: Path) -> None:
    """Measure all routers in turn, round by round; each begins with a window that does not count."""
    for each in routers:
        with _noted(each, "warm-up"):
            _ = load.closed_loop(each.port, 8, 1, folder, _pinned(given.core)[1])
    rest = _pinned(given.core)[1]
    for each in routers:
        each.figures.memory["idle"] = each.memory()
    for number in range(given.rounds):
        for size in given.sizes:
            for each in routers:
                with _noted(each, f"{size} KB"):
                    used, began = each.cpu(), time.monotonic()
                    done = load.closed_loop(each.port, size, given.seconds, folder, rest)
                    spent = each.cpu() - used
                    each.figures.micros.setdefault(f"{size} KB", []).append(spent / done * 1e6)
                    if size == 8:
                        each.figures.rates.append(done / (time.monotonic() - began))
        for each in routers:
            with _noted(each, "events"):
                done, spent = uvloop.run(load.events(each.port, given.seconds, each.cpu))
                each.figures.micros.setdefault("event", []).append(spent / done * 1e6)
        print(f"round {number + 1} of {given.rounds}", flush=True)
    for each in routers:
        with _noted(each, "perf stat"):
            with machine.counted(each.process.pid, list(report.EVENTS)) as counts:
                done = load.closed_loop(each.port, 8, 1, folder, rest)
            each.figures.events = {event: count / done for event, count in counts.items()}
    if given.latency:
        _latency(routers, direct, given)
    for each in routers if given.clients else ():
        with _noted(each, "idle clients"):
            each.figures.memory["clients"] = uvloop.run(load.idle_clients(each.port, given.clients, each.memory))


def _latency(routers: Sequence[Running], direct: int, given: argparse.Namespace) -> None:
    """Measure at half of what the slowest does on one core, the same rate for all."""
    rates = [median(each.figures.rates) for each in routers if each.figures.rates]
    if not rates:
        return
    rate = min(rates) / 2
    print(f"latency at {rate:.0f} requests a second", flush=True)
    found: dict[str, list[tuple[float, float]]] = {}
    for _ in range(max(3, given.rounds)):
        bare = uvloop.run(load.at_rate(direct, rate, given.seconds))
        for each in routers:
            with _noted(each, "latency"):
                used = each.cpu()
                p50, p99 = uvloop.run(load.at_rate(each.port, rate, given.seconds))
                micros = (each.cpu() - used) / int(rate * given.seconds) * 1e6
                each.figures.micros.setdefault(SAME_RATE, []).append(micros)
                found.setdefault(each.figures.name, []).append((p50 - bare[0], p99 - bare[1]))
    for each in routers:
        # the least of the rounds: what else the machine did only ever adds
        pairs = found.get(each.figures.name, [])
        if pairs:
            each.figures.p50, each.figures.p99 = (min(values) for values in zip(*pairs, strict=True))


@contextlib.contextmanager
def _noted(router: Running, what: str) -> Iterator[None]:
    try:
        yield
    except (load.LoadError, OSError, TimeoutError, subprocess.SubprocessError) as error:
        router.figures.problems.append(f"{what}: {str(error) or type(error).__name__}")


@contextlib.contextmanager
def _running(some: Sequence[Contestant], core: int, folder: Path) -> Iterator[tuple[list[Running], int]]:
    """Run the engines and the routers. Yield the routers, and the port of an engine."""
    mine = _pinned(core)[0]
    streaming, *ports = _free_ports(1 + ENGINES + 2 * len(some))
    engines, ports = ports[:ENGINES], ports[ENGINES:]
    with contextlib.ExitStack() as stack:
        for command in _pinned_engines(core, engines, streaming, folder):
            stack.enter_context(_process(command, None))
        for port in (*engines, *([streaming] if nginx() is not None else [])):
            _wait_for(port, "an engine", None)
        routers = []
        for number, each in enumerate(some):
            own = folder / str(number)
            own.mkdir()
            port, other = ports[2 * number : 2 * number + 2]
            place = Place(engines, port, other, own)
            log = stack.enter_context((own / "log").open("wb"))
            process = stack.enter_context(_process([*mine, *each.command(place)], log))
            try:
                _wait_for(port, each.name, process)
            except RuntimeError as error:
                print(f"left out: {error}: {(own / 'log').read_text(errors='replace')[-500:]}", flush=True)
                continue
            routers.append(Running(each, process, port))
        for each in list(routers):
            if (problem := _unready(each.port)) is not None:
                print(f"left out: {each.figures.name} answers {problem}", flush=True)
                routers.remove(each)
        yield routers, engines[0]


def _pinned_engines(given_core: int, engines: Sequence[int], streaming: int, folder: Path) -> list[list[str]]:
    """Return the commands of the engines: nginx, which sends streams on to this Python, or this Python alone."""
    rest, binary = _pinned(given_core)[1], nginx()
    if binary is None:
        return [[*rest, sys.executable, ENGINE, *map(str, engines)]]
    path = folder / "nginx.conf"
    path.write_text(
        NGINX
        % (
            folder,
            "".join(f" listen 127.0.0.1:{port};" for port in engines),
            requests.CREDENTIALS["streaming"],
            ANSWER_BODY.decode(),
            streaming,
        )
    )
    return [
        [*rest, sys.executable, ENGINE, str(streaming)],
        [*rest, binary, "-e", str(folder / "errors"), "-p", str(folder), "-c", str(path)],
    ]


def nginx() -> str | None:
    """Return the path of nginx, if it is installed."""
    return shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")


@contextlib.contextmanager
def _process(command: Sequence[str], log) -> Iterator[subprocess.Popen[bytes]]:  # type: ignore[no-untyped-def]
    process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(port: int, what: str, process: subprocess.Popen[bytes] | None) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and (process is None or process.poll() is None):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(f"{what} did not come up")


def _unready(port: int) -> str | None:
    """Wait until a router has found the engines. Return what it answers if it never does."""
    deadline, problem = time.monotonic() + START_SECONDS, "nothing"
    while time.monotonic() < deadline:
        connection = HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("POST", "/v1/chat/completions", requests.body(1, 0), requests.headers(0))
            answer = connection.getresponse()
            if answer.status == 200:
                return None
            problem = f"{answer.status} {answer.read(200)!r}"
        except (OSError, HTTPException) as error:
            problem = repr(error)
        finally:
            connection.close()
        time.sleep(0.2)
    return problem


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _pinned(core: int) -> tuple[list[str], list[str]]:
    """Return the prefixes of commands: for routers, and for all others."""
    others = sorted(os.sched_getaffinity(0) - {core}) or [core]
    return ["taskset", "-c", str(core)], ["taskset", "-c", ",".join(map(str, others))]


def _plot(folder: Path, some: Sequence[Figures]) -> None:
    base = report.base_of(some)
    for unit, name in (("8 KB", "request"), ("event", "event")):
        found = [(each.name, report.ratios(each, base, unit)) for each in some]
        rows = [Bar(who, ratio, f"{ratio:.2f}") for who, ratio in found if ratio is not None]
        title = f"CPU for {'a request of 8 KB' if name == 'request' else 'a streamed event'}, {base.name} = 1"
        (folder / f"cost-{name}.svg").write_text(bars(title, rows, max(row.value for row in rows)), encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench-router", description=__doc__.partition("\n")[0])
    own = f"{sys.executable} -m promptgroup_router"
    parser.add_argument("--router-command", default=own, help="the build of this router (default: %(default)s)")
    parser.add_argument("--only", action="append", metavar="NAME", help="only routers whose names begin so; repeatable")
    parser.add_argument("--install", action="store_true", help="first fetch the peers that PyPI has")
    parser.add_argument("--floors", action="store_true", help="with proxies in Python that decide nothing: floor.py")
    help_text = "with this router once for each feature that a request cannot use, as multiples of the one without"
    parser.add_argument("--features", action="store_true", help=help_text)
    parser.add_argument("--quick", action="store_true", help="8 KB and events only, three short rounds: two minutes")
    parser.add_argument("--rounds", type=int, default=5, help="rounds (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each window (default: %(default)s)")
    parser.add_argument("--sizes", type=int, nargs="+", default=requests.SIZES, metavar="KB", help="bodies")
    parser.add_argument("--clients", type=int, default=10_000, help="idle clients (default: %(default)s)")
    parser.add_argument("--core", type=int, default=0, help="the core of the routers (default: %(default)s)")
    help_text = "write plots as SVG"
    parser.add_argument("--plots", type=Path, metavar="DIR", help=help_text)
    given = parser.parse_args()
    given.latency = True
    if given.quick:
        given.rounds, given.seconds, given.sizes, given.clients = 3, 2.0, (8,), 0
    return given


if __name__ == "__main__":
    main()
