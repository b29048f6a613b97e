"""Plots as SVG text: bars for policies, lines for courses over time. Does no I/O."""

from collections.abc import Sequence
from dataclasses import dataclass

from promptgroup_research.experiments.report import milliseconds
from promptgroup_research.experiments.runs import Cell
from promptgroup_research.experiments.scenarios import SCENARIOS, Outcome
from promptgroup_research.output import svg

LABEL, BARS, LINE = 190, 330, 20
"""Pixels: width of names, width of the longest bar, height of a row."""
OURS_COLOUR, PEER_COLOUR, AXIS_COLOUR = "#0b6e4f", "#8d99ae", "#555"
CLIPPED = 6.0
"""Bars end at so many times the oracle's: an overload would make the others invisible."""
WIDTH, HEIGHT, EDGE = 640, 150, 60


@dataclass(frozen=True, slots=True)
class Bar:
    """A name, its value, and the value as it is written."""

    name: str
    value: float
    text: str


def bars(title: str, some: Sequence[Bar], most: float) -> str:
    """Horizontal bars; longer ones are cut at `most`."""
    height = LINE * (len(some) + 2)
    parts = [svg.text(4, 16, title, bold=True)]
    for row, bar in enumerate(some):
        y = LINE * (row + 1) + 8
        length = BARS * min(1.0, bar.value / most) if most else 0.0
        colour = OURS_COLOUR if bar.name.startswith("promptgroup") else PEER_COLOUR
        parts.append(svg.text(LABEL - 6, y + 13, bar.name, anchor="end"))
        parts.append(f'<rect x="{LABEL}" y="{y + 2}" width="{length:.1f}" height="{LINE - 5}" fill="{colour}"/>')
        cut = " »" if bar.value > most else ""
        parts.append(svg.text(LABEL + length + 5, y + 13, bar.text + cut))
    return svg.document(LABEL + BARS + 110, height, parts)


def comparison(cells: Sequence[Cell], title: str) -> dict[str, str]:
    """Of one workload and load: `p99` and `hit`."""
    most = CLIPPED * min(cell.figures.p99 for cell in cells)
    slow = [Bar(cell.policy, cell.figures.p99, f"{milliseconds(cell.figures.p99)} ms") for cell in cells]
    hits = [Bar(cell.policy, cell.figures.hit, f"{cell.figures.hit:.1%}") for cell in cells]
    return {
        "p99": bars(f"{title}: TTFT p99", slow, most),
        "hit": bars(f"{title}: prompt tokens found cached", hits, 1.0),
    }


def over_time(outcomes: Sequence[Outcome], title: str) -> str:
    """TTFT p99 of each bin, one line an event, above one another; a mark where the event is."""
    parts = [svg.text(4, 16, title, bold=True)]
    for number, outcome in enumerate(outcomes):
        top = 30 + number * (HEIGHT + 40)
        begin, end = outcome.bins[0][0], outcome.bins[-1][0]
        most = max(p99 for _, p99, _ in outcome.bins)

        def x(when: float, begin: float = begin, end: float = end) -> float:
            return EDGE + (when - begin) / (end - begin) * (WIDTH - EDGE - 20)

        points = " ".join(f"{x(when):.1f},{top + 15 + HEIGHT * (1 - p99 / most):.1f}" for when, p99, _ in outcome.bins)
        bottom = top + 15 + HEIGHT
        parts += [
            svg.text(EDGE, top + 6, SCENARIOS[outcome.scenario].title),
            svg.line((EDGE, bottom), (WIDTH - 20, bottom), f'stroke="{AXIS_COLOUR}"'),
            svg.line((x(0), top + 15), (x(0), bottom), 'stroke="#c1121f" stroke-dasharray="4"'),
            f'<polyline points="{points}" fill="none" stroke="{OURS_COLOUR}" stroke-width="2"/>',
            svg.text(EDGE - 4, top + 22, f"{milliseconds(most)} ms", anchor="end"),
            svg.text(EDGE - 4, bottom, "0", anchor="end"),
            svg.text(WIDTH - 20, bottom + 14, f"{end:.0f} s", anchor="end"),
            svg.text(x(0), bottom + 14, "0", anchor="middle"),
        ]
    return svg.document(WIDTH, 30 + len(outcomes) * (HEIGHT + 40), parts)
