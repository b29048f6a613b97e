"""Drawings that show what code computes: the ring before and after it grows, from the router's own hash.

Written by `make generate` beside the pages. Hand-made drawings stand in docs/assets, too.
"""

from collections.abc import Iterable
from pathlib import Path
from xml.sax.saxutils import escape

from promptgroup_router.rings.ring import Ring

ASSETS = Path(__file__).parents[1] / "assets"

SESSIONS = 40
"""Sessions in the drawing of the ring."""

STYLE = """
  <style>
    text { font: 13px system-ui, sans-serif; fill: #1f2937 }
    .small { font-size: 11px; fill: #4b5563 }
    .title { font-weight: 600 }
    .slot { fill: #eef2ff; stroke: #6366f1 }
    .new { fill: #ecfdf5; stroke: #059669; stroke-dasharray: 5 3 }
    .stay { fill: #6366f1 }
    .move { fill: #d97706 }
  </style>"""


def svg(width: int, height: int, title: str, parts: Iterable[str]) -> str:
    """Return a drawing on a white ground, so that it reads the same on a dark page."""
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(title)}">\n<title>{escape(title)}</title>{STYLE}\n'
        f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>\n{body}\n</svg>\n'
    )


def keys() -> list[int]:
    """Return session keys that are spread over all 64 bits."""
    return [(0x9E3779B97F4A7C15 * (index + 1)) % 2**64 for index in range(SESSIONS)]


def homes(slots: int) -> dict[int, int]:
    """Return key → home, on a ring of so many slots."""
    ring = Ring(range(slots))
    return {key: home for key in keys() if (home := ring.home(key)) is not None}


def ring() -> str:
    """Return the drawing of a ring that grows from four slots to five."""
    before, after = homes(4), homes(5)
    moved = {key for key in before if before[key] != after[key]}
    parts = []
    for row, (slots, where, text) in enumerate(
        (
            (4, before, f"Four slots, {SESSIONS} sessions at home"),
            (5, after, f"A fifth slot: {len(moved)} sessions move, all of them to it; the others stay"),
        )
    ):
        top = 16 + 150 * row
        parts.append(f'<text class="title" x="20" y="{top + 12}">{text}</text>')
        for slot in range(slots):
            left = 20 + 150 * slot
            kind = "new" if slot == 4 else "slot"
            parts.append(f'<rect class="{kind}" x="{left}" y="{top + 24}" width="140" height="96" rx="6"/>')
            parts.append(f'<text class="small" x="{left + 8}" y="{top + 40}">slot {slot}</text>')
            here = [key for key in keys() if where[key] == slot]
            for index, key in enumerate(here):
                x, y = left + 16 + 18 * (index % 7), top + 58 + 18 * (index // 7)
                state = "move" if key in moved else "stay"
                parts.append(f'<circle class="{state}" cx="{x}" cy="{y}" r="6"/>')
    parts.append('<circle class="stay" cx="26" cy="318" r="6"/><text class="small" x="38" y="322">stays</text>')
    parts.append('<circle class="move" cx="96" cy="318" r="6"/>')
    parts.append('<text class="small" x="108" y="322">moves when the fifth slot comes</text>')
    return svg(780, 336, "A ring that grows from four slots to five", parts)


def files() -> dict[Path, str]:
    """Return path → text of each drawing."""
    return {ASSETS / "ring.svg": ring()}
