from promptgroup_contract.access import Caller
from promptgroup_router.features.isolation.salts import REMEMBERED, SALT_BYTES, Salts
from promptgroup_router.prefixes.cache_domain import SHARED, TAG_BYTES
from promptgroup_router.rings.ids import PrefixKey

A, B = Caller("a"), Caller("b")


def test_a_salt_depends_on_the_key_the_namespace_and_the_name():
    salts, other = Salts(b"k" * 32), Salts(b"l" * 32)
    made = [salts.of("x", A), salts.of("x", B), salts.of("y", A), salts.of("xa", Caller("")), other.of("x", A)]
    assert len({each.salt for each in made}) == len({each.mask for each in made}) == 5
    assert all(len(each.salt) == 2 * SALT_BYTES and each.salt.isalnum() for each in made)


def test_routers_with_one_key_make_the_same_salts():
    one, two = Salts(b"1" * 32), Salts(b"2" * 32)
    one.of("x", A)
    for salts in (one, two):
        salts.rekey(b"shared" * 20)
    assert one.of("x", A) == two.of("x", A)


def test_the_number_of_remembered_callers_is_bounded():
    salts = Salts(b"k" * 32)
    first = salts.of("x", A)
    for number in range(REMEMBERED + 5):
        salts.of("x", Caller(str(number)))
    assert len(salts._domains) <= REMEMBERED
    assert salts.of("x", A) == first


def test_prefixes_of_two_callers_are_two():
    salts = Salts(b"k" * 32)
    shared = PrefixKey(7)
    assert SHARED.prefix(shared) == shared
    assert len({shared, salts.of("x", A).prefix(shared), salts.of("x", B).prefix(shared)}) == 3


def test_a_tag_is_of_one_caller_and_one_text():
    domain = Salts(b"k" * 32).of("x", A)
    assert len(domain.tag(b"1")) == TAG_BYTES
    assert len({domain.tag(b"1"), domain.tag(b"2"), Salts(b"k" * 32).of("x", B).tag(b"1")}) == 3
