import tracemalloc

from promptgroup_router.prefixes.cached_prefixes import LIMIT, CachedPrefixes

CHAIN = [11, 12, 13, 14]
LENGTHS = [250, 500, 750, 1000]


def test_the_longest_prefix_that_two_prompts_share_is_found():
    cached = CachedPrefixes()
    cached.use_all(CHAIN, LENGTHS, 0)
    assert cached.longest(CHAIN) == 4
    assert cached.longest([11, 12, 98, 99]) == 2
    assert cached.longest([97, 98, 99]) == 0
    assert cached.longest([]) == 0


def test_the_end_of_a_prompt_is_evicted_before_its_start():
    cached = CachedPrefixes()
    cached.use_all(CHAIN, LENGTHS, 0)
    for written, left in ((0, 4), (250, 3), (251, 1), (251, 0)):
        cached.write(written)
        cached.evict(1000)
        assert cached.longest(CHAIN) == left


def test_what_is_used_again_stays_and_counts_once():
    cached = CachedPrefixes()
    for turn in range(50):
        cached.use_all(CHAIN[:2], LENGTHS[:2], 0)
        cached.use_all([100 + turn], [400], 0)
        cached.evict(1000)
        assert cached.longest(CHAIN[:2]) == 2


def test_tokens_in_front_of_the_first_prefix_are_not_its_own():
    cached = CachedPrefixes()
    cached.use_all(CHAIN, LENGTHS, 200)
    cached.evict(800)
    assert cached.longest(CHAIN) == 4


def test_a_prompt_that_was_never_computed_takes_only_its_own_prefixes_with_it():
    cached = CachedPrefixes()
    cached.use_all(CHAIN[:2], LENGTHS[:2], 0)
    cached.use_all([11, 12, 23, 24], LENGTHS, 0)
    cached.drop([11, 12, 23, 24], 2)
    assert (cached.longest([11, 12, 23, 24]), len(cached)) == (2, 2)
    cached.evict(500)
    assert len(cached) == 2


def test_entries_are_bounded_whatever_their_tokens_and_small():
    tracemalloc.start()
    cached = CachedPrefixes()
    for number in range(2 * LIMIT):
        cached.use((number * 0x9E3779B97F4A7C15) % 2**64, 0)
        cached.evict(10**9)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(cached) == LIMIT
    assert held / LIMIT < 260
