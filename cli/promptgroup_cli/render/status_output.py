"""What is told of PromptGroups as text, or as JSON. Pure."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from promptgroup_cli.reach.group_status import GroupStatus, RevisionRow, SlotRow, Statement
from promptgroup_cli.render.columns import columns, fact
from promptgroup_router.contract.fingerprint import short

WHY_SO_MANY = "ScalingActive"
"""Condition that one group's text has in a fact of its own."""
_HEADS = ("NAME", "READY", "REVISION", "WARM", "REPLICAS", "HIT RATE", "WAITS FOR")


def table(groups: Sequence[GroupStatus], *, namespaces: bool) -> str:
    """For people: one group with all that is known, several with a line each."""
    if len(groups) == 1:
        return "\n".join(_one(groups[0]))
    rows = [_HEADS, *map(_row, groups)]
    if namespaces:
        rows = [
            ("NAMESPACE", *rows[0]),
            *((each.key.namespace, *row) for each, row in zip(groups, rows[1:], strict=True)),
        ]
    return "\n".join(columns(rows))


def document(groups: Sequence[GroupStatus]) -> str:
    """For programs."""
    return json.dumps({"groups": [_group(each) for each in groups]}, indent=2)


# --- several -----------------------------------------------------------------------------------------------


def _row(group: GroupStatus) -> tuple[str, ...]:
    first = group.said[0] if group.said else None
    return (
        group.key.name,
        "True" if group.ready else "False",
        group.revision or "-",
        group.warm or "-",
        str(group.replicas),
        group.hit_rate or "-",
        _brief(first) if first is not None else "-",
    )


def _brief(said: Statement) -> str:
    return f"{said.words} ({said.reason})" if said.holds else f"nothing; {said.words} ({said.reason})"


# --- one ---------------------------------------------------------------------------------------------------


def _one(group: GroupStatus) -> Iterator[str]:
    yield from fact("group", f"{group.key.namespace}/{group.key.name}, model {group.model}")
    yield from fact("ready", "yes" if group.ready else "no")
    held = [each for each in group.said if each.holds]
    for number, each in enumerate(held):
        yield from fact("waits for" if number == 0 else "", _sentence(each))
    notes = [each for each in group.said if not each.holds and each.condition != WHY_SO_MANY]
    for number, each in enumerate(notes):
        yield from fact("note" if number == 0 else "", _sentence(each))
    yield from fact("replicas", f"{group.replicas}, warm {group.warm or '-'}")
    if group.sizing.message:
        bounds = f"sizing, {group.sizing.least} to {group.sizing.most}: " if group.sizing.most is not None else ""
        yield from fact("why so many", f"{bounds}{group.sizing.message} ({group.sizing.reason})")
    yield from fact("hit rate", group.hit_rate or "not known")
    if group.revisions:
        yield ""
        yield from columns(
            [("REVISION", "PHASE", "WEIGHT", "REPLICAS", "WARM", "READY"), *map(_revision, group.revisions)]
        )
    slots = [(each, slot) for each in group.revisions for slot in each.slots]
    if slots:
        yield ""
        heads = ("REVISION", "SLOT", "POD", "STATE", "PREFIX WARM", "WHY")
        yield from columns([heads, *(_slot(revision, slot) for revision, slot in slots)])


def _sentence(said: Statement) -> str:
    return f"{said.words} ({said.reason}): {said.message}"


def _revision(revision: RevisionRow) -> tuple[str, ...]:
    numbers = (revision.weight, revision.replicas, revision.warm, revision.ready)
    return short(revision.fingerprint), revision.phase or "-", *map(str, numbers)


def _slot(revision: RevisionRow, slot: SlotRow) -> tuple[str, ...]:
    number = str(slot.slot) if slot.slot is not None else "-"
    # a warm replica's message has figures that say no more than its reason
    why = slot.reason if slot.warm == "True" else f"{slot.reason}: {slot.message}" if slot.reason else "-"
    return short(revision.fingerprint), number, slot.pod or "-", slot.state, slot.warm or "-", why


# --- JSON --------------------------------------------------------------------------------------------------


def _group(group: GroupStatus) -> dict[str, Any]:
    sizing = group.sizing
    return {
        "namespace": group.key.namespace,
        "name": group.key.name,
        "model": group.model,
        "ready": group.ready,
        "revision": group.revision or None,
        "warm": group.warm or None,
        "replicas": group.replicas,
        "hitRate": int(group.hit_rate.removesuffix("%")) / 100 if group.hit_rate else None,
        "sizing": {"min": sizing.least, "max": sizing.most, "reason": sizing.reason, "message": sizing.message},
        "waitsFor": [_said(each) for each in group.said if each.holds],
        "notes": [_said(each) for each in group.said if not each.holds],
        "revisions": [
            {
                "fingerprint": each.fingerprint,
                "phase": each.phase or None,
                "weight": each.weight,
                "replicas": each.replicas,
                "warm": each.warm,
                "ready": each.ready,
                "slots": [_held(slot) for slot in each.slots],
            }
            for each in group.revisions
        ],
    }


def _said(said: Statement) -> dict[str, Any]:
    return {
        "condition": said.condition or None,
        "reason": said.reason,
        "meaning": said.words,
        "message": said.message,
    }


def _held(slot: SlotRow) -> dict[str, Any]:
    return {
        "slot": slot.slot,
        "pod": slot.pod or None,
        "state": slot.state,
        "warm": slot.warm or None,
        "reason": slot.reason or None,
        "message": slot.message or None,
    }
