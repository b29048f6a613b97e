"""The ids by which a router keeps records: of a member, of its hash, and of a Tier-1 prefix.

Each has a type of its own, because all of them are strings or numbers of 64 bits that occur side by side in one record.
"""

from typing import Final, NamedTuple, NewType

import xxhash

from promptgroup_contract.fingerprint import Fingerprint, ShortFingerprint, short

MemberId = NewType("MemberId", str)
"""`namespace/group/fingerprint/slot`, followed by `.rank` for an engine with data-parallel ranks: the key of load
records, which outlives pods and tables."""
NO_MEMBER: Final = MemberId("")
MemberHash = NewType("MemberHash", int)
"""Hash of a member's id (64 bits), by which peers and the ids of responses name the member."""
PrefixKey = NewType("PrefixKey", int)
"""Identifies a Tier-1 prefix (64 bits): the hash of its fingerprint, or of an undeclared prompt's start."""


class MemberParts(NamedTuple):
    """The parts of a member's id."""

    group: str
    """`namespace/group`."""
    fingerprint: Fingerprint
    slot: int
    rank: int | None = None
    """Data-parallel rank; None for an engine that has none."""

    @property
    def revision(self) -> ShortFingerprint:
        """The short fingerprint."""
        return short(self.fingerprint)

    @property
    def label(self) -> str:
        """The id with a short fingerprint, for clients and logs."""
        return f"{self.group}/{self.revision}/{place_name(self.slot, self.rank)}"


def place_name(slot: int, rank: int | None) -> str:
    """Return the last part of ids and labels: `3` for a slot, `3.1` for a rank of its engine."""
    return str(slot) if rank is None else f"{slot}.{rank}"


def ring_place(slot: int, rank: int | None) -> int:
    """Return the number of a ring position. The first rank has that of its slot, so added ranks move few keys."""
    return slot if rank is None else rank << 32 | slot


def member_id(group: str, fingerprint: Fingerprint, slot: int, rank: int | None = None) -> MemberId:
    """Return the id of a slot, or of one rank of its engine; `group` is `namespace/group`."""
    return MemberId(f"{group}/{fingerprint}/{place_name(slot, rank)}")


def member_parts(member: MemberId) -> MemberParts:
    """Return the parts of an id, even if the table does not contain the member any more."""
    group, fingerprint, place = member.rsplit("/", 2)
    slot, _, rank = place.partition(".")
    return MemberParts(group, Fingerprint(fingerprint), int(slot), int(rank) if rank else None)


def member_hash(member: MemberId) -> MemberHash:
    """Return the hash of a member's id."""
    return MemberHash(xxhash.xxh3_64_intdigest(member.encode()))
