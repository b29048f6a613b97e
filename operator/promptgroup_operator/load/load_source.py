"""The source of a group's load: the operator's own readings, or Prometheus.

Both return the same values in the same units, and set `stale` if they have no recent data.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from promptgroup_contract.fingerprint import Fingerprint, ShortFingerprint, short
from promptgroup_contract.table import Prompt
from promptgroup_operator.engines.dialects.metric_names import MetricNames
from promptgroup_operator.load import guest_load
from promptgroup_operator.load.engine_history import EngineHistory
from promptgroup_operator.load.router_history import RouterHistory
from promptgroup_operator.world.engine_facts import Measured, of_replica, together
from promptgroup_operator.world.load import GroupLoad, summed
from promptgroup_operator.world.snapshot import ContainerId, GuestSubject, Key, RevisionState


@dataclass(frozen=True, slots=True)
class LoadSubject:
    """The revision whose load is wanted."""

    key: Key
    fingerprint: Fingerprint
    names: MetricNames
    deployment: str
    """Name of its Deployment, after which its pods are named."""
    pods: Mapping[str, datetime]
    """Pod → time since which it serves, for all that do."""
    serving: Mapping[ContainerId, datetime]
    """The same times by container."""
    measured: Measured
    """Measurements of their engines; the ranks of one engine are combined."""
    guests: Sequence[GuestSubject] = ()
    """Revisions of other groups that the same engines serve."""
    is_guest: bool = False
    """True if the engines belong to another group."""
    ranks: int = 1
    """Data-parallel ranks of each engine."""
    declared_bytes: int = 0
    """Length of the declared system prompt in bytes; 0 if unknown."""

    @property
    def revision(self) -> ShortFingerprint:
        """Return the short fingerprint, as it is used in metrics."""
        return short(self.fingerprint)


def load_subject(key: Key, revision: RevisionState, names: MetricNames) -> LoadSubject:
    """Return the parameters by which a source computes the load of a revision."""
    warm = [pod for pod in revision.pods if pod.is_warm]
    ranks = max((pod.ranks for pod in warm), default=1)
    since = [(pod, pod.warm.since) for pod in warm if pod.warm is not None and pod.warm.since is not None]
    return LoadSubject(
        key=key,
        fingerprint=revision.fingerprint,
        names=names,
        deployment=revision.deployment,
        pods={pod.name: at for pod, at in since},
        serving={pod.container_id: at for pod, at in since},
        measured=of_replica(together(pod.measured for pod in warm), ranks),
        ranks=ranks,
        declared_bytes=_size(revision.prompt),
    )


def _size(prompt: Prompt | None) -> int:
    return len(prompt.system.encode()) if prompt is not None else 0


class LoadSource(Protocol):
    """A source of loads."""

    def load(self, subject: LoadSubject, now: datetime) -> GroupLoad:
        """Return the recent load of a revision's engines and routers, within a few seconds."""


class ScrapedLoad:
    """Loads from the operator's own readings."""

    def __init__(self, engines: EngineHistory, routers: RouterHistory) -> None:
        self._engines = engines
        self._routers = routers

    def load(self, subject: LoadSubject, now: datetime) -> GroupLoad:
        """Return the load; see `LoadSource`."""
        if subject.is_guest:
            return self._guest_load(subject, now)
        load = self._engines.load((subject.key, subject.fingerprint), subject.serving, subject.measured, now)
        tokens = subject.measured.prefix_tokens
        own = GuestSubject(subject.key, subject.revision, tokens)
        clients = (self._routers.clients(*guest_subject, now) for guest_subject in (own, *subject.guests))
        return replace(
            load,
            clients=summed([client for client in clients if client is not None]),
            drift=self._routers.drift(subject.key, subject.declared_bytes, now),
        )

    def _guest_load(self, subject: LoadSubject, now: datetime) -> GroupLoad:
        clients = self._routers.clients(subject.key, subject.revision, subject.measured.prefix_tokens, now)
        if clients is None and self._routers.reads(now):
            clients = guest_load.NO_CLIENTS
        drift = self._routers.drift(subject.key, subject.declared_bytes, now)
        return guest_load.load(clients, drift, len(subject.serving), subject.measured)
