"""A rehearsal as lines to read: what is wanted, a row a step, what it comes to. Pure.

Text of a prompt is shown only when it stands in the PromptGroup itself, and only its beginning.
"""

import textwrap
from collections.abc import Iterator, Sequence
from datetime import timedelta

from promptgroup_cli.rehearsal import timeline
from promptgroup_cli.rehearsal.manifest import Wanted
from promptgroup_cli.rehearsal.simulated_cluster import IDLE_AFTER, SimulatedPace
from promptgroup_cli.rehearsal.timeline import Chapter
from promptgroup_operator.world.snapshot import World
from promptgroup_router.contract.fingerprint import short

WIDTH = 120
"""Columns of the table."""
TIME, REVISION, PODS = 10, 15, 6
"""Columns of the time, of each revision's figures, and of the replicas of all of them."""
RULE = "─" * WIDTH

QUOTED = 60
"""Characters of an inline prompt that are shown."""


def heading(old: Wanted | None, new: Wanted, pace: SimulatedPace) -> Iterator[str]:
    """What stands, what is wanted, what is assumed."""
    for word, each in (("stands", old), ("wanted", new)):
        if each is not None:
            yield f"{word:{TIME}}{_wanted(each)}"
            yield f"{'':{TIME}}{_prompt(each)}"
    warm, idle = clock(pace.warm_after), clock(IDLE_AFTER)
    yield f"{'assumed':{TIME}}a replica is warm {warm} after its creation, one that drains is idle after {idle}"
    if new.group.spec.rollout.steps:
        yield f"{'':{TIME}}the judge finds a new prompt {'worse' if pace.worse else 'no worse'} at each step"
    yield ""


def head(shown: Sequence[str]) -> Iterator[str]:
    """The table's columns.

    Args:
        shown: fingerprints of the revisions that have one.
    """
    yield _line("", "", [short(each) for each in shown], "")
    yield _line("time", "what happens", ["warm   weight" for _ in shown], "pods")
    yield RULE


def row(chapter: Chapter, shown: Sequence[str]) -> Iterator[str]:
    """A moment and what happens then; nothing when nothing does."""
    lines = [line for event in chapter.events for line in _wrapped(event, _room(len(shown)) - 2)]
    cells = [_standing(chapter.world, each) for each in shown]
    for first in lines[:1]:
        yield _line(f"+{clock(chapter.after)}", first, cells, str(pods(chapter.world)))
    for line in lines[1:]:
        yield f"{'':{TIME}}{line}"


def ending(end: World, most: int, took: timedelta) -> Iterator[str]:
    """What it comes to: the most pods at once, the time, and what it waits for, if anybody has to do something."""
    yield RULE
    yield f"at rest after {clock(took)}; most pods at once: {most}, those that terminate aside"
    for kind in ("Degraded", "Progressing"):
        found = timeline.said(end, kind)
        if found["status"] == "True":
            yield from _wrapped(f"{kind}, {found['reason']}: {found['message']}", WIDTH)


def pods(world: World) -> int:
    """Pods of all revisions that do not terminate."""
    return sum(not pod.deleting for each in world.revisions for pod in each.pods)


def clock(span: timedelta) -> str:
    """A duration in whole seconds, as in 1h00m05s."""
    minutes, seconds = divmod(round(span.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02}m{seconds:02}s"
    return f"{minutes}m{seconds:02}s" if minutes else f"{seconds}s"


def _wanted(wanted: Wanted) -> str:
    spec, key = wanted.group.spec, wanted.group.key
    if spec.sizing is not None:
        size = f"{spec.sizing.min_replicas} to {spec.sizing.max_replicas} replicas"
    else:
        size = timeline.replicas(1 if spec.replicas is None else spec.replicas)
    return f"{key.namespace}/{key.name}: {size} of {spec.model}"


def _prompt(wanted: Wanted) -> str:
    return (
        f"prompt {short(wanted.text.fingerprint)}, {len(wanted.text.prompt.system.encode())} bytes: {_source(wanted)}"
    )


def _source(wanted: Wanted) -> str:
    source = wanted.group.spec.prompt.system_from
    if source is None:
        line = " ".join(wanted.text.prompt.system.split())
        return f'"{line if len(line) <= QUOTED else line[: QUOTED - 1] + "…"}"'
    named = {"ConfigMap": source.config_map_key_ref, "Secret": source.secret_key_ref}
    return next(f"(from {kind} {ref.name})" for kind, ref in named.items() if ref is not None)


def _standing(world: World, fingerprint: str) -> str:
    revision = next((each for each in world.revisions if each.fingerprint == fingerprint), None)
    if revision is None or not revision.alive:
        return "-"
    warm = sum(pod.is_warm for pod in revision.pods)
    return f"{warm}/{revision.replicas} {revision.weight:>5} %"


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent="  ", break_on_hyphens=False)


def _room(revisions: int) -> int:
    return WIDTH - TIME - revisions * REVISION - PODS


def _line(time: str, event: str, cells: Sequence[str], count: str) -> str:
    figures = "".join(f"{each:>{REVISION}}" for each in cells)
    return f"{time:<{TIME}}{event:<{_room(len(cells))}}{figures}{count:>{PODS}}".rstrip()
