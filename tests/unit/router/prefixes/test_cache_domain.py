"""The part of engines' caches that a request uses."""

from promptgroup_router.prefixes.cache_domain import SHARED, TAG_BYTES, CacheDomain
from promptgroup_router.rings.ids import PrefixKey


def test_the_shared_part_has_the_keys_of_prefixes_unchanged():
    assert SHARED.prefix(PrefixKey(5)) == 5
    assert CacheDomain("salt", 6).prefix(PrefixKey(5)) == 3


def test_a_tag_needs_the_salt():
    tag = CacheDomain("salt", 6).tag(b"data")
    assert len(tag) == TAG_BYTES
    assert tag not in (CacheDomain("other", 6).tag(b"data"), CacheDomain("salt", 6).tag(b"other"))
