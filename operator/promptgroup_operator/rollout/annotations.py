"""Encodes and decodes the state of a revision in annotations of its Deployment.

A value that cannot be parsed was not written by the operator, and counts as absent.
"""

import json
from collections.abc import Mapping
from datetime import datetime

from promptgroup_operator.base.timestamps import parse_time, rfc3339
from promptgroup_operator.world.snapshot import Problem, Progress, RolledBack

SUPERSEDED = "promptgroup.dev/superseded-at"
"""Time at which another revision took its place."""
STEP = "promptgroup.dev/release-step"
"""Weight of the step that its release has come to, 0 before the first; there from its creation until it took over with
a warm replica."""
STEP_SINCE = "promptgroup.dev/release-step-since"
"""Time at which that weight stood in the route."""
STEP_GROWS = "promptgroup.dev/release-step-grows"
"""Time since which the revision has some weight on the way to that of its step; not there once that is passed."""
ROLLED_BACK = "promptgroup.dev/rolled-back"
"""JSON: when and why it was taken back (`at`, `reason`, `message`), and with which engine `settings`. Remove it to try
the revision again."""
SIZE = "promptgroup.dev/size"
"""Replicas that the group wanted, where the operator decides them."""


def encode(
    superseded_at: datetime | None, progress: Progress | None, rolled_back: RolledBack | None, size: int | None
) -> dict[str, str]:
    """Encode the state of a revision as annotations."""
    result: dict[str, str] = {}
    if superseded_at is not None:
        result[SUPERSEDED] = rfc3339(superseded_at)
    if progress is not None:
        result[STEP] = str(progress.weight)
        if progress.since is not None:
            result[STEP_SINCE] = rfc3339(progress.since)
        if progress.grows is not None:
            result[STEP_GROWS] = rfc3339(progress.grows)
    if rolled_back is not None:
        fields = {
            "at": rfc3339(rolled_back.at),
            "settings": rolled_back.settings,
            "reason": rolled_back.why.reason,
            "message": rolled_back.why.message,
        }
        result[ROLLED_BACK] = json.dumps(fields, separators=(",", ":"))
    if size is not None:
        result[SIZE] = str(size)
    return result


def superseded_at(annotations: Mapping[str, str]) -> datetime | None:
    """Return the time at which another revision replaced it."""
    return parse_time(annotations.get(SUPERSEDED))


def progress(annotations: Mapping[str, str]) -> Progress | None:
    """Return the progress of its release; None without a release."""
    weight = _whole(annotations.get(STEP, ""))
    if weight is None:
        return None
    return Progress(weight, parse_time(annotations.get(STEP_SINCE)), parse_time(annotations.get(STEP_GROWS)))


def rolled_back(annotations: Mapping[str, str]) -> RolledBack | None:
    """Return the record of its rollback; None without one."""
    try:
        data = json.loads(annotations.get(ROLLED_BACK, ""))
    except (ValueError, RecursionError):
        return None
    texts = {key: text for key, text in data.items() if isinstance(text, str)} if isinstance(data, dict) else {}
    at = parse_time(texts.get("at"))
    if at is None:
        return None
    reason, message, settings = (texts.get(key, "") for key in ("reason", "message", "settings"))
    return RolledBack(at, settings, Problem(reason, message))


def size(annotations: Mapping[str, str]) -> int | None:
    """Return the replicas that the group wanted."""
    return _whole(annotations.get(SIZE, ""))


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 7 else None
