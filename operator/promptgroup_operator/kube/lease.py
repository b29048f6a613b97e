"""Decide about the Lease, which one process holds (coordination.k8s.io, as client-go's leaderelection).

                            the Lease      its holder       held by another for
                            is not there   is nobody / me   less than its duration   longer
decide                      CREATE         TAKE / RENEW     WAIT                     TAKE

The time for which another process holds it is counted from when this process first saw the present record, by its own
monotonic clock. The times in the record are by other clocks and are for people only, so no skew between clocks matters;
clocks must only run at about the same speed.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from promptgroup_operator.world.snapshot import Manifest

DURATION = 15.0
"""Seconds after which others may take a lease that is not renewed: client-go's default."""
RENEW_DEADLINE = 10.0
"""Seconds after its last renewal in which a holder writes: 5 less than DURATION, for what is on its way then."""
RETRY = 2.0
"""Seconds between two reads, as in client-go: four renewals may fail before the holder stops."""
REQUEST = 4.0
"""Longest wait for one request about the lease, so that one that hangs leaves time for another."""


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """A Lease as the API server holds it."""

    holder: str
    """Identity of the holder, empty when it was released."""
    seconds: float
    """Time after which an unrenewed lease may be taken."""
    acquired: str
    renewed: str
    transitions: int
    version: str
    """resourceVersion: a write names it, so that of two that take the lease one fails (409)."""


@dataclass(frozen=True, slots=True)
class LeaseObservation:
    """A record, and when this process first saw it as it is."""

    record: LeaseRecord | None
    since: float
    """By the monotonic clock of this process."""


class LeaseAction(enum.Enum):
    """An action on the lease."""

    CREATE = "create"
    TAKE = "take"
    RENEW = "renew"
    WAIT = "wait"


def observe(before: LeaseObservation | None, record: LeaseRecord | None, now: float) -> LeaseObservation:
    """Return what is known of the lease after it was read."""
    if before is not None and before.record == record:
        return before
    return LeaseObservation(record, now)


def decide(me: str, lease_observation: LeaseObservation, now: float) -> LeaseAction:
    """Return the action on the lease as it is known. Times are of one monotonic clock."""
    if lease_observation.record is None:
        return LeaseAction.CREATE
    if lease_observation.record.holder == me:
        return LeaseAction.RENEW
    if lease_observation.record.holder and now < lease_observation.since + lease_observation.record.seconds:
        return LeaseAction.WAIT
    return LeaseAction.TAKE


def renewed_record(me: str, before: LeaseRecord | None, wall: datetime) -> LeaseRecord:
    """Return the record by which `me` holds the lease, after the present one."""
    time = _micro(wall)
    if before is None:
        return LeaseRecord(me, DURATION, time, time, 0, "")
    if before.holder == me:
        return LeaseRecord(me, DURATION, before.acquired, time, before.transitions, before.version)
    return LeaseRecord(me, DURATION, time, time, before.transitions + 1, before.version)


def released_record(before: LeaseRecord, wall: datetime) -> LeaseRecord:
    """Return the record of a lease that nobody holds; a standby takes it when it next reads it."""
    return LeaseRecord("", 1.0, _micro(wall), _micro(wall), before.transitions, before.version)


def decode(raw: Manifest) -> LeaseRecord:
    """Decode a Lease. One that another tool wrote may lack any field."""
    spec: Mapping[str, Any] = raw.get("spec") or {}
    return LeaseRecord(
        holder=spec.get("holderIdentity") or "",
        seconds=float(spec.get("leaseDurationSeconds") or DURATION),
        acquired=spec.get("acquireTime") or "",
        renewed=spec.get("renewTime") or "",
        transitions=spec.get("leaseTransitions") or 0,
        version=raw["metadata"]["resourceVersion"],
    )


def encode(record: LeaseRecord, namespace: str, name: str) -> dict[str, Any]:
    """Return the Lease to write."""
    version = {"resourceVersion": record.version} if record.version else {}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": namespace, **version},
        "spec": {
            "holderIdentity": record.holder,
            "leaseDurationSeconds": int(record.seconds),
            "acquireTime": record.acquired,
            "renewTime": record.renewed,
            "leaseTransitions": record.transitions,
        },
    }


def _micro(wall: datetime) -> str:
    """Format a MicroTime of the Kubernetes API."""
    return f"{wall.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
