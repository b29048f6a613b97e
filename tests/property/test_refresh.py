"""The bound that spares touches holds of a real cache: while it does, the prefix is there."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_local.engine.kvcache import KVCache, TokenSequence
from promptgroup_operator.warmth.refresh import pressed
from support.builders import reading
from support.examples import examples

BLOCK, BLOCKS = 16, 64
PREFIX = list(range(4 * BLOCK))


def serve(cache, tokens, answer=0):
    """Admit a sequence and compute it with its answer, as far as there is room; its blocks stay held."""
    sequence = TokenSequence(list(tokens))
    found = cache.admit(sequence, len(tokens))
    if found is None:
        return None
    sequence.tokens.extend(range(10**6, 10**6 + answer))
    if not cache.grow(sequence, len(sequence.tokens)):
        sequence.tokens = sequence.tokens[: len(tokens)]
    cache.commit(sequence, len(sequence.tokens))
    return sequence, found


REQUESTS = st.lists(
    st.tuples(
        st.integers(0, 6),  # which conversation
        st.integers(BLOCK, 12 * BLOCK),  # tokens of it
        st.integers(0, 40),  # tokens of its answer
        st.booleans(),  # whether it runs on
    ),
    max_size=30,
)


@pytest.mark.heavy
@examples(300)
@given(REQUESTS, REQUESTS)
def test_a_prefix_is_in_cache_until_the_counters_say_that_it_may_be_gone(before, after):
    cache = KVCache(BLOCKS, BLOCK)
    queries = generated = 0
    running = []

    def counters():
        return reading(queries, generated=generated, usage=cache.usage, kv_tokens=BLOCKS * BLOCK)

    def run(requests):
        nonlocal queries, generated
        for which, length, answer, runs_on in requests:
            served = serve(cache, range(1000 * (which + 1), 1000 * (which + 1) + length), answer)
            if served is not None:
                sequence, _ = served
                queries += length
                generated += len(sequence.tokens) - length
                running.append(sequence)
            if running and not runs_on:
                cache.release(running.pop(0))
            yield

    for _ in run(before):
        pass
    then = counters()
    touched = serve(cache, [*PREFIX, -1])
    if touched is None:
        return
    cache.release(touched[0])
    for _ in run(after):
        if pressed(then, counters(), len(PREFIX)):
            return
        cached = sum(key in cache._cached for key in prefix_keys(cache))
        assert cached == len(PREFIX) // BLOCK


def prefix_keys(cache):
    sequence = TokenSequence([*PREFIX, -1])
    return [cache._key(sequence, index) for index in range(len(PREFIX) // BLOCK)]


RANKS = 3
AMONG_RANKS = st.lists(
    st.tuples(st.integers(0, RANKS - 1), st.integers(0, 6), st.integers(BLOCK, 12 * BLOCK), st.integers(0, 40)),
    max_size=60,
)


@pytest.mark.heavy
@examples(200)
@given(AMONG_RANKS)
def test_a_prefix_is_in_the_cache_of_each_rank_until_the_busiest_may_have_lost_it(requests):
    caches = [KVCache(BLOCKS, BLOCK) for _ in range(RANKS)]
    taken = [0] * RANKS

    def counters():
        whole = reading(sum(taken), kv_tokens=RANKS * BLOCKS * BLOCK)
        return replace(whole, ranks=RANKS, by_rank=tuple(map(float, taken)))

    for cache in caches:
        cache.release(serve(cache, [*PREFIX, -1])[0])
    then = counters()
    for rank, which, length, answer in requests:
        served = serve(caches[rank], range(1000 * (which + 1), 1000 * (which + 1) + length), answer)
        if served is not None:
            taken[rank] += len(served[0].tokens)
            caches[rank].release(served[0])
        if pressed(then, counters(), len(PREFIX)):
            return
        for cache in caches:
            assert all(key in cache._cached for key in prefix_keys(cache))
