from promptgroup_local.engine.kvcache import KVCache, TokenSequence


def finished(cache: KVCache, tokens: range, salt: str = "") -> int:
    sequence = TokenSequence(list(tokens), salt)
    found = cache.admit(sequence, len(sequence.tokens))
    assert found is not None
    cache.commit(sequence, len(sequence.tokens))
    cache.release(sequence)
    return found


def test_the_tail_of_a_released_chain_is_evicted_before_its_head() -> None:
    cache = KVCache(4, 2)
    finished(cache, range(8))
    finished(cache, range(100, 102))  # takes one block
    assert finished(cache, range(8)) == 6


def test_the_least_recently_used_chain_is_evicted_first() -> None:
    cache = KVCache(6, 2)
    finished(cache, range(5))
    finished(cache, range(10, 15))
    finished(cache, range(5))  # used again
    finished(cache, range(20, 25))  # needs three blocks, two are empty
    assert finished(cache, range(5)) == 4
    assert finished(cache, range(10, 15)) == 2


def test_two_requests_that_compute_one_prefix_at_once_hold_a_copy_each() -> None:
    cache = KVCache(8, 2)
    one, two = TokenSequence(list(range(4))), TokenSequence(list(range(4)))
    assert cache.admit(one, 4) == 0
    assert cache.admit(two, 4) == 0
    cache.commit(one, 4)
    cache.commit(two, 4)
    assert cache.free == 4
    cache.release(one)
    three = TokenSequence(list(range(4)))
    assert cache.admit(three, 4) == 2
    for sequence in (two, three):
        cache.release(sequence)
    assert cache.free == 8


def test_equal_tokens_under_another_salt_never_meet() -> None:
    cache = KVCache(100, 2)
    finished(cache, range(9), "a")
    assert finished(cache, range(9), "b") == 0
    assert finished(cache, range(9)) == 0
    assert finished(cache, range(9), "a") == 8


def test_a_found_prefix_that_nobody_uses_is_not_counted_as_room_for_the_rest() -> None:
    cache = KVCache(3, 2)
    finished(cache, range(4))
    runs = TokenSequence(list(range(50, 52)))
    assert cache.admit(runs, 2) == 0
    assert cache.admit(TokenSequence(list(range(8))), 8) is None
    assert cache.admit(TokenSequence(list(range(4))), 4) == 2


def test_reset_is_refused_while_a_request_runs() -> None:
    cache = KVCache(8, 2)
    finished(cache, range(6))
    sequence = TokenSequence(list(range(6)))
    cache.admit(sequence, 6)
    assert not cache.reset()
    cache.release(sequence)
    assert cache.reset()
    assert finished(cache, range(6)) == 0


def test_whole_blocks_of_a_length() -> None:
    assert [KVCache(8, 4).whole_blocks(tokens) for tokens in (0, 3, 4, 9)] == [0, 0, 4, 8]


def found_by(cache: KVCache, tokens: range, salt: str = "") -> tuple[int, int]:
    """Tokens that a finished request found, and those of them that the tier brought."""
    sequence = TokenSequence(list(tokens), salt)
    found = cache.admit(sequence, len(sequence.tokens))
    assert found is not None
    cache.commit(sequence, len(sequence.tokens))
    cache.release(sequence)
    return found, sequence.copied


def test_what_was_evicted_or_reset_is_copied_back_from_the_tier() -> None:
    cache = KVCache(4, 2, behind=100)
    assert found_by(cache, range(8)) == (0, 0)
    found_by(cache, range(100, 104))  # takes two blocks
    assert found_by(cache, range(8)) == (6, 2)
    assert found_by(cache, range(8)) == (6, 0)
    assert cache.reset()
    assert found_by(cache, range(8)) == (6, 6)


def test_a_tier_keeps_salts_apart_and_drops_what_was_used_least_lately() -> None:
    cache = KVCache(4, 2, behind=4)
    found_by(cache, range(8))
    assert cache.reset()
    assert found_by(cache, range(8), "other") == (0, 0)
    assert cache.reset()
    assert found_by(cache, range(8)) == (0, 0)


def test_without_a_tier_nothing_comes_back() -> None:
    cache = KVCache(4, 2)
    found_by(cache, range(8))
    assert cache.reset()
    assert found_by(cache, range(8)) == (0, 0)
