"""SVG as text: words, lines and the drawing that holds them. Does no I/O.

Written by hand: a plotting library would be the project's largest dependency, for a few kinds of plots.
"""

from collections.abc import Sequence
from xml.sax.saxutils import escape


def text(x: float, y: float, words: str, *, anchor: str = "start", bold: bool = False) -> str:
    """Words at a place."""
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{weight}>{escape(words)}</text>'


def line(one: tuple[float, float], other: tuple[float, float], style: str) -> str:
    """From one point to another."""
    return f'<line x1="{one[0]:.1f}" y1="{one[1]:.1f}" x2="{other[0]:.1f}" y2="{other[1]:.1f}" {style}/>'


def document(width: float, height: float, parts: Sequence[str]) -> str:
    """A whole drawing, in pixels."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        'font-family="sans-serif" font-size="11">'
    )
    # readable on dark pages too
    ground = '<rect width="100%" height="100%" fill="white"/>'
    return "\n".join([head, ground, *parts, "</svg>", ""])
