from hypothesis import given
from hypothesis import strategies as st

from promptgroup_contract.fingerprint import Fingerprint
from promptgroup_router.rings.ids import member_hash, member_id, member_parts

FULL = Fingerprint("9f2c61d0" + "0" * 24)
NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,20}", fullmatch=True)


@given(namespace=NAMES, name=NAMES, slot=st.integers(0, 999))
def test_an_id_has_the_parts_that_it_was_made_of(namespace, name, slot):
    parts = member_parts(member_id(f"{namespace}/{name}", FULL, slot))
    assert parts == (f"{namespace}/{name}", FULL, slot)
    assert parts.label == f"{namespace}/{name}/9f2c61d0/{slot}"


def test_peers_of_every_version_name_a_member_by_the_same_hash():
    assert member_hash(member_id("chat/support", FULL, 0)) == 0xDA6975757D81B327
