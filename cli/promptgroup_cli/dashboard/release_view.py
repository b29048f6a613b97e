"""Builds the view of a release: its steps, the figures of both revisions, and the operator's messages about them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from promptgroup_contract.fingerprint import Fingerprint, ShortFingerprint, short
from promptgroup_operator.base.timestamps import rfc3339
from promptgroup_operator.rollout import annotations
from promptgroup_operator.rollout.release import ALL, RevisionPhase, step_at
from promptgroup_operator.world.samples import Stratum, mean, quantile
from promptgroup_operator.world.snapshot import Manifest

UNDER_WAY = (RevisionPhase.COMING, RevisionPhase.CANARY, RevisionPhase.ROLLED_BACK)
"""Phases of a revision that is, or lately was, compared with the one that serves."""


def released(group: Manifest) -> Mapping[str, Any] | None:
    """Return the revision (as in the status) that a release is about; None where there is no release to show."""
    revisions: Sequence[Mapping[str, Any]] = group.get("status", {}).get("revisions", [])
    serving = any(revision.get("phase") == RevisionPhase.SERVING for revision in revisions)
    coming = next((revision for revision in revisions if revision.get("phase") in UNDER_WAY), None)
    return coming if serving else None


class ReleaseStep(NamedTuple):
    """The name of the step that a release is at: with another one its figures are counted anew."""

    fingerprint: str
    number: str
    since: str
    ended: bool
    """True once the revision was rolled back: the figures of its last step stay visible."""

    def continues(self, before: "ReleaseStep") -> bool:
        """Return True if the figures that are counted for another step are still those of this one."""
        return self == before or (self.ended and self.fingerprint == before.fingerprint)


def step_of(group: Manifest, deployments: Sequence[Manifest]) -> ReleaseStep | None:
    """Return the current step of a group's release; None without a release."""
    coming = released(group)
    if coming is None:
        return None
    noted = _annotations(coming, deployments)
    return ReleaseStep(
        str(coming["fingerprint"]),
        noted.get(annotations.STEP, ""),
        noted.get(annotations.STEP_SINCE, ""),
        coming["phase"] == RevisionPhase.ROLLED_BACK,
    )


def release_view(
    group: Manifest,
    deployments: Sequence[Manifest],
    since: datetime,
    totals: Mapping[ShortFingerprint, Stratum],
) -> dict[str, Any] | None:
    """Return the view of the group's release; None where there is none.

    Args:
        group: the PromptGroup.
        deployments: those of its revisions.
        since: time from which on `totals` counts.
        totals: short fingerprint → its requests of all kinds.
    """
    coming = released(group)
    if coming is None:
        return None
    noted = _annotations(coming, deployments)
    progress, back = annotations.progress(noted), annotations.rolled_back(noted)
    rollout = group["spec"].get("rollout", {})
    serving = next(
        revision for revision in group["status"]["revisions"] if revision.get("phase") == RevisionPhase.SERVING
    )
    weights = [*(int(step["weight"]) for step in rollout.get("steps", [])), ALL]
    at = step_at(weights, progress.weight) if progress is not None else 0
    return {
        "phase": str(coming["phase"]),
        "paused": bool(rollout.get("paused", False)),
        "steps": [
            {
                "weight": int(step["weight"]),
                "pause": str(step.get("pause", "")),
                "state": "failed" if back is not None and number == at else _state(number, at),
            }
            for number, step in enumerate(rollout.get("steps", []))
        ],
        "stepSince": rfc3339(progress.since) if progress is not None and progress.since is not None else None,
        "countedSince": rfc3339(since),
        "revisions": [_figures("new", coming, totals), _figures("old", serving, totals)],
        "opinion": _opinion(group, back.why.reason if back is not None else "", back.why.message if back else ""),
    }


def _state(number: int, at: int) -> str:
    return "done" if number < at else "current" if number == at else "ahead"


def _annotations(revision: Mapping[str, Any], deployments: Sequence[Manifest]) -> Mapping[str, str]:
    deployment = next((item for item in deployments if item["metadata"]["name"] == revision.get("deployment")), None)
    return deployment["metadata"].get("annotations", {}) if deployment is not None else {}


def _figures(role: str, revision: Mapping[str, Any], totals: Mapping[ShortFingerprint, Stratum]) -> dict[str, Any]:
    name = short(Fingerprint(revision["fingerprint"]))
    total = totals.get(name, Stratum())
    timed, cached = total.first_token, total.cached
    return {
        "role": role,
        "revision": name,
        "weight": int(revision["weight"]),
        "requests": round(total.requests),
        "failed": total.errors / total.requests if total.requests else None,
        "ttftP50": quantile(timed, 0.5) if timed.total else None,
        "ttftP95": quantile(timed, 0.95) if timed.total else None,
        "hitRate": mean(cached) if cached.total and cached.bounds else None,
    }


def _opinion(group: Manifest, reason: str, message: str) -> dict[str, str]:
    """Return the operator's message about the step: why it was rolled back, or which condition it waits for."""
    if not reason:
        conditions = {condition["type"]: condition for condition in group["status"].get("conditions", [])}
        progressing = conditions.get("Progressing", {})
        reason, message = str(progressing.get("reason", "")), str(progressing.get("message", ""))
    return {"reason": reason, "message": message}
