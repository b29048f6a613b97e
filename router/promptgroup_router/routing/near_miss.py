"""Requests that miss a group by a little: which one, and where their text leaves the declared one. Pure, bounded.

A request without a group is compared with the prompts that are declared for its model. It departs from one when its
system text begins as that does for most of it, or ends with its end: an edited line, a date in the middle or on top, a
client of last week. What shares less is another prompt. Of the text only a number is kept: how many bytes are alike.
"""

from collections import deque
from statistics import median_low
from typing import NamedTuple

from promptgroup_router.apis.request import ParsedRequest, size_of
from promptgroup_router.rings.index import ModelEntry

ALIKE = 0.5
"""Share of a declared text that a request must begin with to be said to depart from it: many prompts begin with the
same sentence."""
ENDING = 128
"""Characters at the end of a declared text that a request must have near its own end, if its beginning is another."""
NEAR_END = 2048
"""Characters of a request that are its end: what is put behind a prompt is shorter, or it is the conversation."""
SEARCHED = 8
"""Declared prompts whose ends are searched for in one request, 2 µs each; of more only beginnings are compared."""
REMEMBERED = 64
"""Latest offsets of a group: their median stands still when one client in three departs elsewhere."""


class NearMiss(NamedTuple):
    """A request that leaves a declared prompt."""

    group: str
    """`namespace/group`."""
    at: int
    """Bytes of the declared text before the first one that differs."""


def find_near_miss(model: ModelEntry, ask: ParsedRequest) -> NearMiss | None:
    """The declared prompt that a request without a group comes closest to; None when it is another prompt.

    One with other tools is another prompt: they stand in front of the text or behind it, as the template has it.
    """
    best: NearMiss | None = None
    end = ask.system[-NEAR_END:]
    searched = 0
    for claim in model.claims:
        if claim.preamble is None or claim.preamble.canonical_tools != ask.tools:
            continue
        declared = claim.preamble.system
        alike = common(declared, ask.system)
        near = alike >= ALIKE * len(declared)
        if not near and searched < SEARCHED and len(declared) >= ENDING:
            searched += 1
            near = declared[-ENDING:] in end
        if near:
            at = size_of(declared[:alike])
            if best is None or at > best.at:
                best = NearMiss(claim.label, at)
    return best


def common(a: str, b: str) -> int:
    """Characters that both begin with: by halves, in a window that doubles until it holds a difference."""
    low, high, most = 0, 64, min(len(a), len(b))
    while high < most and a[low:high] == b[low:high]:
        low, high = high, 2 * high
    high = min(high, most)
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


class NearMisses:
    """Where requests lately left each group's prompt."""

    def __init__(self) -> None:
        self._at: dict[str, deque[int]] = {}

    def add(self, near_miss: NearMiss) -> None:
        """Count a request."""
        known = self._at.get(near_miss.group)
        if known is None:
            known = self._at[near_miss.group] = deque(maxlen=REMEMBERED)
        known.append(near_miss.at)

    def medians(self) -> dict[tuple[str, ...], float]:
        """Label of a group → the median offset in bytes."""
        return {(group,): median_low(offsets) for group, offsets in self._at.items()}
