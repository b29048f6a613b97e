"""`promptgroup plan FILE`: show the objects, and each step of a release or scale change, without a cluster.

The operator's own planner decides; the cluster is simulated, and the output states what it is assumed to do.
"""

import argparse
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import yaml

from promptgroup_cli.base.errors import ExitStatus, InputError, RefusedError
from promptgroup_cli.reach.files import MANIFEST_BYTES, read_text, shown
from promptgroup_cli.rehearsal import manifest, simulate, timeline
from promptgroup_cli.rehearsal.manifest import ManifestError, ManifestRefused, Wanted
from promptgroup_cli.rehearsal.simulated_cluster import SimulatedCluster, SimulatedPace
from promptgroup_cli.rehearsal.simulated_guest import SimulatedGuest
from promptgroup_cli.render import plan_output
from promptgroup_cli.render.plan_output import WIDTH
from promptgroup_operator.world.snapshot import Manifest, World
from promptgroup_router.contract.names import ANNOTATION_APPLIED


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    for line in lines(arguments, datetime.now(UTC).replace(microsecond=0)):
        print(line, flush=True)
    return ExitStatus.OK


def lines(arguments: argparse.Namespace, now: datetime) -> Iterator[str]:
    """Yield the output line by line: a long plan is read while it is made.

    Raises:
        InputError: a file cannot be used.
        RefusedError: the API server would refuse the group, or the plan never ends.
    """
    old = _read(arguments.old, arguments.namespace, now) if arguments.old is not None else None
    new = _read(arguments.file, arguments.namespace, now, old)
    if arguments.judge == "fail" and (old is None or not new.group.spec.rollout.steps):
        raise InputError(
            f"{arguments.file}: --judge fail needs --from and spec.rollout.steps, else nothing is analysed"
        )
    pace = SimulatedPace(timedelta(seconds=arguments.warm_seconds), worse=arguments.judge == "fail")
    try:
        yield from _objects(old, new, pace, now) if arguments.objects else _table(old, new, pace, now)
    except simulate.UnsettledError as error:
        raise RefusedError(f"{shown(arguments.file)}: the plan never ends: {error}") from None


def _read(name: str, namespace: str, now: datetime, old: Wanted | None = None) -> Wanted:
    content = read_text(name, MANIFEST_BYTES)
    try:
        wanted = manifest.read_group(content, namespace, now, old.group.spec if old is not None else None)
    except ManifestRefused as error:
        raise RefusedError(f"{shown(name)}: {error}") from None
    except ManifestError as error:
        raise InputError(f"{shown(name)}: {error}") from None
    if old is not None and wanted.group.key != old.group.key:
        new, applied = (f"{key.namespace}/{key.name}" for key in (wanted.group.key, old.group.key))
        raise InputError(
            f"{shown(name)}: it has PromptGroup {new}, but --from has {applied}: use the same name in both"
        )
    for warning in wanted.warnings:
        print(f"warning: {shown(name)}: {warning}", file=sys.stderr)
    return wanted


def _start(
    old: Wanted | None, new: Wanted, pace: SimulatedPace, now: datetime
) -> tuple[World | None, SimulatedCluster]:
    """Return the world before the change, and the cluster at the moment when the file is applied."""
    kind = SimulatedGuest if new.group.spec.is_guest else SimulatedCluster
    if old is None:
        return None, kind(new.group, new.text, pace, now)
    cluster = kind(old.group, old.text, pace, now)
    for _ in simulate.run(cluster):
        pass
    before = cluster.world()
    cluster.change(new.group, new.text)
    return before, cluster


def _table(old: Wanted | None, new: Wanted, pace: SimulatedPace, now: datetime) -> Iterator[str]:
    yield from plan_output.heading(old, new, pace)
    before, cluster = _start(old, new, pace, now)
    start, most, end = cluster.now, 0, cluster.world()
    columns = list(dict.fromkeys(each.text.fingerprint for each in (old, new) if each is not None))
    yield from plan_output.head(columns)
    for chapter in timeline.chapters(before, simulate.run(cluster), start):
        yield from plan_output.row(chapter, columns)
        most, end = max(most, plan_output.pods(chapter.world)), chapter.world
    yield from plan_output.ending(end, most, cluster.now - start)


# --- the objects -------------------------------------------------------------------------------------------


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def _objects(old: Wanted | None, new: Wanted, pace: SimulatedPace, now: datetime) -> Iterator[str]:
    """Yield the objects at the end, without the PromptRoute, which names pods."""
    _, cluster = _start(old, new, pace, now)
    for _ in simulate.run(cluster):
        pass
    live = cluster.world().live
    for (kind, _name), live_object in sorted(live.items()):
        if kind == "PromptRoute":
            continue
        yield "---"
        if kind == "Secret":
            yield "# data: from a Secret, not shown"
        yield from yaml.dump(_bare(live_object), Dumper=_Dumper, sort_keys=False, width=WIDTH).splitlines()


_OF_A_CLUSTER = ("uid", "creationTimestamp", "ownerReferences")
"""Fields of metadata that only a cluster sets; owners are named by their uid."""


def _bare(live_object: Manifest) -> dict[str, Any]:
    """Return an object as the operator applies it, without the fields of a cluster and without a Secret's text."""
    metadata = {key: value for key, value in live_object["metadata"].items() if key not in _OF_A_CLUSTER}
    metadata["annotations"] = {key: text for key, text in metadata["annotations"].items() if key != ANNOTATION_APPLIED}
    hidden = ("data",) if live_object["kind"] == "Secret" else ()
    bare = {key: value for key, value in live_object.items() if key not in hidden}
    return bare | {"metadata": {key: value for key, value in metadata.items() if value}}
