"""What answers say of the cache."""

from promptgroup_router.response_cache import cache_status
from promptgroup_router.response_cache.cacheable import Bypass
from support.asks import BORN, answer

KEY = (b"x-promptgroup-cache-key", b"00" * 31 + b"01")


def test_each_way_has_its_words():
    kept = answer(1)
    assert cache_status.of_hit(kept, BORN + 10.5) == [
        (b"age", b"10"),
        (b"cache-status", b"promptgroup; hit; ttl=49"),
        KEY,
    ]
    assert cache_status.of_miss(kept.key, reload=False) == [(b"cache-status", b"promptgroup; fwd=miss"), KEY]
    assert cache_status.of_miss(kept.key, reload=True) == [(b"cache-status", b"promptgroup; fwd=request"), KEY]
    assert cache_status.of_collapsed(kept.key) == [(b"cache-status", b"promptgroup; fwd=miss; collapsed"), KEY]
    assert cache_status.of_bypass(Bypass.MEDIA) == [(b"cache-status", b"promptgroup; fwd=bypass; detail=media")]
