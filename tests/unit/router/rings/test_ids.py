from hypothesis import given
from hypothesis import strategies as st

from promptgroup_contract.fingerprint import Fingerprint
from promptgroup_contract.table import MOST_RANKS, MOST_SLOT
from promptgroup_router.rings.ids import member_hash, member_id, member_parts, ring_place

FULL = Fingerprint("9f2c61d0" + "0" * 24)
NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,20}", fullmatch=True)


@given(namespace=NAMES, name=NAMES, slot=st.integers(0, 999), rank=st.none() | st.integers(0, 255))
def test_an_id_has_the_parts_that_it_was_made_of(namespace, name, slot, rank):
    parts = member_parts(member_id(f"{namespace}/{name}", FULL, slot, rank))
    assert parts == (f"{namespace}/{name}", FULL, slot, rank)
    assert parts.label == f"{namespace}/{name}/9f2c61d0/{slot}" + ("" if rank is None else f".{rank}")


def test_each_rank_has_a_place_of_its_own_and_the_first_that_of_its_slot():
    places = {ring_place(slot, rank) for slot in (0, 1, MOST_SLOT) for rank in range(MOST_RANKS)}
    assert len(places) == 3 * MOST_RANKS
    assert ring_place(7, None) == ring_place(7, 0) == 7


def test_peers_of_every_version_name_a_member_by_the_same_hash():
    assert member_hash(member_id("chat/support", FULL, 0)) == 0xDA6975757D81B327
