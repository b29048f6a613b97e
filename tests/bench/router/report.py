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
    problems: list[str] = field(default_factory=list)


def ratios(of: Figures, base: Figures, unit: str) -> float | None:
    """Return how many times the base's cost it is: the median over rounds, each round compared with itself."""
    pairs = list(zip(of.micros.get(unit, ()), base.micros.get(unit, ()), strict=False))
    return median(one / other for one, other in pairs) if pairs else None


def base_of(all_of_them: Sequence[Figures]) -> Figures:
    """Return the router that the others are compared with: HAProxy, or the first."""
    return next((each for each in all_of_them if each.name == BASE), all_of_them[0])


def tables(all_of_them: Sequence[Figures], units: Sequence[str]) -> str:
    """Return the tables, as Markdown."""
    base = base_of(all_of_them)
    lines = [f"| CPU a unit, as a multiple of {base.name}'s (µs) | {' | '.join(units)} |", _rule(len(units))]
    for each in all_of_them:
        cells = [_cell(ratios(each, base, unit), each.micros.get(unit)) for unit in units]
        lines.append(f"| {_shown(each.name)} | {' | '.join(cells)} |")
    lines += ["", "| | requests/s on one core | added p50, ms | added p99, ms | " + " | ".join(MEMORY.values()) + " |"]
    lines.append(_rule(3 + len(MEMORY)))
    for each in all_of_them:
        rate = f"{median(each.rates):,.0f}" if each.rates else "-"
        memory = [f"{each.memory[name]:.0f}" if name in each.memory else "-" for name in MEMORY]
        lines.append(f"| {_shown(each.name)} | {rate} | {_ms(each.p50)} | {_ms(each.p99)} | {' | '.join(memory)} |")
    lines += ["", *(f"- {each.name}: {each.version}" for each in all_of_them)]
    lines += [f"- {each.name}: {problem}" for each in all_of_them for problem in each.problems]
    return "\n".join(lines)


MEMORY: Mapping[str, str] = {"idle": "MiB idle", "clients": "MiB with idle clients"}


def _rule(columns: int) -> str:
    return "|---|" + "--:|" * columns


def _shown(name: str) -> str:
    return f"**{name}**" if name == "promptgroup" else name


def _cell(ratio: float | None, micros: Sequence[float] | None) -> str:
    return f"{ratio:.2f} ({median(micros):.0f})" if ratio is not None and micros else "-"


def _ms(seconds: float | None) -> str:
    return f"{seconds * 1000:.2f}" if seconds is not None else "-"
