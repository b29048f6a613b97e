"""`promptgroup plan FILE`: show the objects, and each step of a release or scale change, without a cluster.

The operator's own planner decides; the cluster is simulated, and the output states what it is assumed to do.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from promptgroup_cli.base.errors import ExitStatus, InputError, RefusedError, exit_statuses
from promptgroup_cli.base.flags import whole_number
from promptgroup_cli.reach.files import MANIFEST_BYTES, read_text, shown

if TYPE_CHECKING:
    from promptgroup_cli.rehearsal.manifest import Wanted

LONGEST_START = 24 * 3600
"""Seconds; a replica that takes a day to start is a mistake."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's description and flags."""
    parser.description = (
        "Show each step by which a PromptGroup is created, released or scaled. The operator's own\n"
        "planner decides; the cluster is simulated, and the output states what it is assumed to do."
    )
    parser.epilog = exit_statuses(
        "the steps or objects were printed", "the API server would refuse the PromptGroup, or the plan never ends"
    )
    parser.add_argument("file", metavar="FILE", help="PromptGroup to apply, as kubectl takes it; - for standard input")
    parser.add_argument(
        "--from", dest="old", metavar="OLD_FILE", help="PromptGroup that is applied already (default: none is)"
    )
    parser.add_argument("--objects", action="store_true", help="print the objects as YAML instead of the steps")
    parser.add_argument(
        "--judge", choices=("pass", "fail"), default="pass", help="result of the analysis at each step (default: pass)"
    )
    parser.add_argument(
        "--warm-seconds",
        type=whole_number(1, LONGEST_START),
        default=60,
        metavar="N",
        help="time from a pod's creation until it is warm (default: 60)",
    )
    parser.add_argument(
        "-n",
        "--namespace",
        default="default",
        metavar="NS",
        help="namespace of objects that name none (default: default)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    for line in lines(arguments, datetime.now(UTC).replace(microsecond=0)):
        print(line, flush=True)
    return ExitStatus.OK


def lines(arguments: argparse.Namespace, now: datetime) -> Iterator[str]:
    """Yield the output line by line: a long plan is read while it is made.

    Raises:
        InputError: a file cannot be used.
        RefusedError: the API server would refuse the group, or the plan never ends; in the first case after the plan
            where it can be made without what is refused.
    """
    # the models of the CRD and YAML take a third of a second to import, which `--help` does without
    from promptgroup_cli.rehearsal import report, simulate  # noqa: PLC0415
    from promptgroup_cli.rehearsal.simulated_cluster import SimulatedPace  # noqa: PLC0415

    old = _read(arguments.old, arguments.namespace, now) if arguments.old is not None else None
    new = _read(arguments.file, arguments.namespace, now, old)
    if arguments.judge == "fail" and (old is None or not new.group.spec.rollout.steps):
        raise InputError(
            f"{arguments.file}: --judge fail needs --from and spec.rollout.steps, else nothing is analysed"
        )
    pace = SimulatedPace(timedelta(seconds=arguments.warm_seconds), worse=arguments.judge == "fail")
    try:
        yield from report.objects(old, new, pace, now) if arguments.objects else report.steps(old, new, pace, now)
    except simulate.UnsettledError as error:
        raise RefusedError(f"{shown(arguments.file)}: the plan never ends: {error}") from None
    if new.unknown:
        raise RefusedError(f"{shown(arguments.file)}: {'; '.join(new.unknown)}")


def _read(name: str, namespace: str, now: datetime, old: Wanted | None = None) -> Wanted:
    from promptgroup_cli.rehearsal import manifest  # noqa: PLC0415 - as above

    content = read_text(name, MANIFEST_BYTES)
    try:
        desired = manifest.read_group(content, namespace, now, old.group.spec if old is not None else None)
    except manifest.ManifestRefused as error:
        raise RefusedError(f"{shown(name)}: {error}") from None
    except manifest.ManifestError as error:
        raise InputError(f"{shown(name)}: {error}") from None
    if old is not None and desired.group.key != old.group.key:
        new, applied = (f"{key.namespace}/{key.name}" for key in (desired.group.key, old.group.key))
        raise InputError(
            f"{shown(name)}: it has PromptGroup {new}, but --from has {applied}: use the same name in both"
        )
    for warning in desired.warnings:
        print(f"warning: {shown(name)}: {warning}", file=sys.stderr)
    return desired
