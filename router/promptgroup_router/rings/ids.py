"""The ids by which a router keeps records: of a member, of its hash, and of a Tier-1 prefix.

Each has a type of its own, because all of them are texts or numbers of 64 bits that stand side by side in one record.
"""

from typing import Final, NamedTuple, NewType

import xxhash

from promptgroup_contract.fingerprint import Fingerprint, ShortFingerprint, short

MemberId = NewType("MemberId", str)
"""`namespace/group/fingerprint/slot`: the key of load and health records, which outlives pods and tables."""
NO_MEMBER: Final = MemberId("")
MemberHash = NewType("MemberHash", int)
"""Hash of a member's id (64 bits), by which peers and the ids of responses name the member."""
PrefixKey = NewType("PrefixKey", int)
"""Names a Tier-1 prefix (64 bits): the hash of its fingerprint, or of an undeclared prompt's start."""


class MemberParts(NamedTuple):
    """The parts of a member's id."""

    group: str
    """`namespace/group`."""
    fingerprint: Fingerprint
    slot: int

    @property
    def revision(self) -> ShortFingerprint:
        """The short fingerprint."""
        return short(self.fingerprint)

    @property
    def label(self) -> str:
        """The id with a short fingerprint, for clients and logs."""
        return f"{self.group}/{self.revision}/{self.slot}"


def member_id(group: str, fingerprint: Fingerprint, slot: int) -> MemberId:
    """Return the id of a slot; `group` is `namespace/group`."""
    return MemberId(f"{group}/{fingerprint}/{slot}")


def member_parts(member: MemberId) -> MemberParts:
    """Return the parts of an id, also of a member that is gone."""
    group, fingerprint, slot = member.rsplit("/", 2)
    return MemberParts(group, Fingerprint(fingerprint), int(slot))


def member_hash(member: MemberId) -> MemberHash:
    """Return the hash of a member's id."""
    return MemberHash(xxhash.xxh3_64_intdigest(member.encode()))
