"""`promptgroup plan FILE`: what would be created, each step of a release or scale change, without a cluster.

The operator's own planner decides; the cluster that it decides for is an ideal one, and the output says what that is
assumed to do.
"""

import argparse
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from promptgroup_cli.rehearsal import manifest, simulate, timeline
from promptgroup_cli.rehearsal.manifest import ManifestError, Wanted
from promptgroup_cli.rehearsal.simulated_cluster import SimulatedCluster, SimulatedPace
from promptgroup_cli.render import plan_output
from promptgroup_cli.render.plan_output import WIDTH
from promptgroup_operator.world.snapshot import Manifest, World
from promptgroup_router.contract.names import ANNOTATION_APPLIED

LONGEST_START = 24 * 3600
"""Seconds: a replica that takes a day to start is a mistake."""


class PlanError(Exception):
    """There is no plan. The message names the file, what is wrong, and the way out."""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command and its flags."""
    parser = commands.add_parser("plan", help="print what would be done about a PromptGroup, without a cluster")
    add_flags(parser)
    parser.set_defaults(run=lambda arguments: _run(parser.prog, arguments))


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The command's flags."""
    parser.add_argument("file", metavar="FILE", help="PromptGroup to apply, as kubectl takes it; - for standard input")
    parser.add_argument(
        "--from", dest="old", metavar="OLD_FILE", help="the PromptGroup that stands; default: none does"
    )
    parser.add_argument("--objects", action="store_true", help="print the objects instead, as YAML")
    parser.add_argument("--judge", choices=("pass", "fail"), default="pass", help="what the steps' judge finds")
    parser.add_argument(
        "--warm-seconds", type=_seconds, default=60, metavar="N", help="from a pod's creation to its warmth; 60"
    )
    parser.add_argument("-n", "--namespace", default="default", help="where objects go that name none")


def _run(prog: str, arguments: argparse.Namespace) -> int:
    try:
        for line in lines(arguments, datetime.now(UTC).replace(microsecond=0)):
            print(line, flush=True)
    except PlanError as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return 1
    return 0


def _seconds(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= LONGEST_START:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to {LONGEST_START}")
    return int(text)


def lines(arguments: argparse.Namespace, now: datetime) -> Iterator[str]:
    """The output, line by line: a long plan is read while it is made.

    Raises:
        PlanError: there is none.
    """
    old = _read(arguments.old, arguments.namespace, now) if arguments.old is not None else None
    new = _read(arguments.file, arguments.namespace, now, old)
    if arguments.judge == "fail" and (old is None or not new.group.spec.rollout.steps):
        raise PlanError(f"{arguments.file}: --judge fail: nothing is judged without --from and spec.rollout.steps")
    pace = SimulatedPace(timedelta(seconds=arguments.warm_seconds), worse=arguments.judge == "fail")
    try:
        yield from _objects(old, new, pace, now) if arguments.objects else _table(old, new, pace, now)
    except simulate.UnsettledError as error:
        raise PlanError(f"{arguments.file}: the plan does not settle: {error}") from None


def _read(name: str, namespace: str, now: datetime, old: Wanted | None = None) -> Wanted:
    try:
        content = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
        wanted = manifest.read(content, namespace, now, old.group.spec if old is not None else None)
    except OSError as error:
        raise PlanError(f"{name}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise PlanError(f"{name}: not text in UTF-8") from None
    except ManifestError as error:
        raise PlanError(f"{name}: {error}") from None
    if old is not None and wanted.group.key != old.group.key:
        keys = (f"{key.namespace}/{key.name}" for key in (wanted.group.key, old.group.key))
        raise PlanError(f"{name}: it is PromptGroup {next(keys)}, the one that stands {next(keys)}: name the same one")
    for warning in wanted.warnings:
        print(f"warning: {name}: {warning}", file=sys.stderr)
    return wanted


def _start(
    old: Wanted | None, new: Wanted, pace: SimulatedPace, now: datetime
) -> tuple[World | None, SimulatedCluster]:
    """What stands before, and the cluster at the moment when the file is applied."""
    if old is None:
        return None, SimulatedCluster(new.group, new.text, pace, now)
    cluster = SimulatedCluster(old.group, old.text, pace, now)
    for _ in simulate.run(cluster):
        pass
    before = cluster.world()
    cluster.change(new.group, new.text)
    return before, cluster


def _table(old: Wanted | None, new: Wanted, pace: SimulatedPace, now: datetime) -> Iterator[str]:
    yield from plan_output.heading(old, new, pace)
    before, cluster = _start(old, new, pace, now)
    start, most, end = cluster.now, 0, cluster.world()
    shown = list(dict.fromkeys(each.text.fingerprint for each in (old, new) if each is not None))
    yield from plan_output.head(shown)
    for chapter in timeline.chapters(before, simulate.run(cluster), start):
        yield from plan_output.row(chapter, shown)
        most, end = max(most, plan_output.pods(chapter.world)), chapter.world
    yield from plan_output.ending(end, most, cluster.now - start)


# --- the objects -------------------------------------------------------------------------------------------


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as they are read."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def _objects(old: Wanted | None, new: Wanted, pace: SimulatedPace, now: datetime) -> Iterator[str]:
    """The objects as they stand in the end, but for what names pods: the PromptRoute."""
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
"""Fields of metadata; owners are named by their uid."""


def _bare(live_object: Manifest) -> dict[str, Any]:
    """What the operator applies, without what only a cluster knows and without a Secret's text."""
    metadata = {key: value for key, value in live_object["metadata"].items() if key not in _OF_A_CLUSTER}
    metadata["annotations"] = {key: text for key, text in metadata["annotations"].items() if key != ANNOTATION_APPLIED}
    hidden = ("data",) if live_object["kind"] == "Secret" else ()
    bare = {key: value for key, value in live_object.items() if key not in hidden}
    return bare | {"metadata": {key: value for key, value in metadata.items() if value}}
