"""A run over time as SVG: demand, replicas per scaler, hit rate, and requests that missed the target. Does no I/O."""

from collections.abc import Callable, Sequence

from promptgroup_research.output import svg
from promptgroup_research.scaling.play import Course, Point

WIDTH, HEIGHT, EDGE, GAP = 720, 110, 60, 34
"""Pixels of one panel."""
COLOURS = ("#0b6e4f", "#c1121f", "#3a6ea5", "#8d99ae")
AXIS = "#555"
SMOOTH = 5
"""Points that are averaged: a minute of few requests jumps."""


def over_time(title: str, courses: Sequence[Course]) -> str:
    """Of the same scene and seed, one colour a scaler."""
    parts = [svg.text(4, 16, title, bold=True)]
    for number, (course, colour) in enumerate(zip(courses, COLOURS, strict=False)):
        x = EDGE + number * 160
        parts += [
            svg.line((x, 32), (x + 18, 32), f'stroke="{colour}" stroke-width="3"'),
            svg.text(x + 22, 36, course.scaler),
        ]
    panels: list[tuple[str, Sequence[Course], Callable[[Point], float], float, str]] = [
        ("requests a second", courses[:1], lambda p: p.requests, 0.0, "{:.0f}"),
        ("replicas wanted", courses, lambda p: p.wanted, 0.0, "{:.0f}"),
        ("prompt tokens found cached", courses, lambda p: p.hit, 1.0, "{:.0%}"),
        ("requests that missed the target", courses, lambda p: p.missed, 0.0, "{:.0%}"),
    ]
    for number, (words, some, value, least, form) in enumerate(panels):
        top = 52 + number * (HEIGHT + GAP)
        bottom = top + HEIGHT
        most = max(least, *(value(p) for course in some for p in course.points)) or 1.0
        end = max(course.points[-1].when for course in some) or 1.0
        parts += [
            svg.text(EDGE, top - 4, words),
            svg.text(EDGE - 4, top + 10, form.format(most), anchor="end"),
            svg.text(EDGE - 4, bottom, "0", anchor="end"),
            svg.line((EDGE, bottom), (WIDTH - 20, bottom), f'stroke="{AXIS}"'),
            svg.text(WIDTH - 20, bottom + 13, f"{end / 60:.0f} min", anchor="end"),
        ]
        for course, colour in zip(some, COLOURS, strict=False):
            values = [value(p) for p in course.points]
            steps = values if words == "replicas wanted" else _smooth(values)
            points = " ".join(
                f"{EDGE + p.when / end * (WIDTH - EDGE - 20):.1f},{bottom - HEIGHT * level / most:.1f}"
                for p, level in zip(course.points, steps, strict=True)
            )
            parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
    return svg.document(WIDTH, 52 + len(panels) * (HEIGHT + GAP), parts)


def _smooth(values: Sequence[float]) -> list[float]:
    return [sum(part) / len(part) for at in range(len(values)) if (part := values[max(0, at - SMOOTH + 1) : at + 1])]
