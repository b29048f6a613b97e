"""A simulated cluster with one guest, on replicas of a host that exist and do not change. Does no I/O.

The host itself is unknown: it is assumed to have as many replicas as the guest requests, or HOST_REPLICAS.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from promptgroup_cli.rehearsal.simulated_cluster import SimulatedCluster, SimulatedPace
from promptgroup_contract.fingerprint import Fingerprint
from promptgroup_contract.table import PromptRef
from promptgroup_operator.guests import record, revisions
from promptgroup_operator.guests.record import Proof
from promptgroup_operator.plan import desired, prompt_route
from promptgroup_operator.plan.plan import Plan
from promptgroup_operator.world.snapshot import ContainerId, GroupObject, Host, PodCondition, PromptText, World
from promptgroup_operator.world.warming import WarmReason

HOST_REPLICAS = 2
"""Replicas of a host where the guest is to be on all of them."""


class SimulatedGuest(SimulatedCluster):
    """A namespace with a guest and the replicas of its host.

    Args:
        group: the PromptGroup, with a spec that `guests.host.served` has filled in.
        text: its prompt.
        pace: the assumed pace of the cluster.
        now: the time at which the group is created.
    """

    def __init__(self, group: GroupObject, text: PromptText, pace: SimulatedPace, now: datetime) -> None:
        super().__init__(group, text, replace(pace, warm_after=timedelta()), now)
        self._proofs: dict[tuple[ContainerId, Fingerprint], Proof] = {}
        assert group.spec.engine_from is not None  # noqa: S101 - it is a guest
        self._host = group.spec.engine_from.prompt_group
        for _ in range(group.spec.replicas or 0):
            self._create(self._host, Fingerprint(""), "")
        self.nodes()

    def world(self, at: datetime | None = None) -> World:
        """Return the world of a pass; at a later time, if nothing happens until then."""
        now = at or self.now
        route = self._live.get(("PromptRoute", self._group.key.name))
        host = Host(self._host, tuple(self._pods.values()))
        standing, holding = prompt_route.standing(route), revisions.holders(route)
        built = [
            revisions.revision(
                self._group.key.name,
                recorded_revision,
                PromptRef(recorded_revision.prompt_kind, desired.name(self._group, recorded_revision.fingerprint)),
                self._texts[recorded_revision.fingerprint],
                host,
                standing=standing.get(recorded_revision.fingerprint, (0, {})),
                holding=holding.get(recorded_revision.fingerprint, {}),
            )
            for recorded_revision in record.decode(route)
        ]
        revision_states = revisions.with_outcomes(built, self._proofs)
        traffic = self._traffic(revision_states, now) if len(revision_states) > 1 else None
        return World(self._group, self._text, revision_states, (), dict(self._live), traffic=traffic, host=host)

    def perform(self, world: World, todo: Plan) -> None:
        """Perform the effects of one pass of the operator."""
        super().perform(world, replace(todo, warmups=()))
        for job in todo.warmups:
            pod_condition = PodCondition("True", WarmReason.PROVEN, "as rehearsed", self.now)
            self._proofs[job.container_id, job.prompt.fingerprint] = Proof(job.container_id, pod_condition)
