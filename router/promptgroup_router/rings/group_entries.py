"""Builds the entries of groups: their members, the members that they borrow, and their rings.

Unchanged parts of the previous entry are reused, so that entries of groups that borrow a member need no rebuild.
"""

from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import replace

from promptgroup_contract.fingerprint import Fingerprint
from promptgroup_contract.fingerprint import short as short_form
from promptgroup_contract.table import Group, OwnInstructions, Revision, Sharing, Slot, SlotState, rank_numbers
from promptgroup_router.apis.request import Preamble
from promptgroup_router.apis.request import preamble as preamble_of
from promptgroup_router.rings.ids import MemberId, PrefixKey, member_id
from promptgroup_router.rings.index import (
    Candidates,
    GroupEntry,
    Lenders,
    LendingKey,
    Member,
    RevisionEntry,
    hash_of,
    places_of,
)
from promptgroup_router.rings.ring import NO_SLOTS, ring_of

Own = list[tuple[tuple[Member, ...], tuple[Member, ...]]]
"""For each revision of a group, its ready members and its draining ones."""


def own_steps(group: Group, label: str, entry: GroupEntry | None) -> Generator[None, None, Own]:
    """Return the members of a group, built one in each step; unchanged members are the same objects as before."""
    members: dict[MemberId, Member] = {}
    for revision_entry in entry.revisions if entry is not None else ():
        for had in (*revision_entry.candidates.ready, *revision_entry.candidates.draining):
            members[had.id] = had
    own: Own = []
    for revision in group.revisions:
        ready, draining = list[Member](), list[Member]()
        for slot in revision.slots:
            for rank in rank_numbers(slot.ranks) if slot.state is not SlotState.ABSENT else ():
                made = _member(label, revision.fingerprint, slot, rank)
                member = members.get(made.id)
                (ready if slot.state is SlotState.READY else draining).append(made if member != made else member)
                yield
        own.append((tuple(ready), tuple(draining)))
    return own


def _member(label: str, fingerprint: Fingerprint, slot: Slot, rank: int | None) -> Member:
    return Member(
        id=member_id(label, fingerprint, slot.index, rank),
        group=label,
        fingerprint=fingerprint,
        slot=slot.index,
        address=slot.address,
        incarnation=slot.incarnation,
        credential=slot.credential,
        tls=slot.tls,
        rank=rank,
    )


def _lending_key(group: Group, revision: Revision) -> LendingKey | None:
    """Return the key under which a revision lends and borrows replicas, or None if it does neither."""
    # engines of another revision may have another adapter, whose answers are not this one's
    if group.sharing is Sharing.DEDICATED or not revision.engine.settings or group.base_model:
        return None
    return group.namespace, group.model, revision.engine.settings, group.access, group.callers.without_limits


def lender_steps(
    before: Mapping[LendingKey, Lenders], stale: Sequence[GroupEntry], changed: Sequence[tuple[Group, Own]]
) -> Generator[None, None, tuple[Mapping[LendingKey, Lenders], Collection[LendingKey | None]]]:
    """Return the lenders of a table, and the keys under which they have changed.

    Args:
        before: the lenders of the previous table.
        stale: its groups that were removed or have changed.
        changed: groups that are new or have changed, with their members.
    """
    gone: dict[LendingKey, dict[MemberId, Member]] = {}
    come: dict[LendingKey, list[Member]] = {}
    for entry in stale:
        for item in entry.revisions:
            if item.lending is not None and item.revision.lends:
                gone.setdefault(item.lending, {}).update({member.id: member for member in item.candidates.ready})
        yield
    for group, own in changed:
        for revision, (ready, _) in zip(group.revisions, own, strict=True):
            key = _lending_key(group, revision)
            if key is not None and revision.lends:
                left = gone.get(key, {})
                for member in ready:
                    if left.get(member.id) is member:
                        del left[member.id]
                    else:
                        come.setdefault(key, []).append(member)
        yield
    moved = {key for key, left in gone.items() if left} | come.keys()
    lenders = dict(before)
    for key in moved:
        made = yield from lenders.get(key, Lenders()).changed(list(gone.get(key, {}).values()), come.get(key, []))
        if made:
            lenders[key] = made
        else:
            lenders.pop(key, None)
    return lenders, moved


def group_entry(
    group: Group,
    label: str,
    own: Own | None,
    entry: GroupEntry | None,
    lenders: Mapping[LendingKey, Lenders],
) -> GroupEntry:
    """Return the entry of a group; its previous one if its own and its borrowed members are unchanged.

    Args:
        group: the group.
        label: `namespace/name`.
        own: the members of its revisions; None if the group has not changed.
        entry: its previous entry, if any.
        lenders: the members that lend.
    """
    had = entry.revisions if entry is not None else ()
    if own is None:
        own = [(item.candidates.ready, item.candidates.draining) for item in had]
        keys = [item.lending for item in had]
    else:
        entry = None
        keys = [_lending_key(group, revision) for revision in group.revisions]
    revisions = []
    same = True
    for number, revision in enumerate(group.revisions):
        key, (ready, draining) = keys[number], own[number]
        siblings: tuple[Member, ...] = ()
        lent: tuple[Member, ...] = ()
        if key is not None:
            siblings = tuple(
                member
                for other, item in enumerate(group.revisions)
                if other != number and item.lends and keys[other] == key
                for member in own[other][0]
            )
            # a group scaled to zero on purpose borrows no replicas, on which its prompt would be cold
            if key in lenders and (ready or group.sleep is None):
                lent = lenders[key].lent(label, revision)
        # during a release the group's other revisions are the last resort: see Candidates.last_resort
        if not ready and not lent:
            lent, siblings = siblings, ()
        if entry is not None:
            candidates = entry.revisions[number].candidates
            last = candidates.last_resort.lent if candidates.last_resort is not None else ()
            if candidates.lent == lent and last == siblings:
                revisions.append(entry.revisions[number])
                continue
        same = False
        candidates = _revision_candidates(group, label, revision, ready, draining, lent=lent, siblings=siblings)
        revisions.append(
            RevisionEntry(
                group=group,
                label=label,
                revision=revision,
                short=short_form(revision.fingerprint),
                prefix=PrefixKey(hash_of(revision.fingerprint)),
                candidates=candidates,
                preamble=_preamble(group, revision, had),
                lending=key,
            )
        )
    return entry if entry is not None and same else GroupEntry(group, label, tuple(revisions))


def _preamble(group: Group, revision: Revision, had: Sequence[RevisionEntry]) -> Preamble | None:
    """Return a revision's prompt as it is sent, None until its text is read; built once, since prompts are long."""
    prompt = revision.prompt
    if prompt is None:
        return None
    for item in had:
        same = item.group.model == group.model and item.group.own_instructions is group.own_instructions
        if same and item.revision.prompt == prompt:
            return item.preamble
    return preamble_of(prompt, group.model, appends=group.own_instructions is OwnInstructions.APPEND)


def _revision_candidates(
    group: Group,
    label: str,
    revision: Revision,
    ready: tuple[Member, ...],
    draining: tuple[Member, ...],
    *,
    lent: tuple[Member, ...],
    siblings: tuple[Member, ...],
) -> Candidates:
    candidates = Candidates(
        id=f"{label}/{revision.fingerprint}",
        policy=group.policy,
        load_factor_percent=group.load_factor_percent,
        # every slot, whatever its state: the keys of an absent slot map to the next one until it returns
        ring=ring_of(frozenset(places_of(revision))),
        ready=ready,
        lent=lent,
        time_limits=group.time_limits,
        responses=group.responses,
        max_resumes=group.max_resumes,
        settings=revision.engine.settings,
        unranked=revision.engine.unranked,
        served_model=revision.served_model,
        served_apis=revision.served_apis,
        draining=draining,
        rules=group.callers,
        access=group.access,
        sleep=group.sleep,
        sleeper=label if group.sleep is not None else "",
    )
    if siblings:
        fallback = replace(candidates, ring=NO_SLOTS, ready=(), lent=siblings)
        candidates = replace(candidates, last_resort=fallback)
    return candidates
