"""Decides which replicas drain because their node is about to go.

Their slots leave the ring, so that no new request begins where it would be cut off. Nothing is evicted or deleted: that
is up to the program that removes the node, and the Deployment replaces the replica then.
"""

from collections.abc import Sequence
from dataclasses import replace

from promptgroup_operator.world.snapshot import Pod, Problem, RevisionState

NODE_LEAVING = "NodeLeaving"
"""Reason of a replica that drains because its node is about to go."""


def mark(revisions: Sequence[RevisionState]) -> tuple[RevisionState, ...]:
    """Return the revisions with the replicas marked that drain.

    A revision of which more replicas are to go than stay drains none of them: the few that stay could not serve all
    requests, and those that go can until they are deleted.
    """
    if not any(pod.node_taint for revision in revisions for pod in revision.pods):
        return tuple(revisions)
    return tuple(_marked(revision) for revision in revisions)


def why(pod: Pod) -> Problem:
    """Return the reason why an evacuated replica takes no requests."""
    text = f"pod {pod.name} drains, since its node has the taint {pod.node_taint}; it is replaced once it is deleted"
    return Problem(NODE_LEAVING, text)


def _marked(revision: RevisionState) -> RevisionState:
    warm = [pod for pod in revision.pods if pod.is_warm]
    going = {pod.uid for pod in warm if pod.node_taint}
    stay = sum(not pod.node_taint and not pod.settling for pod in warm)
    if not going or stay < len(going):
        return revision
    return replace(
        revision, pods=tuple(replace(pod, evacuated=True) if pod.uid in going else pod for pod in revision.pods)
    )
