"""What is done to a fleet, one phase after the other, and what each of them took."""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console

from bench.operator_scale.latency_probe import LatencyProbe
from promptgroup_local.kubectl import wait_for
from support.fleet import Calls, Fleet, Journey, OperatorProcess, cpu_seconds, fleet, now, operator

PATIENCE = 3600.0
"""Longest wait for a fleet to be warm, in seconds."""
OUTAGE_SECONDS = 10.0
"""Time without an API server."""
PROGRESS_SECONDS = 30.0
"""Time between two lines on stderr that say how far a phase is."""
REPLACED = 50
"""Most groups of which a pod is deleted as soon as the API server is back."""


@dataclass(frozen=True, slots=True)
class Size:
    """The groups of a fleet."""

    groups: int
    replicas: int
    """Of each group."""
    guests: int = 0
    """Of each group; with guests no group has a prompt of its own."""

    @property
    def pods(self) -> int:
        return self.groups * self.replicas

    @property
    def routed(self) -> int:
        """Pods in routes: a guest's route leads to all of them."""
        return self.pods * max(1, self.guests)

    @property
    def all_groups(self) -> int:
        """Groups and guests."""
        return self.groups * (1 + self.guests)

    @property
    def text(self) -> str:
        guests = f", {self.guests} guests" if self.guests else ""
        return f"{self.groups} x {self.replicas}{guests}"


@dataclass(frozen=True, slots=True)
class Spent:
    """What a phase took."""

    seconds: float
    operator: float
    """CPU seconds."""
    watches: float
    """The part of the operator's main thread, in which Kopf watches."""
    api_server: float
    calls: Calls
    memory: float = 0.0
    """MiB of the operator, resident, at the end."""


@dataclass(frozen=True, slots=True)
class Became:
    """Replicas that became routed in a phase: seconds between two states, ascending."""

    to_warm: list[float] = field(default_factory=list)
    """From the pod's containers ready to its condition."""
    to_routed: list[float] = field(default_factory=list)
    """From the pod's containers ready to its slot in the PromptRoute; for a guest, from the phase's begin."""
    told: list[float] = field(default_factory=list)
    """From the pod's condition to its slot in the PromptRoute; for a guest, from the proof, which is noted to the
    second, so up to a second more."""


@dataclass(frozen=True, slots=True)
class Event:
    """A phase in which replicas become routed."""

    spent: Spent
    became: Became
    machine: list[float]
    """What another client's two writes and a watch took meanwhile, in seconds, ascending."""
    others: int = 0
    """Writes of groups that had no part in it."""


@dataclass(frozen=True, slots=True)
class Result:
    """One size."""

    size: Size
    creation: Event
    rest: Spent
    changes: Spent
    """One change of each pod, by another than the operator."""
    engines: float
    """MiB of the process of all hollow engines, resident, after the creation."""
    restart: Event | None = None
    """The API server is killed and started, and then some pods are deleted."""
    roll: Event | None = None
    """All engines are changed, or all prompts of guests."""


def measure(size: Size, arguments: argparse.Namespace) -> Result:
    """A fresh cluster, a fleet created at once, then nothing, then what the arguments ask for."""
    folder = Path(tempfile.mkdtemp(prefix="operator-scale-"))
    try:
        with fleet(folder) as made, operator(made.cluster) as running, _probe(made) as probe:
            return _phases(Meter(made, running, size, probe), arguments)
    finally:
        if arguments.keep is not None:
            shutil.copytree(folder / "logs", arguments.keep / size.text, dirs_exist_ok=True)
            shutil.copy(folder / "audit.log", arguments.keep / size.text)
        shutil.rmtree(folder, ignore_errors=True)


def _probe(made: Fleet) -> LatencyProbe:
    plane, pki = made.cluster.plane, made.cluster.folder / "pki"
    return LatencyProbe(plane.server, plane.ca, pki / "admin.crt", pki / "admin.key")


def _phases(meter: "Meter", arguments: argparse.Namespace) -> Result:
    made, size = meter.fleet, meter.size
    made.observe("default")
    wait_for(lambda: made.observes() or None, "watches")

    def create() -> None:
        made.create("default", size.groups, size.replicas, arguments.spread, size.guests)

    creation = meter.event("created", create, size.routed)
    engines = resident(made.cluster.agent_pid("local-0"))
    time.sleep(arguments.calm)  # what creation left behind is no rest: first readings, garbage of the store
    with meter.spent() as rest:
        time.sleep(arguments.rest)
    with meter.spent() as changes:
        made.change_pods("default", arguments.rate)
    restart = _restart(meter) if arguments.restart else None

    def roll() -> None:
        made.roll("default", size.groups, size.replicas, size.groups * size.guests)

    rolled = meter.event("rolled", roll, size.routed) if arguments.roll else None
    return Result(size, creation, rest[0], changes[0], engines, restart, rolled)


def _restart(meter: "Meter") -> Event:
    """The API server goes and comes back; at once some pods are deleted, which have to be replaced and routed."""
    plane, made = meter.fleet.cluster.plane, meter.fleet
    plane.stop_apiserver()
    time.sleep(OUTAGE_SECONDS)
    replaced: set[str] = set()

    def come_back() -> None:
        plane.start_apiserver()
        wait_for(lambda: made.observes() or None, "watches of an API server that came back")
        replaced.update(made.replace_pods("default", REPLACED))

    size = meter.size
    event = meter.event("replaced", come_back, min(size.groups, REPLACED) * max(1, size.guests))
    written = event.spent.calls.written
    others = sum(count for name, count in written.items() if name not in replaced and name.startswith("fleet-"))
    return replace(event, others=others)


class Progress:
    """Says on stderr how many replicas of a phase are routed, at most every PROGRESS_SECONDS."""

    def __init__(self, phase: str, replicas: int, now: float) -> None:
        self._phase = phase
        self._replicas = replicas
        self._start = self._last = now

    def tell(self, routed: int, now: float) -> None:
        """Print a line if one is due; `now` is in monotonic seconds."""
        if now - self._last >= PROGRESS_SECONDS:
            self._last = now
            seconds = now - self._start
            text = f"{self._phase}: {routed:,} of {self._replicas:,} routed after {seconds:.0f} s"
            Console(file=sys.stderr, width=100, highlight=False, markup=False).print(text)


class Meter:
    """Measures phases of one fleet and its operator."""

    def __init__(self, made: Fleet, running: OperatorProcess, size: Size, probe: LatencyProbe) -> None:
        self.fleet = made
        self.size = size
        self._probe = probe
        self._operator = running.process.pid

    @contextmanager
    def spent(self) -> Iterator[list[Spent]]:
        """Yield a list, which holds at the end what was spent inside."""
        spent: list[Spent] = []
        start, since, before, server = time.monotonic(), now(), self._cpu(), self._server()
        yield spent
        after = self._cpu()
        if self._server() != server:
            before[2] = 0.0  # another process
        operator_cpu, watches, api_server = (late - early for late, early in zip(after, before, strict=True))
        calls, seconds = self.fleet.calls(since, now()), time.monotonic() - start
        spent.append(Spent(seconds, operator_cpu, watches, api_server, calls, resident(self._operator)))

    def event(self, phase: str, begin: Callable[[], None], replicas: int) -> Event:
        """Begin something, and wait until so many replicas became routed and all groups are settled.

        Args:
            phase: what happens to the replicas, for the lines that say how far it is.
            begin: begins it.
            replicas: that become routed; with guests, their pairs of prompt and pod.
        """
        since = now().timestamp()
        journeys = self.fleet.guests if self.size.guests else self.fleet.pods

        def became() -> list[Journey]:
            return [journey for journey in list(journeys.values()) if journey.routed and journey.routed >= since]

        progress = Progress(f"{self.size.text}, {phase}", replicas, time.monotonic())

        def done() -> bool | None:
            routed = len(became())
            progress.tell(routed, time.monotonic())
            return True if routed >= replicas and self.fleet.settled(self.size.all_groups) else None

        with self.spent() as spent:
            begin()
            wait_for(done, f"{replicas} replicas to be routed", lambda: len(became()), PATIENCE)
        return Event(spent[0], _times(became(), since), self._probe.seconds(since, now().timestamp()))

    def _server(self) -> int | None:
        try:
            return self.fleet.cluster.plane.pid("kube-apiserver")
        except KeyError:  # it is away
            return None

    def _cpu(self) -> list[float]:
        """CPU seconds of the operator, of its main thread and of the API server."""
        paths = [Path(f"/proc/{self._operator}"), Path(f"/proc/{self._operator}/task/{self._operator}")]
        server = self._server()
        return [*map(cpu_seconds, paths), cpu_seconds(Path(f"/proc/{server}")) if server is not None else 0.0]


def _times(journeys: Iterable[Journey], since: float) -> Became:
    became = Became()
    for journey in journeys:
        if journey.ready is not None and journey.warm is not None:
            became.to_warm.append(journey.warm - journey.ready)
        if journey.routed is not None:
            became.to_routed.append(journey.routed - (journey.ready or since))
            if journey.warm is not None:
                became.told.append(journey.routed - journey.warm)
    for times in (became.to_warm, became.to_routed, became.told):
        times.sort()
    return became


def resident(pid: int) -> float:
    """Return the MiB that a process has in memory (proc_pid_status(5))."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024
