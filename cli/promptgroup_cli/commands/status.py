"""`promptgroup status`: show groups, their revisions and slots, and what they wait for."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from promptgroup_cli.base.errors import ExitStatus, InputError, exit_statuses
from promptgroup_cli.base.flags import add_cluster, add_output, cluster_choice
from promptgroup_cli.base.text import columns, counted, fact, facts
from promptgroup_cli.reach.connect import ClusterConnection, Manifest
from promptgroup_cli.reach.hit_rates import share_of, status_hit_rate
from promptgroup_contract import names
from promptgroup_contract.fingerprint import short
from promptgroup_contract.names import HIT_RATE_SECONDS

if TYPE_CHECKING:
    from promptgroup_cli.reach.group_status import GroupStatus, RevisionRow, SlotRow, StartRow, Statement


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's description and flags."""
    parser.description = "Show one PromptGroup in detail, or all of a namespace with a line each."
    parser.epilog = exit_statuses("every group shown is Ready for its present spec", "a group shown is not Ready")
    parser.add_argument("name", nargs="?", metavar="NAME", help="PromptGroup to show (default: all)")
    where = parser.add_mutually_exclusive_group()
    add_cluster(parser, where)
    where.add_argument("-A", "--all-namespaces", action="store_true", help="show the groups of all namespaces")
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    with ClusterConnection(cluster_choice(arguments)) as cluster:
        namespace = "" if arguments.all_namespaces else cluster.namespace
        groups = _read(cluster, namespace, arguments.name)
    if arguments.output == "json":
        print(document(groups))
    elif groups:
        print(table(groups, namespaces=arguments.all_namespaces))
    else:
        print(f"no PromptGroups in {f'namespace {namespace}' if namespace else 'any namespace'}", file=sys.stderr)
    return ExitStatus.OK if all(group.ready for group in groups) else ExitStatus.NEGATIVE


def _read(cluster: ClusterConnection, namespace: str, name: str | None) -> list[GroupStatus]:
    """Return the groups with their routes and pods, by namespace and name.

    Raises:
        InputError: there is no group of that name.
        ReachError: the cluster does not answer.
    """
    groups = cluster.list("PromptGroup", namespace, name=name or "")
    if name is not None and not groups:
        where = f"in namespace {namespace}: `promptgroup status -A` lists all" if namespace else "in any namespace"
        raise InputError(f"there is no PromptGroup {name} {where}")
    routes = {
        _key(prompt_route): prompt_route for prompt_route in cluster.list("PromptRoute", namespace, name=name or "")
    }
    labels = f"{names.LABEL_GROUP}={name}" if name is not None else names.LABEL_GROUP
    pods = cluster.list("Pod", namespace, labels=labels) if groups else []
    # pydantic's models take half a second to import, which a kubeconfig that cannot be used need not cost
    from promptgroup_cli.reach.group_status import group_status  # noqa: PLC0415

    now = datetime.now(UTC)
    return [
        group_status(
            group,
            routes.get(_key(group)),
            [pod for pod in pods if _belongs(pod) == _key(group)],
            cluster.kubectl,
            now,
        )
        for group in sorted(groups, key=_key)
    ]


def _key(manifest: Manifest) -> tuple[str, str]:
    return manifest["metadata"]["namespace"], manifest["metadata"]["name"]


def _belongs(pod: Manifest) -> tuple[str, str]:
    return pod["metadata"]["namespace"], pod["metadata"]["labels"][names.LABEL_GROUP]


WHY_SO_MANY = "ScalingActive"
"""Condition that the text has in a fact of its own."""
LEAVING = frozenset({"Superseded", "RolledBack", "Retiring"})
"""Phases of revisions whose replicas are not sized: a release keeps them for a time."""
_HEADS = ("NAME", "READY", "REVISION", "WARM", "REPLICAS", "HIT RATE", "STATUS")


def table(groups: Sequence[GroupStatus], *, namespaces: bool) -> str:
    """Return the text for people: one group in detail, several with a line each."""
    if len(groups) == 1:
        return "\n".join(_one(groups[0]))
    rows = [_HEADS, *map(_row, groups)]
    if namespaces:
        rows = [
            ("NAMESPACE", *rows[0]),
            *((group_status.key.namespace, *row) for group_status, row in zip(groups, rows[1:], strict=True)),
        ]
    return "\n".join(columns(rows))


def document(groups: Sequence[GroupStatus]) -> str:
    """Return the JSON for programs."""
    return json.dumps({"groups": [_group(group) for group in groups]}, indent=2)


# --- several -----------------------------------------------------------------------------------------------


def _row(group: GroupStatus) -> tuple[str, ...]:
    first = group.statements[0] if group.statements else None
    return (
        group.key.name,
        "True" if group.ready else "False",
        group.revision or "-",
        group.warm or "-",
        str(group.replicas),
        group.hit_rate or "-",
        _brief(first) if first is not None else "Ready" if group.ready else "-",
    )


def _brief(statement: Statement) -> str:
    return f"{statement.words} ({statement.reason})"


# --- one ---------------------------------------------------------------------------------------------------


def _one(group: GroupStatus) -> Iterator[str]:
    aliases = f", also {', '.join(group.aliases)}" if group.aliases else ""
    adapter = f", adapter {group.adapter}" if group.adapter else ""
    served = f"model {group.model}{adapter}{aliases}"
    yield from fact("Group", f"{group.key.namespace}/{group.key.name} ({served}){_hosted(group)}{_served(group)}")
    held = [statement for statement in group.statements if statement.holds]
    if not held:
        yield from fact("Ready" if group.ready else "Not ready", "yes" if group.ready else "the reason is not known")
    yield from facts("Not ready", map(_sentence, held))
    notes = [statement for statement in group.statements if not statement.holds and statement.condition != WHY_SO_MANY]
    yield from facts("Note", (f"{note.words}: {_sentence(note)}" for note in notes))
    warm = f" ({group.warm} warm)" if group.warm else ""
    yield from fact("Replicas", f"{group.replicas}{warm}")
    if group.sizing.message:
        limits = f" (min {group.sizing.least}, max {group.sizing.most})" if group.sizing.most is not None else ""
        left = [revision for revision in group.revisions if revision.phase in LEAVING and revision.replicas]
        count = counted(max(group.replicas - sum(revision_row.replicas for revision_row in left), 0), "replica")
        more = "".join(
            f"; {revision_row.replicas} more of the old revision {short(revision_row.fingerprint)}"
            for revision_row in left
        )
        yield from fact("Sizing", f"{count}{limits}; {group.sizing.message} ({group.sizing.reason}){more}")
    yield from facts("Starting", map(_starting, group.starting))
    if group.start:
        phases = ", ".join(f"{phase} {seconds} s" for phase, seconds in group.start["phaseSeconds"].items())
        yield from fact("Starts", f"{group.start['seconds']} s; the latest: {phases}")
    if group.prefetch:
        yield from fact("Weights", f"on {group.prefetch['ready']} of {counted(group.prefetch['nodes'], 'node')}")
    yield from fact("Hit rate", status_hit_rate(share_of(group.hit_rate)))
    if group.revisions:
        yield ""
        heads = ("REVISION", "PHASE", "WEIGHT", "REPLICAS", "WARM", "READY")
        yield from columns([heads, *map(_revision, group.revisions)])
    slots = [(revision, slot) for revision in group.revisions for slot in revision.slots]
    if slots:
        yield ""
        heads = ("REVISION", "SLOT", "POD", "STATE", "PREFIX WARM", "REASON")
        yield from columns([heads, *(_slot(revision, slot) for revision, slot in slots)])


def _starting(row: StartRow) -> str:
    return f"{row.pod}: {row.phase}" + (f" for {row.seconds} s" if row.seconds is not None else "")


def _hosted(group: GroupStatus) -> str:
    return f", a guest on replicas of PromptGroup {group.host}" if group.host else ""


def _served(group: GroupStatus) -> str:
    """Return who serves, with the share of new sessions, while more than one revision has replicas; else nothing."""
    if sum(revision.replicas > 0 for revision in group.revisions) < 2:
        return ""
    serving = [revision for revision in group.revisions if revision.weight and revision.ready]
    shares = [f"{short(revision_row.fingerprint)} ({revision_row.weight} %)" for revision_row in serving]
    return f", served by {' and '.join(shares) or 'nobody'}"


def _sentence(statement: Statement) -> str:
    return f"{statement.message or statement.words} ({statement.reason})"


def _revision(revision: RevisionRow) -> tuple[str, ...]:
    numbers = (revision.weight, revision.replicas, revision.warm, revision.ready)
    return short(revision.fingerprint), revision.phase or "-", *map(str, numbers)


def _slot(revision: RevisionRow, slot: SlotRow) -> tuple[str, ...]:
    number = str(slot.slot) if slot.slot is not None else "-"
    # a warm replica's message has figures that add nothing to its reason
    reason = slot.reason if slot.warm == "True" else f"{slot.reason}: {slot.message}" if slot.reason else "-"
    return short(revision.fingerprint), number, slot.pod or "-", slot.state, slot.warm or "-", reason


# --- JSON --------------------------------------------------------------------------------------------------


def _group(group: GroupStatus) -> dict[str, Any]:
    sizing = group.sizing
    return {
        "namespace": group.key.namespace,
        "name": group.key.name,
        "model": group.model,
        "modelAliases": list(group.aliases),
        "adapter": group.adapter or None,
        "engineFrom": group.host or None,
        "ready": group.ready,
        "revision": group.revision or None,
        "warm": group.warm or None,
        "replicas": group.replicas,
        "hitRate": share_of(group.hit_rate),
        "hitRateSeconds": HIT_RATE_SECONDS,
        "sizing": {"min": sizing.least, "max": sizing.most, "reason": sizing.reason, "message": sizing.message},
        "starting": [{"pod": row.pod, "phase": row.phase, "seconds": row.seconds} for row in group.starting],
        "start": dict(group.start) or None,
        "prefetch": dict(group.prefetch) or None,
        "waitsFor": [_statement(statement) for statement in group.statements if statement.holds],
        "notes": [_statement(statement) for statement in group.statements if not statement.holds],
        "revisions": [
            {
                "fingerprint": revision.fingerprint,
                "phase": revision.phase or None,
                "weight": revision.weight,
                "replicas": revision.replicas,
                "warm": revision.warm,
                "ready": revision.ready,
                "slots": [_held(slot) for slot in revision.slots],
            }
            for revision in group.revisions
        ],
    }


def _statement(statement: Statement) -> dict[str, Any]:
    return {
        "condition": statement.condition or None,
        "reason": statement.reason,
        "meaning": statement.words,
        "message": statement.message,
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
