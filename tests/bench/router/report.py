"""What was measured, as tables of figures and of ratios. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

BASE = "haproxy"
"""The router that the others are compared with, where it is there."""
UNITS = {"request": "CPU µs a request, {} KB", "event": "CPU µs an event", "latency": "added latency, ms"}


@dataclass(slots=True)
class Figures:
    """The figures of one router. Lists have one value a round."""

    name: str
    version: str
    micros: dict[str, list[float]] = field(default_factory=dict)
    """What was measured ("8 KB", "event") → CPU microseconds for each."""
    rates: list[float] = field(default_factory=list)
    """Requests of 8 KB a second, as many as go through."""
    p50: float | None = None
    """Added latency at half load, seconds."""
    p99: float | None = None
    memory: dict[str, float] = field(default_factory=dict)
    """When it was measured → MiB."""
    events: dict[str, float] = field(default_factory=dict)
    """Kind of event that `perf stat` counts → how many a request of 8 KB takes; only those that are counted here."""
    problems: list[str] = field(default_factory=list)


def ratios(of: Figures, base: Figures, unit: str) -> float | None:
    """Return how many times the base's cost it is: the median over rounds, each round compared with itself."""
    some = by_round(of, base, unit)
    return median(some) if some else None


def by_round(of: Figures, base: Figures, unit: str) -> list[float]:
    """Return how many times the base's cost it is, for each round that both have, the least first."""
    pairs = zip(of.micros.get(unit, ()), base.micros.get(unit, ()), strict=False)
    return sorted(one / other for one, other in pairs)


def base_of(all_of_them: Sequence[Figures]) -> Figures:
    """Return the router that the others are compared with: HAProxy, or the first."""
    return next((each for each in all_of_them if each.name == BASE), all_of_them[0])


def tables(all_of_them: Sequence[Figures], units: Sequence[str]) -> str:
    """Return the tables, as Markdown."""
    lines = [ratio_table(all_of_them, base_of(all_of_them), units)]
    columns = ["requests/s on one core", "added p50, ms", "added p99, ms", *EVENTS.values(), *MEMORY.values()]
    lines += ["", f"| | {' | '.join(columns)} |", _rule(len(columns))]
    for each in all_of_them:
        rate = f"{median(each.rates):,.0f}" if each.rates else "-"
        counts = [_count(each.events.get(name)) for name in EVENTS]
        memory = [f"{each.memory[name]:.0f}" if name in each.memory else "-" for name in MEMORY]
        cells = [rate, _ms(each.p50), _ms(each.p99), *counts, *memory]
        lines.append(f"| {_shown(each.name)} | {' | '.join(cells)} |")
    lines += ["", *(f"- {each.name}: {each.version}" for each in all_of_them)]
    lines += [f"- {each.name}: {problem}" for each in all_of_them for problem in each.problems]
    return "\n".join(lines)


def ratio_table(some: Sequence[Figures], base: Figures, units: Sequence[str]) -> str:
    """Return a table of how many times the base's cost that of each is, with the spread of the rounds."""
    about = f"CPU a unit, as a multiple of {base.name}'s: median, least to most of the rounds (µs)"
    lines = [f"| {about} | {' | '.join(units)} |", _rule(len(units))]
    for each in some:
        cells = [_cell(by_round(each, base, unit), each.micros.get(unit)) for unit in units]
        lines.append(f"| {_shown(each.name)} | {' | '.join(cells)} |")
    return "\n".join(lines)


MEMORY: Mapping[str, str] = {"idle": "MiB idle", "clients": "MiB with idle clients"}
EVENTS: Mapping[str, str] = {
    "raw_syscalls:sys_enter": "system calls a request",
    "instructions": "instructions a request, kernel's included",
}
"""What `perf stat` counts."""


def _rule(columns: int) -> str:
    return "|---|" + "--:|" * columns


def _shown(name: str) -> str:
    return f"**{name}**" if name == "promptgroup" else name


def _cell(some: Sequence[float], micros: Sequence[float] | None) -> str:
    if not some or not micros:
        return "-"
    spread = f", {some[0]:.2f} to {some[-1]:.2f}" if len(some) > 1 and some[0] != some[-1] else ""
    return f"{median(some):.2f}{spread} ({median(micros):.0f})"


def _count(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _ms(seconds: float | None) -> str:
    return f"{seconds * 1000:.2f}" if seconds is not None else "-"
