"""Describes the changes from one moment of a rehearsal to the next."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from promptgroup_cli.rehearsal.simulate import Moment
from promptgroup_contract.fingerprint import Fingerprint, short
from promptgroup_operator.api.prompt_group import StepSpec
from promptgroup_operator.plan import desired
from promptgroup_operator.rollout.release import ALL, RevisionPhase, step_at
from promptgroup_operator.world.snapshot import WORKLOADS, Manifest, Pod, RevisionState, World

Live = Mapping[tuple[str, str], Manifest]
"""Objects by kind and name."""


@dataclass(frozen=True, slots=True)
class Chapter:
    """A moment of the rehearsal."""

    after: timedelta
    """Time since the start."""
    events: tuple[str, ...]
    world: World
    """The world at that time."""


def chapters(before: World | None, moments: Iterable[Moment], start: datetime) -> Iterator[Chapter]:
    """Yield the moments. The first one always has an event; one at which a terminated pod is removed has none."""
    nothing: tuple[str, ...] = ("there is nothing to do",)
    for moment in moments:
        events = tuple(_events(before, moment.world))
        yield Chapter(moment.at - start, events or nothing, moment.world)
        before, nothing = moment.world, ()


def condition_of(world: World, kind: str) -> Mapping[str, Any]:
    """Return a condition of the group's status; empty when there is none."""
    conditions = world.group.status.get("conditions", [])
    return next((condition for condition in conditions if condition["type"] == kind), {})


def _events(old: World | None, new: World) -> Iterator[str]:
    """Yield the differences, causes before effects."""
    before = {revision.fingerprint: revision for revision in old.revisions} if old is not None else {}
    live = old.live if old is not None else {}
    pairs = [(before.get(revision.fingerprint), revision) for revision in new.revisions]
    yield from _created(live, new.live)
    for pair in pairs:
        yield from _warm(*pair)
    if old is not None:
        yield from _weights(pairs)
        yield from _phases(old, new)
    for pair in pairs:
        yield from _step(*pair, new.group.spec.rollout.steps)
    for pair in pairs:
        yield from _drains(*pair)
    yield from _changed(live, new.live)
    for pair in pairs:
        yield from _ends(*pair)
    yield from (f"{kind} {name} is deleted" for kind, name in sorted(live.keys() - new.live.keys()))
    if old is None or _is_ready(old) != _is_ready(new):
        yield f"the PromptGroup is {'' if _is_ready(new) else 'not '}Ready ({condition_of(new, 'Ready')['reason']})"


def _is_ready(world: World) -> bool:
    return condition_of(world, "Ready").get("status") == "True"


# --- objects -----------------------------------------------------------------------------------------------


def _created(old: Live, new: Live) -> Iterator[str]:
    made: dict[str, list[str]] = {}
    for kind, name in sorted(new.keys() - old.keys()):
        if kind in WORKLOADS:
            yield f"{kind} {name} is created with {replicas(new[kind, name]['spec']['replicas'])}"
        else:
            made.setdefault(name, []).append(kind)
    yield from (f"{' and '.join(kinds)} {name} {_verb(kinds, 'is', 'are')} created" for name, kinds in made.items())


def _changed(old: Live, new: Live) -> Iterator[str]:
    """Yield the changes of workloads, those that shrink first: they free capacity."""
    both = [(*key, old[key], new[key]) for key in new.keys() & old.keys() if key[0] in WORKLOADS]
    both.sort(key=lambda item: (item[3]["spec"]["replicas"] > item[2]["spec"]["replicas"], item[1]))
    for kind, name, before, after in both:
        counts = [item["spec"]["replicas"] for item in (before, after)]
        if counts[0] != counts[1]:
            yield f"{kind} {name} is scaled from {counts[0]} to {replicas(counts[1])}"
        if desired.settings_of(before) != desired.settings_of(after):
            yield f"{kind} {name} gets another pod template; its pods are replaced one by one"


def replicas(count: int) -> str:
    """Return a count in words, as in `1 replica`."""
    return f"{count} replica" if count == 1 else f"{count} replicas"


# --- replicas ----------------------------------------------------------------------------------------------


def _warm(old: RevisionState | None, new: RevisionState) -> Iterator[str]:
    before = _by_name(old)
    warm = [pod for pod in new.pods if pod.is_warm and not _was(before, pod, "is_warm")]
    held = sorted(pod.slot for pod in warm if pod.slot is not None)
    inherited = held and {pod.slot for pod in before.values() if pod.is_warm}.issuperset(held)
    if held:
        source = ", inherited from a replica that leaves" if inherited else ""
        ranks = max(pod.ranks for pod in warm)
        caches = f" on each of {ranks} data-parallel ranks" if ranks > 1 else ""
        yield f"{short(new.fingerprint)}: {_slots(held)} {_verb(held, 'is', 'are')} warm{caches}{source}"


def _drains(old: RevisionState | None, new: RevisionState) -> Iterator[str]:
    before = _by_name(old)
    drain = [pod for pod in new.pods if pod.draining_since and not _was(before, pod, "draining_since")]
    held = sorted(pod.slot for pod in drain if pod.slot is not None)
    if held:
        yield f"{short(new.fingerprint)}: {_slots(held)} {_verb(held, 'drains', 'drain')}; routers send elsewhere"


def _ends(old: RevisionState | None, new: RevisionState) -> Iterator[str]:
    before = _by_name(old)
    ends = [pod for pod in new.pods if pod.deleting and not _was(before, pod, "deleting")]
    if ends:
        yield f"{short(new.fingerprint)}: {replicas(len(ends))} {_verb(ends, 'terminates', 'terminate')}"


def _by_name(revision: RevisionState | None) -> dict[str, Pod]:
    return {pod.name: pod for pod in revision.pods} if revision is not None else {}


def _verb(who: Sequence[object], one: str, several: str) -> str:
    return one if len(who) == 1 else several


def _was(before: Mapping[str, Pod], pod: Pod, subject: str) -> bool:
    return pod.name in before and bool(getattr(before[pod.name], subject))


def _slots(numbers: Sequence[int]) -> str:
    """Return `slot 3`, `slots 0-2`, `slots 0, 2`."""
    if len(numbers) == 1:
        return f"slot {numbers[0]}"
    if numbers and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"slots {numbers[0]}-{numbers[-1]}"
    return f"slots {', '.join(map(str, numbers))}"


# --- revisions ---------------------------------------------------------------------------------------------


def _weights(pairs: Sequence[tuple[RevisionState | None, RevisionState]]) -> Iterator[str]:
    """Yield the weights that change, the one that rises first."""
    moves = [(old.weight if old is not None else 0, new.weight, short(new.fingerprint)) for old, new in pairs]
    moves = sorted((move for move in moves if move[0] != move[1]), key=lambda item: item[0] - item[1])
    if moves:
        yield "weights: " + ", ".join(f"{name} {before} → {after} %" for before, after, name in moves)


def _step(old: RevisionState | None, new: RevisionState, steps: Sequence[StepSpec]) -> Iterator[str]:
    """Yield the step of the release that begins once its weight is applied, or that the last one is over."""
    before, after = old.progress if old is not None else None, new.progress
    if not steps or after is None or after == before:
        return
    index = step_at([*(step.weight for step in steps), ALL], after.weight)
    if index >= len(steps):
        yield f"{short(new.fingerprint)} passed its steps and takes over as its replicas become warm"
    elif after.since is not None:
        pause = steps[index].pause
        yield f"{short(new.fingerprint)}: step {index + 1} of {len(steps)} begins and lasts at least {pause}"


def _phases(old: World, new: World) -> Iterator[str]:
    before = _by_phase(old)
    for fingerprint, phase in _by_phase(new).items():
        if before.get(fingerprint) == phase:
            continue
        name = short(fingerprint)
        match phase:
            case RevisionPhase.SERVING if fingerprint in before:
                yield f"{name} has taken over"
            case RevisionPhase.SUPERSEDED:
                yield f"{name} stays routable for {new.group.spec.rollout.retire_after} (retireAfter)"
            case RevisionPhase.ROLLED_BACK:
                yield f"{name} is rolled back: {_why(new, fingerprint)}"
            case RevisionPhase.RETIRING:
                yield f"{name} retires"
            case RevisionPhase.RETIRED:
                yield f"{name} is retired: it is kept with 0 replicas, in case its prompt is applied again"
            case _:
                pass


def _why(world: World, fingerprint: Fingerprint) -> str:
    marks = (revision.rolled_back for revision in world.revisions if revision.fingerprint == fingerprint)
    return next((mark.why.message for mark in marks if mark is not None), "")


def _by_phase(world: World) -> dict[Fingerprint, RevisionPhase]:
    return {
        Fingerprint(revision["fingerprint"]): RevisionPhase(revision["phase"])
        for revision in world.group.status.get("revisions", [])
        if revision["phase"]
    }
