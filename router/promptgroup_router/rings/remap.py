"""Predicts by sampling keys how many sessions a new table moves. Does no I/O and reads no clock."""

from collections.abc import Iterator

import xxhash

from promptgroup_router.rings.ids import NO_MEMBER, MemberId
from promptgroup_router.rings.index import Candidates, GroupEntry, RoutingIndex

SAMPLES = 1024
"""Keys sampled. A share of 0.2 is known to within 0.025 (two standard deviations), in 2 ms per group that changed."""


def remapped_shares(old: RoutingIndex, new: RoutingIndex) -> Iterator[tuple[str, float]]:
    """Yield group label → share of its keys whose first ready slot differs, over the revisions in both tables."""
    before = {group.label: group for group in old.groups}
    for group in new.groups:
        known = before.get(group.label)
        if known is not None:
            yield group.label, _share(known, group)


def _share(old: GroupEntry, new: GroupEntry) -> float:
    before = {revision.candidates.id: revision.candidates for revision in old.revisions if revision.candidates.ready}
    shares = [
        _candidates_share(before[revision.candidates.id], revision.candidates)
        for revision in new.revisions
        if revision.candidates.id in before
    ]
    return max(shares, default=0.0)


def _candidates_share(old: Candidates, new: Candidates) -> float:
    if [member.id for member in old.ready] == [member.id for member in new.ready]:
        return 0.0
    return sum(_home(old, key) != _home(new, key) for key in _keys()) / SAMPLES


def _home(candidates: Candidates, key: int) -> MemberId:
    member = next(candidates.order(key), None)
    return member.id if member is not None else NO_MEMBER


def _keys() -> Iterator[int]:
    return (xxhash.xxh3_64_intdigest(number.to_bytes(4, "little")) for number in range(SAMPLES))
