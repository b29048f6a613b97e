"""Predicts by sampling keys the share of sessions that a new table moves."""

from collections.abc import Generator

import xxhash

from promptgroup_router.rings.ids import NO_MEMBER, MemberId
from promptgroup_router.rings.index import Candidates, GroupEntry, RoutingIndex

SAMPLES = 1024
"""Most keys sampled. A share of 0.2 is estimated to within 0.025 (two standard deviations), in 2 ms per changed
group."""
FEW_SAMPLES = 64
"""Fewest keys sampled, for a group with so many slots that each key takes long."""
MOST_WEIGHED = 2**17
"""Most slots weighed for all keys of a group together, above which fewer keys are sampled: 12 ms."""

Shares = dict[str, float]
"""Group label → share of its keys whose first ready slot differs, over the revisions in both tables."""


def remap_steps(old: RoutingIndex, new: RoutingIndex) -> Generator[None, None, Shares]:
    """Return the shares of the groups that are in both tables, in steps of a group or a key."""
    before = old.parts.labels
    shares = {}
    for group in new.groups:
        group_entry = before.get(group.label)
        if group_entry is not None:
            shares[group.label] = 0.0 if group_entry is group else (yield from _share(group_entry, group))
        yield
    return shares


def _share(old: GroupEntry, new: GroupEntry) -> Generator[None, None, float]:
    before = {revision.candidates.id: revision.candidates for revision in old.revisions if revision.candidates.ready}
    most = 0.0
    for revision in new.revisions:
        if revision.candidates.id in before:
            share = yield from _candidates_share(before[revision.candidates.id], revision.candidates)
            most = max(most, share)
    return most


def _candidates_share(old: Candidates, new: Candidates) -> Generator[None, None, float]:
    if [member.id for member in old.ready] == [member.id for member in new.ready]:
        return 0.0
    samples = max(FEW_SAMPLES, min(SAMPLES, MOST_WEIGHED // max(1, len(old.ready))))
    moved = 0
    for number in range(samples):
        key = xxhash.xxh3_64_intdigest(number.to_bytes(4, "little"))
        moved += _home(old, key) != _home(new, key)
        yield
    return moved / samples


def _home(candidates: Candidates, key: int) -> MemberId:
    member = next(candidates.order(key), None)
    return member.id if member is not None else NO_MEMBER
