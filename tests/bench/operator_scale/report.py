"""A table of what phases took, and the gates that a run must pass."""

from collections.abc import Callable, Iterator

from rich.table import Table

from bench.operator_scale.phases import Event, Result

ABSENT = "-"


def table(results: list[Result]) -> Table:
    """A column for each size."""
    made = Table(title="the operator with many groups")
    made.add_column("")
    for result in results:
        made.add_column(result.size.text, justify="right")
    for label, cell in ROWS.items():
        made.add_row(label, *map(cell, results))
    for title, phase in EVENTS.items():
        if any(phase(result) for result in results):
            made.add_section()
            for label, event_cell in EVENT_ROWS.items():
                cells = [(phase(result), result) for result in results]
                shown = [event_cell(event, result) if event is not None else ABSENT for event, result in cells]
                made.add_row(f"{title}: {label}", *shown)
    return made


def each(count: float, result: Result) -> str:
    """A number for each group, guests among them."""
    return f"{count / result.size.all_groups:.1f}"


def a_minute(count: float, result: Result) -> str:
    """A number for each minute of rest."""
    return f"{60 * count / result.rest.seconds:.1f}"


def change(seconds: float, rest: float, result: Result) -> str:
    """CPU milliseconds of a change, without what the operator takes at rest."""
    beside = rest / result.rest.seconds * result.changes.seconds
    return f"{1000 * (seconds - beside) / result.size.pods:.2f}"


def core(seconds: float, result: Result) -> str:
    """CPU seconds of the rest as a share of one core."""
    return f"{seconds / result.rest.seconds:.2%}"


def at(values: list[float], share: float) -> float:
    """A quantile of ascending values; 0 without any."""
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def quantiles(values: list[float]) -> str:
    """The median and the 99th percentile."""
    return f"{at(values, 0.5):.2f} / {at(values, 0.99):.2f}" if values else ABSENT


EVENT_ROWS: dict[str, Callable[[Event, Result], str]] = {
    "replicas routed": lambda it, _: str(len(it.became.to_routed)),
    "all warm and routed, s": lambda it, _: f"{it.spent.seconds:.1f}",
    "containers ready to warm, s": lambda it, _: quantiles(it.became.to_warm),
    "containers ready to routed, s": lambda it, _: quantiles(it.became.to_routed),
    "warm to routed, s": lambda it, _: quantiles(it.became.told),
    "  two writes and a watch of another client, s": lambda it, _: quantiles(it.machine),
    "reads / writes of a group": lambda it, of: f"{each(it.spent.calls.reads, of)} / {each(it.spent.calls.writes, of)}",
    "CPU s: operator (main thread) / API server": (
        lambda it, _: f"{it.spent.operator:.1f} ({it.spent.watches:.1f}) / {it.spent.api_server:.1f}"
    ),
    "memory of the operator, MiB": lambda it, _: f"{it.spent.memory:.0f}",
}
"""Rows of each phase in which replicas become routed; two times are the median and the 99th percentile."""

EVENTS: dict[str, Callable[[Result], Event | None]] = {
    "created": lambda it: it.creation,
    "API server restarted": lambda it: it.restart,
    "rolled": lambda it: it.roll,
}

ROWS: dict[str, Callable[[Result], str]] = {
    "memory of the engines' process, MiB": lambda it: f"{it.engines:.0f}",
    "rest, a minute: reads": lambda it: a_minute(it.rest.calls.reads, it),
    "  writes": lambda it: a_minute(it.rest.calls.writes, it),
    "  watches begun": lambda it: a_minute(it.rest.calls.verbs["watch"], it),
    "rest, of a core: operator": lambda it: core(it.rest.operator, it),
    "  API server": lambda it: core(it.rest.api_server, it),
    "  memory of the operator, MiB": lambda it: f"{it.rest.memory:.0f}",
    "a pod changes, CPU ms: operator": lambda it: change(it.changes.operator, it.rest.operator, it),
    "  its main thread": lambda it: change(it.changes.watches, it.rest.watches, it),
    "  API server ": lambda it: change(it.changes.api_server, it.rest.api_server, it),
    "  writes ": lambda it: str(it.changes.calls.writes),
    "API server restarted: writes of groups that lost no pod": (
        lambda it: str(it.restart.others) if it.restart is not None else ABSENT
    ),
}


GATES: dict[str, tuple[Callable[[Result], float], float]] = {
    "creation, a group: reads": (lambda it: it.creation.spent.calls.reads / it.size.all_groups, 11),
    "creation, a group: writes": (lambda it: it.creation.spent.calls.writes / it.size.all_groups, 37),
    "creation, CPU: operator / API server": (
        lambda it: it.creation.spent.operator / it.creation.spent.api_server,
        0.8,
    ),
    "rest: writes": (lambda it: it.rest.calls.writes, 0),
    # copies of objects that may not be watched are read again every ten minutes
    "rest, a group: reads": (lambda it: it.rest.calls.reads / it.size.all_groups, 0.5),
    "a pod changes: writes": (lambda it: it.changes.calls.writes, 0),
    "a pod changes, CPU: operator / API server": (lambda it: it.changes.operator / it.changes.api_server, 0.5),
    "API server restarted: writes of groups that lost no pod": (
        lambda it: it.restart.others if it.restart is not None else 0,
        0,
    ),
}
"""Figure → how it is computed, and the most that it may be. Counts and ratios of one run hold on a busy machine."""

LINEAR: dict[str, tuple[Callable[[Result], float], float]] = {
    "creation, CPU of the operator for a group": (lambda it: it.creation.spent.operator / it.size.all_groups, 1.4),
    "rest, CPU of the operator for a group": (lambda it: it.rest.operator / it.rest.seconds / it.size.all_groups, 1.4),
    "memory of the operator for a group": (lambda it: it.changes.memory / it.size.all_groups, 1.0),
}
"""Figure → how it is computed, and the most that it may be beside that of the first size."""


def misses(result: Result, first: Result) -> Iterator[str]:
    """Yield the gates that a size misses.

    Args:
        result: the size.
        first: the smallest one, with which the linear figures are compared.
    """
    size = result.size.text
    for label, (figure, most) in GATES.items():
        if figure(result) > most:
            yield f"{size}: {label} is {figure(result):.2f}, and at most {most} is expected"
    for label, (figure, most) in LINEAR.items():
        if figure(result) > most * figure(first):
            yield f"{size}: {label} is {figure(result) / figure(first):.2f} times that of the first size ({most})"
