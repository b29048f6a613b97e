"""A rehearsal as text: the change, a row for each step, the result; or the objects at its end. Does no I/O.

Only the beginning of a prompt is shown, and only if it is in the PromptGroup itself.
"""

import textwrap
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import yaml

from promptgroup_cli.base.text import counted, line
from promptgroup_cli.rehearsal import simulate, timeline
from promptgroup_cli.rehearsal.manifest import Wanted
from promptgroup_cli.rehearsal.simulated_cluster import IDLE_AFTER, SimulatedCluster, SimulatedPace
from promptgroup_cli.rehearsal.simulated_guest import SimulatedGuest
from promptgroup_cli.rehearsal.timeline import Chapter
from promptgroup_contract.fingerprint import Fingerprint, short
from promptgroup_contract.names import ANNOTATION_APPLIED
from promptgroup_operator.adapters.identity import of_spec
from promptgroup_operator.sizing.prompt_drift import BYTES_A_TOKEN
from promptgroup_operator.world.snapshot import Manifest, World

WIDTH = 120
"""Columns of the table."""
TIME, REVISION, PODS = 10, 15, 6
"""Columns of the time, of the figures of a revision, and of the pods."""
RULE = "─" * WIDTH

QUOTED = 60
"""Characters of an inline prompt that are shown."""


def heading(old: Wanted | None, new: Wanted, pace: SimulatedPace) -> Iterator[str]:
    """Yield the change and the assumptions."""
    for word, item in (("before", old), ("after", new)):
        if item is not None:
            yield f"{word:{TIME}}{_wanted(item)}"
            yield f"{'':{TIME}}{_prompt(item)}"
            yield from (f"{'':{TIME}}{text}" for text in _adapter(item))
    warm, idle = clock(pace.warm_after), clock(IDLE_AFTER)
    if new.group.spec.engine_from is not None:
        host = new.group.spec.engine_from.prompt_group
        have = f"PromptGroup {host} has {timeline.replicas(new.group.spec.replicas or 0)} for it that stay"
        yield f"{'assumed':{TIME}}{have}, and a prompt is warm as soon as it was sent there"
        yield f"{'room':{TIME}}{_room_taken(old, new)}"
    else:
        yield f"{'assumed':{TIME}}a replica is warm {warm} after its creation, and a draining one is idle after {idle}"
    if new.group.spec.rollout.steps:
        yield f"{'':{TIME}}the analysis finds the new revision {'worse' if pace.worse else 'no worse'} at each step"
    yield ""


def head(shown: Sequence[Fingerprint]) -> Iterator[str]:
    """Yield the heads of the table.

    Args:
        shown: fingerprints of the revisions that have a column.
    """
    yield _line("", "", [short(fingerprint) for fingerprint in shown], "")
    yield _line("time", "event", ["warm   weight" for _ in shown], "pods")
    yield RULE


def row(chapter: Chapter, shown: Sequence[Fingerprint]) -> Iterator[str]:
    """Yield the lines of a moment; none for one without events."""
    lines = [item for event in chapter.events for item in _wrapped(event, _room(len(shown)) - 2)]
    cells = [_standing(chapter.world, fingerprint) for fingerprint in shown]
    for first in lines[:1]:
        yield _line(f"+{clock(chapter.after)}", first, cells, str(pods(chapter.world)))
    yield from (f"{'':{TIME}}{item}" for item in lines[1:])


def ending(end: World, most: int, took: timedelta) -> Iterator[str]:
    """Yield the result: the most pods at once, the time, and the conditions that require an action."""
    yield RULE
    yield f"done after {clock(took)}, with at most {counted(most, 'pod')} at a time, not counting those that terminate"
    for kind in ("Degraded", "Progressing"):
        condition_of = timeline.condition_of(end, kind)
        if condition_of["status"] == "True":
            yield from _wrapped(f"{kind} ({condition_of['reason']}): {condition_of['message']}", WIDTH)


def pods(world: World) -> int:
    """Return the number of pods that do not terminate; a guest has none."""
    if world.host is not None:
        return 0
    return sum(not pod.deleting for revision in world.revisions for pod in revision.pods)


def clock(span: timedelta) -> str:
    """Return a duration in whole seconds, as in 1h00m05s."""
    minutes, seconds = divmod(round(span.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02}m{seconds:02}s"
    return f"{minutes}m{seconds:02}s" if minutes else f"{seconds}s"


def _room_taken(old: Wanted | None, new: Wanted) -> str:
    """Return the part of the KV cache that a guest occupies on each replica that keeps it warm."""
    tokens = _tokens(new)
    taken = f"about {tokens:,} tokens of KV cache on each of these replicas"
    if old is None or old.text.fingerprint == new.text.fingerprint:
        return taken
    return f"{taken}, and {_tokens(old):,} for the prompt before until it retires"


def _tokens(wanted: Wanted) -> int:
    prompt = wanted.text.prompt
    size = sum(len(part.encode()) for part in (prompt.system, prompt.tools, prompt.messages))
    return -(-size // BYTES_A_TOKEN)


def _wanted(wanted: Wanted) -> str:
    spec, key = wanted.group.spec, wanted.group.key
    if spec.sizing is not None:
        size = f"{spec.sizing.min_replicas} to {spec.sizing.max_replicas} replicas"
    else:
        size = timeline.replicas(1 if spec.replicas is None else spec.replicas)
    if spec.engine_from is not None:
        return f"{key.namespace}/{key.name}: {size} of PromptGroup {spec.engine_from.prompt_group}"
    return f"{key.namespace}/{key.name}: {size} of {spec.model}"


def _prompt(wanted: Wanted) -> str:
    if not wanted.group.spec.has_prompt:
        return "no prompt: it serves requests that no group declares, and groups whose engineFrom names it"
    return (
        f"prompt {short(wanted.text.fingerprint)}, {len(wanted.text.prompt.system.encode())} bytes: {_source(wanted)}"
    )


def _adapter(wanted: Wanted) -> Iterator[str]:
    """Yield the LoRA adapter, and the name under which engines serve it."""
    spec = wanted.group.spec.adapter
    if spec is not None:
        source = spec.source
        at = f"folder {source.folder}" if source.folder is not None else f"repository {source.hugging_face}"
        yield f"adapter {spec.name} from {at}, which engines serve as {of_spec(spec).served}"


def _source(wanted: Wanted) -> str:
    source = wanted.group.spec.prompt.system_from
    if source is None:
        text = " ".join(wanted.text.prompt.system.split())
        return f'"{text if len(text) <= QUOTED else text[: QUOTED - 1] + "…"}"'
    named = {"ConfigMap": source.config_map_key_ref, "Secret": source.secret_key_ref}
    return next(f"(from {kind} {ref.name})" for kind, ref in named.items() if ref is not None)


def _standing(world: World, fingerprint: Fingerprint) -> str:
    revision = next(
        (revision_state for revision_state in world.revisions if revision_state.fingerprint == fingerprint), None
    )
    if revision is None or not revision.alive:
        return "-"
    warm = sum(pod.is_warm for pod in revision.pods)
    return f"{warm}/{revision.replicas} {revision.weight:>5} %"


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent="  ", break_on_hyphens=False)


def _room(revisions: int) -> int:
    return WIDTH - TIME - revisions * REVISION - PODS


def _line(time: str, event: str, cells: Sequence[str], count: str) -> str:
    widths = (TIME, _room(len(cells)), *(REVISION for _ in cells), PODS)
    return line((time, event, *cells, count), widths, right=range(2, len(widths)), gap=0)


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


def steps(old: Wanted | None, new: Wanted, pace: SimulatedPace, now: datetime) -> Iterator[str]:
    """Yield the change, a row for each moment in which something happens, and the result.

    Raises:
        UnsettledError: the plan never ends.
    """
    yield from heading(old, new, pace)
    before, cluster = _start(old, new, pace, now)
    start, most, end = cluster.now, 0, cluster.world()
    shown = list(dict.fromkeys(item.text.fingerprint for item in (old, new) if item is not None))
    yield from head(shown)
    for chapter in timeline.chapters(before, simulate.run(cluster), start):
        yield from row(chapter, shown)
        most, end = max(most, pods(chapter.world)), chapter.world
    yield from ending(end, most, cluster.now - start)


# --- the objects -------------------------------------------------------------------------------------------


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def objects(old: Wanted | None, new: Wanted, pace: SimulatedPace, now: datetime) -> Iterator[str]:
    """Yield the objects at the end as YAML, without the PromptRoute, which names pods; raises as `steps` does."""
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
