"""The outcomes of warm-ups and refreshes of guests, until the PromptRoutes of the guests have them.

The pods are the host's, so that no outcome is written on them. Each lost outcome costs one warm-up.
"""

import threading
from collections.abc import Collection
from datetime import datetime

from promptgroup_contract.fingerprint import Fingerprint
from promptgroup_operator.guests.record import Proof
from promptgroup_operator.guests.revisions import Outcomes
from promptgroup_operator.world.engine_facts import UNKNOWN, Measured, completed
from promptgroup_operator.world.snapshot import NO_CONTAINER, ContainerId, Key, PodCondition
from promptgroup_operator.world.warming import Outcome


class GuestProofs:
    """The latest outcome for each guest, container and revision. Safe to use from many threads."""

    def __init__(self) -> None:
        self._of: dict[Key, dict[tuple[ContainerId, Fingerprint], Proof]] = {}
        self._lock = threading.Lock()

    def put(
        self,
        key: Key,
        container: ContainerId,
        fingerprint: Fingerprint,
        outcome: Outcome,
        *,
        serves: bool,
        now: datetime,
    ) -> None:
        """Store the outcome of a warm-up of a prompt on a container; `serves` is True if requests may be sent there."""
        pod_condition = PodCondition(str(serves), outcome.reason, outcome.message, now)
        with self._lock:
            proof = self._of.setdefault(key, {}).get((container, fingerprint))
            measured = completed(outcome.measured, proof.measured if proof is not None else UNKNOWN)
            own = Measured(prefill_rate=measured.prefill_rate, prefix_tokens=measured.prefix_tokens)
            self._of[key][container, fingerprint] = Proof(container if serves else NO_CONTAINER, pod_condition, own)

    def of(self, key: Key, containers: Collection[ContainerId]) -> Outcomes:
        """Return the results for a guest; results of other containers than these are deleted."""
        with self._lock:
            proofs = {item: proof for item, proof in self._of.get(key, {}).items() if item[0] in containers}
            if proofs:
                self._of[key] = proofs
            else:
                self._of.pop(key, None)
            return proofs

    def forget(self, key: Key) -> None:
        """Drop a group that is gone."""
        with self._lock:
            self._of.pop(key, None)
