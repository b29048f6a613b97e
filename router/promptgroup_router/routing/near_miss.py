"""Detects requests that nearly match a group: which group, and where their text leaves the declared one.

A request without a group is compared with the prompts declared for its model. It is a near miss of one if its system
text begins like the declared text for most of it, or ends with its end: an edited line, a date in the middle or on top,
an old client. A text that shares less is another prompt. Only a number is kept of the text: how many bytes are equal.
The record is bounded. Does no I/O and reads no clock.
"""

from collections import deque
from statistics import median_low
from typing import NamedTuple

from promptgroup_router.apis.request import ParsedRequest, size_of
from promptgroup_router.rings.index import ModelEntry

ALIKE = 0.5
"""Share of a declared text that a near miss must begin with: many prompts begin with the same sentence."""
ENDING = 128
"""Characters at the end of a declared text that a near miss must have near its own end if its beginning differs."""
NEAR_END = 2048
"""Characters that count as the end of a request. What clients put behind a prompt is shorter, or it is the
conversation."""
SEARCHED = 8
"""Declared prompts whose ends are searched for in one request, 2 µs each; of others only beginnings are compared."""
REMEMBERED = 64
"""Latest offsets kept per group: their median stands still when one client in three differs elsewhere."""


class NearMiss(NamedTuple):
    """A request that nearly matches a declared prompt."""

    group: str
    """`namespace/group`."""
    at: int
    """Bytes of the declared text before the first one that differs."""


def find_near_miss(model: ModelEntry, ask: ParsedRequest) -> NearMiss | None:
    """Return the declared prompt that a request without a group comes closest to, or None if it is another prompt.

    A prompt with other tools is another prompt: the chat template puts them before or behind the text.
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
    """Return the number of characters that both texts begin with.

    Compares windows that double until one holds a difference, and halves that one.
    """
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
    """The offsets at which requests lately left each group's prompt."""

    def __init__(self) -> None:
        self._at: dict[str, deque[int]] = {}

    def add(self, near_miss: NearMiss) -> None:
        """Count a request."""
        known = self._at.get(near_miss.group)
        if known is None:
            known = self._at[near_miss.group] = deque(maxlen=REMEMBERED)
        known.append(near_miss.at)

    def medians(self) -> dict[tuple[str, ...], float]:
        """Return label of a group → the median offset in bytes."""
        return {(group,): median_low(offsets) for group, offsets in self._at.items()}
