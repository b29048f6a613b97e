"""Readings of a namespace as a dashboard has them: fifteen minutes of three groups, one of which releases a prompt."""

import math
import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from promptgroup_cli.dashboard.history import DashboardHistory
from promptgroup_cli.dashboard.reading import ClusterReading, DashboardReading, RouterReading, SessionMove
from promptgroup_cli.dashboard.view import DashboardFrame, view
from promptgroup_cli.reach.top_rates import ReplicaRate, RouterPage
from promptgroup_contract.fingerprint import Fingerprint, ShortFingerprint, fingerprint, short
from promptgroup_operator.load.router_metrics import RouterCounts
from promptgroup_operator.world.samples import Histogram, Stratum, StratumKey
from promptgroup_operator.world.snapshot import Key
from support.rawobjects import condition, engine, promptgroup

BEGAN = datetime(2026, 11, 22, 14, 0, tzinfo=UTC)
INTERVAL = 2.0
SUPPORT, CODE_OLD, CODE_NEW, WRITE = (
    fingerprint(f"You are the {name} assistant of Example Ltd.") for name in ("support", "code", "new code", "writing")
)
BOUNDS = (0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0)
SHARES = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


def group(name: str, model: str, revisions: list[dict[str, Any]], *conditions: dict, **fields: Any) -> dict[str, Any]:
    found = promptgroup(name, *conditions, revisions=revisions, **fields.pop("status", {}))
    found["spec"] |= {"model": model} | fields
    return found


def revision(print_: Fingerprint, name: str, phase: str, weight: int, *, replicas: int, warm: int) -> dict[str, Any]:
    counts = {"replicas": replicas, "warm": warm, "ready": warm}
    return {"fingerprint": print_, "deployment": f"{name}-{short(print_)}", "phase": phase, "weight": weight, **counts}


def route(name: str, *revisions: tuple[Fingerprint, int, list[tuple[int, str]]]) -> dict[str, Any]:
    listed = [
        {
            "fingerprint": print_,
            "weight": weight,
            "slots": [
                {"slot": slot, "state": state, **({"pod": pod_name(name, print_, slot)} if state != "Absent" else {})}
                for slot, state in slots
            ],
        }
        for print_, weight, slots in revisions
    ]
    return {"metadata": {"namespace": "chat", "name": name}, "spec": {"model": "m", "revisions": listed}}


def pod_name(name: str, print_: Fingerprint, slot: int) -> str:
    return f"{name}-{short(print_)}-{'bcdfghjk'[slot]}{slot}x7q"


def pod(name: str, print_: Fingerprint, slot: int, warm: dict | None = None, *, held: bool = True) -> dict[str, Any]:
    found = engine(pod_name(name, print_, slot), warm, of=name)
    found["metadata"]["annotations"]["promptgroup.dev/fingerprint"] = print_
    if held:
        found["metadata"]["labels"]["promptgroup.dev/slot"] = str(slot)
    return found


def cluster() -> ClusterReading:
    """The objects, at rest."""
    steps = [{"weight": 10, "pause": "5m"}, {"weight": 30, "pause": "10m"}, {"weight": 60, "pause": "10m"}]
    ready, model = ("Ready", "True", "Warm", "4 of 4 replicas are warm"), "Qwen/Qwen3-8B"
    verdict = "5.2 requests a second of 1,840 tokens keep 4 replicas busy for 71 % of their time; 3 would miss 200 ms"
    waits = "time to first token p50 31 ms, 24 ms with the old revision (first turns by name, streamed); the difference"
    cold = {"status": "False", "reason": "WaitingForContainers", "message": "the prefix is sent once they are ready"}
    events = [
        ("NotWorse", "Normal", 6, "0.0% of requests failed, 0.0% with the old revision; p50 25 ms, 24 ms"),
        ("RevisionComing", "Normal", 11, "5 % of new sessions go to the new revision"),
    ]
    return ClusterReading(
        groups=(
            group(
                "support", model, [revision(SUPPORT, "support", "Serving", 100, replicas=4, warm=4)],
                condition(*ready), condition("ScalingActive", "True", "LoadFits", verdict),
                sizing={"minReplicas": 2, "maxReplicas": 8}, status={"replicas": 4, "warm": "4/4"},
            ),
            group(
                "code", model,
                [revision(CODE_NEW, "code", "Canary", 30, replicas=2, warm=2),
                 revision(CODE_OLD, "code", "Serving", 70, replicas=4, warm=4)],
                condition("Ready", "False", "Undecided", f"{waits} is not significant after 212 requests"),
                condition("Progressing", "True", "Undecided", f"{waits} is not significant after 212 requests"),
                condition("ScalingActive", "False", "FixedReplicas", "spec.replicas says how many"),
                rollout={"steps": steps}, replicas=4, status={"replicas": 6, "warm": "2/4"},
            ),
            group(
                "write", model, [revision(WRITE, "write", "Serving", 100, replicas=3, warm=2)],
                condition("Ready", "False", "Warming", "2 of 3 replicas are warm"),
                condition("PrefixWarm", "False", "WaitingForContainers", "the prefix is sent once they are ready"),
                condition("ScalingActive", "False", "FixedReplicas", "spec.replicas says how many"),
                replicas=3, status={"replicas": 3, "warm": "2/3"},
            ),
        ),
        routes=(
            route("support", (SUPPORT, 100, [(slot, "Ready") for slot in range(4)])),
            route("code", (CODE_NEW, 30, [(0, "Ready"), (1, "Ready")]),
                  (CODE_OLD, 70, [(slot, "Ready") for slot in range(4)])),
            route("write", (WRITE, 100, [(0, "Ready"), (1, "Absent"), (2, "Ready")])),
        ),
        pods=(
            *(pod("support", SUPPORT, slot) for slot in range(4)),
            *(pod("code", CODE_NEW, slot) for slot in range(2)),
            *(pod("code", CODE_OLD, slot) for slot in range(4)),
            pod("write", WRITE, 0), pod("write", WRITE, 2), pod("write", WRITE, 5, cold, held=False),
        ),
        deployments=(
            {
                "metadata": {
                    "name": f"code-{short(CODE_NEW)}",
                    "annotations": {
                        "promptgroup.dev/release-step": "30",
                        "promptgroup.dev/release-step-since": "2026-11-22T14:09:00Z",
                    },
                }
            },
        ),
        events=tuple(
            {
                "metadata": {"namespace": "chat", "name": f"code.{reason}"},
                "involvedObject": {"kind": "PromptGroup", "name": "code"},
                "type": kind, "reason": reason, "message": message, "count": 1,
                "lastTimestamp": f"{BEGAN + timedelta(minutes=minute):%Y-%m-%dT%H:%M:%SZ}",
            }
            for reason, kind, minute, message in events
        ),
    )  # fmt: skip


def histogram(bounds: tuple[float, ...], weights: Mapping[int, float], total: float) -> Histogram:
    whole = sum(weights.values())
    return Histogram(bounds, tuple(total * weights.get(place, 0) / whole for place in range(len(bounds) + 1)))


def counters(number: int) -> tuple[RouterPage, RouterCounts]:
    """What the router has counted after so many looks."""
    requests, prompt, cached, first = {}, {}, {}, {}
    for name, rate, hit, swing in (("support", 5.2, 0.955, 0.02), ("code", 3.1, 0.91, 0.05), ("write", 1.4, 0.84, 0.1)):
        label = f"chat/{name}"
        dip = [0.16 * math.exp(-(((number - at) / 14) ** 2)) for at in range(number + 1)] if name == "write" else []
        shares = [hit + swing * math.sin(at / 23 + len(name)) * 0.5 for at in range(number + 1)]
        loads = [rate * (1 + 0.25 * math.sin(at / 41 + len(name))) * INTERVAL for at in range(number + 1)]
        requests[label] = sum(loads)
        prompt[label] = 1840 * sum(loads)
        cached[label] = 1840 * sum(load * share for load, share in zip(loads, shares, strict=True)) - sum(dip)
        slow = 0.05 + 0.04 * math.sin(number / 31)
        first[label] = histogram(BOUNDS, {0: 0.2, 1: 0.5 - slow, 2: 0.25, 3: slow, 4: 0.03, 5: 0.01}, requests[label])
    per_slot = {"support": (SUPPORT, 4), "code": (CODE_OLD, 4), "write": (WRITE, 3)}
    replicas = [
        ReplicaRate(f"chat/{name}", short(print_), slot, (3 * slot + number // 7) % 4, 0.004 * slot, 12 + 5 * slot,
                    0.22 + 0.17 * slot)
        for name, (print_, slots) in per_slot.items()
        for slot in range(slots)
        if (name, slot) != ("write", 1)
    ]  # fmt: skip
    replicas += [ReplicaRate("chat/code", short(CODE_NEW), slot, 1, 0.002, 6, 0.1) for slot in range(2)]
    page = RouterPage(requests, prompt, cached, first, {}, tuple(replicas))
    samples = {
        ShortFingerprint(short(print_)): {
            StratumKey(): Stratum(
                requests=rate * number,
                errors=rate * number * failed,
                first_token=histogram(BOUNDS, {0: 0.1, 1: 0.5, 2: 0.2 + slower, 3: 0.05}, rate * number),
                cached=histogram(SHARES, {4: 0.2, 5: 0.8}, rate * number),
            )
        }
        for print_, rate, failed, slower in ((CODE_OLD, 4.3, 0.001, 0.0), (CODE_NEW, 1.9, 0.0, 0.4))
    }
    return page, RouterCounts(samples=samples)


UNMATCHED = {
    "unmatched": [
        {
            "model": model, "hash": hash_, "systemBytes": 4096, "prefixTokens": tokens, "requests": 900,
            "requestsPerSecond": rate, "tokensPerSecond": tokens * rate, "tokensPerSecondTooHighBy": 0.0,
            "sessions": sessions, "texts": texts, "bitmaps": "00" * 64,
        }
        for model, hash_, tokens, rate, sessions, texts in (
            ("Qwen/Qwen3-8B", "5f3a90c2b7714e08", 2210, 1.31, 214, 1),
            ("Qwen/Qwen3-8B", "0b94e1d2c3f0a655", 870, 0.44, 63, 48),
        )
    ]
}  # fmt: skip


def reading(number: int, seen: ClusterReading | None, moves: tuple[SessionMove, ...] = ()) -> DashboardReading:
    page, counts = counters(number)
    router = RouterReading(page, {Key("chat", "code"): counts}, moves, {}, UNMATCHED)
    clock = 1000.0 + INTERVAL * number
    return DashboardReading(BEGAN + timedelta(seconds=INTERVAL * number), clock, seen, {"router-0": router})


def move(name: str, print_: Fingerprint, origin: int, target: int, ago: float) -> SessionMove:
    label = f"chat/{name}/{short(print_)}"
    return SessionMove(f"{label}/{origin}", f"{label}/{target}", ago)


class ScriptedDashboard:
    """What a server of the page asks: fifteen minutes that have passed, and one more look with each view."""

    def __init__(self, looks: int = 400, seen: ClusterReading | None = None) -> None:
        self.cluster = seen or cluster()
        self.history = DashboardHistory()
        self.number = 0
        self._lock = threading.Lock()
        self.explained: list[tuple[str, Mapping[str, str]]] = []
        self.answer: dict[str, Any] = {}
        for _ in range(looks):
            self.look()

    def look(self) -> None:
        self.number += 1
        moves = (move("support", SUPPORT, 0, 2, 1.0), move("support", SUPPORT, 3, 1, 0.5))
        self.reading = reading(self.number, self.cluster, moves if self.number % 5 == 0 else ())
        self.history.add(self.reading)

    def frame(self) -> DashboardFrame:
        return DashboardFrame("chat", INTERVAL, "2026-11-22T14:00:00Z", self.reading, self.number, 2.0, self.history)

    def view(self, chosen: str) -> bytes:
        with self._lock:
            self.look()
            return orjson.dumps(view(self.frame(), chosen))

    def explain(self, body: str, headers: Mapping[str, str]) -> bytes:
        self.explained.append((body, headers))
        return orjson.dumps(self.answer)
