"""Decide about the Lease, which one process holds (coordination.k8s.io, as client-go's leaderelection).

The time for which another process holds it is counted from when this process first saw the present record, by its own
monotonic clock. The times in the record are by other clocks and are for people only, so no skew between clocks matters;
clocks must only run at about the same speed.
"""

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
    """A Lease as the API server holds it. One that another tool wrote may lack any field."""

    spec: Mapping[str, Any]
    version: str = ""
    """resourceVersion: a write names it, so that of two that take the lease one fails (409). A new one has none."""

    @property
    def holder(self) -> str:
        """Identity of the holder, empty when the lease was released."""
        return self.spec.get("holderIdentity") or ""

    @property
    def seconds(self) -> float:
        """Time after which others may take the lease if it is not renewed."""
        return float(self.spec.get("leaseDurationSeconds") or DURATION)


def is_free(me: str, record: LeaseRecord | None, seconds: float) -> bool:
    """Return True if a process may write the lease, of which this record was seen so many seconds ago first.

    It may if the lease has no holder, if the process is the holder, or if the holder has not renewed it in time.
    """
    return record is None or record.holder in ("", me) or seconds >= record.seconds


def renewed_record(me: str, before: LeaseRecord | None, wall: datetime) -> LeaseRecord:
    """Return the record by which `me` holds the lease, after the present one."""
    before = before or LeaseRecord({"leaseTransitions": -1})
    renewed = {"holderIdentity": me, "leaseDurationSeconds": int(DURATION), "renewTime": _micro(wall)}
    if before.holder != me:
        renewed |= {"acquireTime": _micro(wall), "leaseTransitions": (before.spec.get("leaseTransitions") or 0) + 1}
    return LeaseRecord({**before.spec, **renewed}, before.version)


def released_record(before: LeaseRecord, wall: datetime) -> LeaseRecord:
    """Return the record of a lease without a holder; a standby acquires it at its next read."""
    times = {"acquireTime": _micro(wall), "renewTime": _micro(wall)}
    return LeaseRecord({**before.spec, "holderIdentity": "", "leaseDurationSeconds": 1, **times}, before.version)


def decode(raw: Manifest) -> LeaseRecord:
    """Decode a Lease."""
    return LeaseRecord(raw.get("spec") or {}, raw["metadata"]["resourceVersion"])


def encode(record: LeaseRecord, namespace: str, name: str) -> dict[str, Any]:
    """Return the Lease to write."""
    version = {"resourceVersion": record.version} if record.version else {}
    metadata = {"name": name, "namespace": namespace, **version}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": record.spec}


def _micro(wall: datetime) -> str:
    """Format a MicroTime of the Kubernetes API."""
    return f"{wall.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
