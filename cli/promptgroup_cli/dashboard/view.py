"""Builds the JSON that the page shows from a reading. Does no I/O and reads no clock.

Shares and rates are numbers from 0 to 1, times are seconds; null means unknown. Texts are truncated and lists are
limited, since their content comes from any user.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from promptgroup_cli.dashboard.history import WINDOW_SECONDS, DashboardHistory, TimePoint
from promptgroup_cli.dashboard.past import Columns, DashboardPast, before
from promptgroup_cli.dashboard.reading import ClusterReading, DashboardReading
from promptgroup_cli.dashboard.release_view import release_view
from promptgroup_cli.reach.discovered import note, saves, together
from promptgroup_cli.reach.group_status import GroupStatus, RevisionRow, SlotRow, Statement, group_status
from promptgroup_cli.reach.hit_rates import share_of
from promptgroup_cli.reach.top_rates import ReplicaRate, TopRates, by_slot
from promptgroup_contract import names
from promptgroup_contract.fingerprint import Fingerprint, ShortFingerprint, short
from promptgroup_contract.names import HIT_RATE_SECONDS, UNMATCHED
from promptgroup_operator.base.timestamps import rfc3339
from promptgroup_operator.plan.status import RELEASING
from promptgroup_operator.warmth.warmup import SELF_MENDING
from promptgroup_operator.world.snapshot import Key, Manifest
from promptgroup_router.undeclared.unmatched import LISTED

MOST_TEXT = 2000
"""Most characters of a text."""
MOST_GROUPS = 500
MOST_SLOTS = 256
"""Most slots of a revision."""
MOST_EVENTS = 30
TREND = 40
"""Points of the small line beside a group."""

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class DashboardFrame:
    """The values that a view is made from."""

    namespace: str
    interval: float
    began: str
    """Time at which the observation began."""
    reading: DashboardReading
    number: int
    """Number of the reading."""
    since: float
    """Seconds since the reading before."""
    history: DashboardHistory
    past: DashboardPast | None = None
    """Figures from before that time, from Prometheus; None without a Prometheus."""


def view(frame: DashboardFrame, chosen: str) -> Document:
    """Return the page's content.

    Args:
        frame: the observed state.
        chosen: the group (`namespace/name`) that is shown in detail; the first one if there is none of that name.
    """
    reading = frame.reading
    groups = _groups(reading)
    rows = sorted((_row(label, status, frame) for label, status in groups.items()), key=_worst_first)
    detailed = chosen if chosen in groups else next((row["label"] for row in rows), "")
    rest = frame.history.latest(UNMATCHED, reading.clock)
    shown: Document = cut(
        {
            "namespace": frame.namespace,
            "at": rfc3339(reading.at),
            "number": frame.number,
            "interval": frame.interval,
            "window": WINDOW_SECONDS,
            "statusWindow": HIT_RATE_SECONDS,
            "began": frame.began,
            "routers": sorted(reading.routers),
            "problems": [*_problems(reading), *([frame.past.problem] if frame.past and frame.past.problem else [])],
            "groups": rows[:MOST_GROUPS],
            "moreGroups": max(0, len(rows) - MOST_GROUPS),
            "clusterAsked": reading.cluster is not None,
            "routersHeard": bool(reading.routers),
            "withoutGroup": _figures(rest) if rest is not None and rest.requests else None,
            "group": _detail(detailed, groups[detailed], frame, rows) if detailed else None,
            "unmatched": unmatched(reading),
        }
    )
    return shown


def _groups(reading: DashboardReading) -> dict[str, GroupStatus | None]:
    """Return the groups by name, with their status where a cluster is read."""
    cluster = reading.cluster
    result: dict[str, GroupStatus | None] = {
        label: None for router in reading.routers.values() for label in router.routes
    }
    if cluster is not None:
        routes = {_label(item): item for item in cluster.routes}
        pods: dict[str, list[Manifest]] = {}
        for pod in cluster.pods:
            metadata = pod["metadata"]
            of = metadata.get("labels", {}).get(names.LABEL_GROUP, "")
            pods.setdefault(f"{metadata['namespace']}/{of}", []).append(pod)
        for group in cluster.groups:
            label = _label(group)
            route = routes.get(label) or _reported_route(reading, label)
            result[label] = group_status(group, route, pods.get(label, []), cluster.kubectl, reading.at)
    return result


def _reported_route(reading: DashboardReading, label: str) -> Manifest | None:
    """Return a group's PromptRoute as a router has it."""
    return next((router.routes[label] for router in reading.routers.values() if label in router.routes), None)


def _label(manifest: Manifest) -> str:
    return f"{manifest['metadata']['namespace']}/{manifest['metadata']['name']}"


def _problems(reading: DashboardReading) -> Iterator[str]:
    if reading.cluster is not None:
        yield from reading.cluster.unknown
    yield from reading.silent.values()


# --- the list of groups --------------------------------------------------------------------------------------


def _row(label: str, status: GroupStatus | None, frame: DashboardFrame) -> Document:
    now = frame.history.latest(label, frame.reading.clock)
    points = frame.history.points(label)
    namespace, _, name = label.partition("/")
    return {
        "label": label,
        "namespace": namespace,
        "name": name,
        "model": _model(status, _reported_route(frame.reading, label)),
        **_state(status),
        "host": (status.host or None) if status is not None else None,
        "warm": (status.warm or None) if status is not None else None,
        "trend": [point.rates.hit_rate for point in _thinned(points, TREND)],
        **_figures(now),
        "statusHitRate": share_of(status.hit_rate) if status is not None else None,
    }


def _state(status: GroupStatus | None) -> Document:
    """Return the state in one word, and why. A release and replicas that become warm are no fault."""
    if status is None:
        return {"state": "Unknown", "reason": None}
    held = next((statement for statement in status.statements if statement.holds), None)
    noted = next(
        (
            statement
            for statement in status.statements
            if not statement.holds and statement.condition != "ScalingActive"
        ),
        None,
    )
    if held is None and status.ready:
        return {"state": "Note" if noted is not None else "Ready", "reason": _brief(noted)}
    reasons = {statement.reason for statement in status.statements if statement.holds}
    if reasons & RELEASING:
        return {"state": "Releasing", "reason": f"A release is under way ({', '.join(sorted(reasons & RELEASING))})"}
    calm = reasons and reasons <= {*SELF_MENDING, "Warming"}
    return {"state": "Warming" if calm else "NotReady", "reason": _brief(held)}


def _brief(statement: Statement | None) -> str | None:
    return f"{statement.words} ({statement.reason})" if statement is not None else None


_SEVERITY = {"NotReady": 0, "Warming": 1, "Releasing": 2, "Note": 3, "Unknown": 4, "Ready": 5}


def _worst_first(row: Document) -> tuple[int, bool, str]:
    """Order rows by urgency, and by nothing that changes with each reading, or rows would jump."""
    return _SEVERITY[row["state"]], not row["waiting"], row["label"]


def _model(status: GroupStatus | None, route: Manifest | None) -> str:
    if status is not None:
        return status.model
    return str(route["spec"]["model"]) if route is not None else ""


_NO_FIGURES: Document = dict.fromkeys(("requestsPerSecond", "hitRate", "ttftP50", "ttftP99", "inFlight", "waiting"))


def _figures(top_rates: TopRates | None) -> Document:
    """Return the figures of a group; null where no router was read twice, since unknown is not zero."""
    if top_rates is None:
        return _NO_FIGURES
    return {
        "requestsPerSecond": top_rates.requests,
        "hitRate": top_rates.hit_rate,
        "ttftP50": top_rates.median,
        "ttftP99": top_rates.late,
        "inFlight": top_rates.in_flight,
        "waiting": top_rates.waiting,
    }


def _thinned(points: Sequence[TimePoint], most: int) -> Sequence[TimePoint]:
    step = -(-len(points) // most) if points else 1
    return points[len(points) - 1 :: -step][::-1] if points else points


# --- one group -----------------------------------------------------------------------------------------------


def _detail(label: str, status: GroupStatus | None, frame: DashboardFrame, rows: Sequence[Document]) -> Document:
    reading, cluster = frame.reading, frame.reading.cluster
    now = frame.history.latest(label, reading.clock)
    replicas = by_slot(now.replicas) if now is not None else {}
    manifest = (
        next((group for group in cluster.groups if _label(group) == label), None) if cluster is not None else None
    )
    route = _reported_route(reading, label)
    revisions = status.revisions if status is not None else _routed(route)
    points = frame.history.points(label)
    return {
        "label": label,
        "model": _model(status, route),
        "aliases": _aliases(status, route),
        "host": (status.host or None) if status is not None else None,
        "guests": sorted(other["name"] for other in rows if other["host"] == label.partition("/")[2]),
        **_state(status),
        **_figures(now),
        "statusHitRate": share_of(status.hit_rate) if status is not None else None,
        "revisions": [
            _revision(revision, replicas)
            for revision in revisions
            if revision.slots or revision.weight or revision.phase in ("Serving", "Canary", "Coming")
        ],
        "moves": _moves(label, frame),
        "sizing": _sizing(status) if status is not None else None,
        "said": [_statement(statement) for statement in status.statements] if status is not None else None,
        "release": _release(manifest, cluster, frame) if manifest is not None and cluster is not None else None,
        "events": list(_events(label, cluster)) if cluster is not None else [],
        "series": _series(points, frame.past.columns if frame.past and frame.past.group == label else {}),
    }


def _aliases(status: GroupStatus | None, route: Manifest | None) -> list[str]:
    """Return the other names of the group's model."""
    if status is not None:
        return list(status.aliases)
    return [alias["name"] for alias in route["spec"]["aliases"]] if route is not None else []


def _series(points: Sequence[TimePoint], past: Columns) -> Document:
    """Return the figures over time: the page's own, and those of Prometheus from before."""
    own: dict[str, list[float | None]] = {
        "requestsPerSecond": [point.rates.requests for point in points],
        "hitRate": [point.rates.hit_rate for point in points],
        "ttftP50": [point.rates.median for point in points],
        "ttftP99": [point.rates.late for point in points],
        "moved": [point.moved for point in points],
    }
    times, values = before(past, points[0].at if points else None)
    earlier = [rfc3339(datetime.fromtimestamp(at, UTC)) for at in times]
    return {
        "at": [*earlier, *(rfc3339(point.at) for point in points)],
        **{name: [*values.get(name, [None] * len(times)), *result] for name, result in own.items()},
    }


def _routed(route: Manifest | None) -> Iterator[RevisionRow]:
    """Yield the revisions in a router's table, for a page that reads no cluster."""
    for revision in route["spec"]["revisions"] if route is not None else ():
        ready = sum(slot["state"] == "Ready" for slot in revision["slots"])
        slots = tuple(SlotRow(slot["slot"], "", slot["state"], "", "", "") for slot in revision["slots"])
        yield RevisionRow(Fingerprint(revision["fingerprint"]), "", revision["weight"], len(slots), ready, ready, slots)


def _revision(row: RevisionRow, replicas: Mapping[tuple[ShortFingerprint, int], ReplicaRate]) -> Document:
    name = short(row.fingerprint)
    ready = sum(slot.state == "Ready" for slot in row.slots)
    return {
        "revision": name,
        "phase": row.phase or None,
        "weight": row.weight,
        "replicas": row.replicas,
        "warm": row.warm,
        "ready": row.ready,
        "slots": [
            _slot(slot, 1 / ready if slot.state == "Ready" else 0.0, replicas.get((name, slot.slot or 0)))
            for slot in row.slots[:MOST_SLOTS]
        ],
        "moreSlots": max(0, len(row.slots) - MOST_SLOTS),
    }


def _slot(row: SlotRow, share: float, load: ReplicaRate | None) -> Document:
    """Return a slot. Keys are spread evenly over a ring's slots, so that slots that take requests share them evenly."""
    replica_rate = load if row.slot is not None and row.state in ("Ready", "Draining") else None
    return {
        "slot": row.slot,
        "pod": row.pod or None,
        "state": row.state,
        "warm": _warmth(row),
        "reason": row.reason or None,
        "message": (row.message or None) if row.warm != "True" else None,
        "share": share,
        "inFlight": replica_rate.in_flight if replica_rate is not None else None,
        "wait": replica_rate.wait if replica_rate is not None else None,
        "sessions": replica_rate.sessions if replica_rate is not None else None,
        "kv": replica_rate.filled if replica_rate is not None else None,
    }


def _warmth(row: SlotRow) -> str:
    """Return warm, cold or absent; routers' tables have only warm slots, so that a ready slot in one is warm."""
    if row.warm == "True" or (not row.warm and not row.pod and row.state == "Ready"):
        return "warm"
    return "absent" if row.state == "Absent" and not row.warm else "cold"


def _moves(label: str, frame: DashboardFrame) -> list[Document]:
    """Return the moves of sessions of a group since the reading before, by their ends; none within one replica."""
    counts: dict[tuple[str, str], int] = {}
    for router in frame.reading.routers.values():
        for move in router.moves:
            if move.seconds_ago < frame.since and move.target.startswith(f"{label}/"):
                ends = _slot_of(move.origin), _slot_of(move.target)
                counts[ends] = counts.get(ends, 0) + 1
    return [
        {"from": origin, "to": target, "sessions": count}
        for (origin, target), count in counts.items()
        if origin != target
    ]


def _slot_of(label: str) -> str:
    """Return the label of a slot from that of a data-parallel rank of its engine."""
    head, slash, place = label.rpartition("/")
    return head + slash + place.partition(".")[0]


def _sizing(status: GroupStatus) -> Document:
    return {"replicas": status.replicas, **asdict(status.sizing)}


def _statement(statement: Statement) -> Document:
    return {
        "condition": statement.condition or None,
        "reason": statement.reason,
        "words": statement.words,
        "message": statement.message,
    }


def _release(manifest: Manifest, cluster: ClusterReading, frame: DashboardFrame) -> Document | None:
    key = Key(manifest["metadata"]["namespace"], manifest["metadata"]["name"])
    counted = frame.history.since_step(key, frame.reading)
    return release_view(manifest, cluster.deployments, *counted) if counted is not None else None


def _events(label: str, cluster: ClusterReading) -> Iterator[Document]:
    """Yield the operator's recent events about the group, the latest first."""
    own = [
        event
        for event in cluster.events
        if f"{event['metadata']['namespace']}/{event.get('involvedObject', {}).get('name')}" == label
    ]
    own.sort(key=lambda item: str(item.get("lastTimestamp") or ""), reverse=True)
    for item in own[:MOST_EVENTS]:
        yield {
            "at": str(item.get("lastTimestamp") or ""),
            "type": str(item.get("type", "")),
            "reason": str(item.get("reason", "")),
            "message": str(item.get("message", "")),
            "count": int(item.get("count") or 1),
        }


# --- prompts without a group -----------------------------------------------------------------------------------


def unmatched(reading: DashboardReading) -> list[Document]:
    """Return the heaviest prompts that no group declares."""
    listed = together([dict(router.unmatched) for router in reading.routers.values()])
    whole = sum(float(item["tokensPerSecond"]) for item in listed)
    return [
        {
            "hash": item["hash"],
            "model": item["model"],
            "tokens": item["prefixTokens"],
            "requestsPerSecond": item["requestsPerSecond"],
            "tokensPerSecond": item["tokensPerSecond"],
            "share": item["tokensPerSecond"] / whole if whole else None,
            "sessions": item["sessions"],
            "texts": item["texts"],
            "saves": saves(item),
            "note": note(item),
        }
        for item in listed[:LISTED]
    ]


def cut(value: Any) -> Any:
    """Return the value with each text in it cut to MOST_TEXT characters."""
    if isinstance(value, str):
        return value if len(value) <= MOST_TEXT else f"{value[:MOST_TEXT]}…"
    if isinstance(value, dict):
        return {key: cut(item) for key, item in value.items()}
    return [cut(item) for item in value] if isinstance(value, list | tuple) else value
