"""Homes of keys."""

import collections
import random

from promptgroup_router.response_cache.canonical import CacheKey
from promptgroup_router.response_cache.home import home_of

NUMBERS = [random.Random(number).getrandbits(64) for number in range(4)]
KEYS = [CacheKey(random.Random(number).randbytes(32)) for number in range(4000)]


def seen_by(own: int, key: CacheKey, routers=NUMBERS) -> int:
    found = home_of(key, own, [(other, other) for other in routers if other != own])
    return own if found is None else found


def test_all_routers_agree():
    assert all(len({seen_by(own, key) for own in NUMBERS}) == 1 for key in KEYS[:500])


def test_each_router_has_its_share_and_only_a_lost_one_s_keys_move():
    homes = {key: seen_by(NUMBERS[0], key) for key in KEYS}
    assert all(800 < count < 1200 for count in collections.Counter(homes.values()).values())
    left = NUMBERS[:3]
    assert all(seen_by(NUMBERS[0], key, left) == home for key, home in homes.items() if home in left)


def test_a_router_alone_is_the_home_of_everything():
    assert all(home_of(key, NUMBERS[0], []) is None for key in KEYS[:10])
