"""Decides which warm replicas get no requests yet, since gateways may not have received them.

A gateway receives a pod's address from EndpointSlices, some time after the kubelet has reported it as Ready; the
routing table changes at once. If a picker names a replica that its gateway does not know, the gateway selects any
other, which may serve another prompt. So a replica of an InferencePool is added to the table only after it has been
Ready for some time, unless no other one could serve.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from promptgroup_operator.world.snapshot import Pod, RevisionState

SETTLING = timedelta(seconds=3)
"""Age of Ready after which gateways have received a pod. Its time has whole seconds, so that it is at least two
seconds: for EndpointSlices, for the gateway's control plane or its DNS lookups, and for the update of proxies."""


def mark(
    revisions: Sequence[RevisionState], routed: frozenset[str], named: frozenset[str], now: datetime
) -> tuple[RevisionState, ...]:
    """Return the revisions with the pods marked that settle.

    Args:
        revisions: those of a group whose replicas are in an InferencePool.
        routed: pods that routers send to, by the PromptRoute as it stands.
        named: pods that it names: what was offered stays so, and drains in its time.
        now: the time.
    """
    if not any(pod.is_warm and pod.name in routed for revision in revisions for pod in revision.pods):
        return tuple(revisions)
    return tuple(
        replace(revision, pods=tuple(replace(pod, settling=_settles(pod, named, now)) for pod in revision.pods))
        for revision in revisions
    )


def _settles(pod: Pod, named: frozenset[str], now: datetime) -> bool:
    if not pod.is_warm or pod.name in named:
        return False
    # a node's clock that is far ahead does not keep its pods out
    return pod.ready_since is None or abs(now - pod.ready_since) < SETTLING
