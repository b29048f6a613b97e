"""Detects requests that nearly match a group: which group, and where their text diverges from the declared one.

A request without a group is compared with the prompts declared for its model. It is a near miss of one if its system
text begins like the declared text for most of it, or ends with its end: an edited line, a date in the middle or on top,
an old client. A text that shares less is another prompt. Only the number of equal bytes is stored, and not the text.
The record is bounded.
"""

from collections import deque
from collections.abc import Container
from statistics import median_low
from typing import NamedTuple

from promptgroup_contract.table import Revision
from promptgroup_router.apis.request import ParsedRequest, size_of
from promptgroup_router.prefixes.leading import Leading
from promptgroup_router.rings.claims import Claim, common_length
from promptgroup_router.rings.index import RevisionEntry, TenantEntry
from promptgroup_router.routing.points import RequestFeature

ALIKE = 0.5
"""Share of a declared text that a near miss must begin with: many prompts begin with the same sentence."""
ENDING = 128
"""Characters at the end of a declared text that a near miss must have near its own end if its beginning differs."""
NEAR_END = 2048
"""Characters that count as the end of a request. What clients put behind a prompt is shorter, or it is the
conversation."""
REMEMBERED = 64
"""Latest offsets that are stored per group: their median is stable while one client in three differs elsewhere."""


COARSE_BYTES = 256
"""Offsets in a secret prompt are rounded down to this: exact ones would confirm each correctly guessed byte."""


class NearMiss(NamedTuple):
    """A request that nearly matches a declared prompt."""

    group: str
    """`namespace/group`."""
    at: int
    """Bytes of the declared text before the first one that differs; rounded down where the prompt is secret."""


class UnmatchedPrompt(RequestFeature):
    """The prompt of a request that no group declares."""

    __slots__ = ("leading", "near_miss")

    def __init__(self, leading: Leading, near_miss: NearMiss | None) -> None:
        self.leading = leading
        self.near_miss = near_miss
        """Set if the request nearly matches a group."""


def find_near_miss(model: TenantEntry, request: ParsedRequest) -> NearMiss | None:
    """Return the declared prompt that a request without a group nearly matches, or None if it is another prompt.

    A prompt with other tools is another prompt: the chat template puts them before or behind the text.
    """
    declared = model.claims.alike(request.tools, request.system)
    near = next((item for item in declared if item.characters >= ALIKE * len(item.claim.system or "")), None)
    best = _near_miss(near.claim, near.characters) if near is not None else None
    end = request.system[-NEAR_END:]
    for claim in model.claims.longest(request.tools):
        text = claim.system or ""
        if len(text) >= ENDING and text[-ENDING:] in end:
            near_miss = _near_miss(claim, common_length(text, request.system))
            if best is None or near_miss.at > best.at:
                best = near_miss
    return best


def _near_miss(claim: Claim[RevisionEntry], characters: int) -> NearMiss:
    return NearMiss(claim.entry.label, offset(size_of((claim.system or "")[:characters]), claim.entry.revision))


def offset(at: int, revision: Revision) -> int:
    """Return an offset into a prompt, in bytes, rounded to the precision in which it may be disclosed."""
    return at - at % COARSE_BYTES if revision.is_secret else at


class NearMisses:
    """The offsets at which recent requests diverged from each group's prompt."""

    def __init__(self) -> None:
        self._at: dict[str, deque[int]] = {}

    def add(self, near_miss: NearMiss) -> None:
        """Count a request."""
        times = self._at.get(near_miss.group)
        if times is None:
            times = self._at[near_miss.group] = deque(maxlen=REMEMBERED)
        times.append(near_miss.at)

    def keep(self, result: Container[tuple[str, ...]]) -> None:
        """Drop the offsets of all groups but those with labels in `result`."""
        for group in [group for group in self._at if (group,) not in result]:
            del self._at[group]

    def medians(self) -> dict[tuple[str, ...], float]:
        """Return label of a group → the median offset in bytes."""
        return {(group,): median_low(offsets) for group, offsets in self._at.items()}
