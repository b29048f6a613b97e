"""The block cache against a naive model that remembers whole prefixes."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from promptgroup_local.engine.kvcache import Block, KVCache, TokenSequence
from support.examples import examples

PROMPTS = st.lists(st.integers(0, 1), min_size=1, max_size=24)  # two tokens only: prefixes meet often
SALTS = st.sampled_from(["", "a", "b"])


def run(cache: KVCache, sequence: TokenSequence) -> int:
    """One whole request: tokens found."""
    found = cache.admit(sequence, len(sequence.tokens))
    assert found is not None
    cache.commit(sequence, len(sequence.tokens))
    cache.release(sequence)
    return found


@given(st.lists(st.tuples(PROMPTS, SALTS), max_size=40), st.integers(1, 5))
def test_an_unlimited_cache_finds_the_longest_known_prefix_of_whole_blocks(
    requests: list[tuple[list[int], str]], size: int
) -> None:
    cache = KVCache(1 << 40, size)
    known: set[tuple[str, tuple[int, ...]]] = set()
    for tokens, salt in requests:
        whole = [end for end in range(size, len(tokens), size) if (salt, tuple(tokens[:end])) in known]
        assert run(cache, TokenSequence(list(tokens), salt)) == max(whole, default=0)
        known |= {(salt, tuple(tokens[:end])) for end in range(size, len(tokens) + 1, size)}


@given(PROMPTS, st.integers(1, 5))
def test_a_hit_never_covers_the_last_token_and_misses_at_most_one_block(tokens: list[int], size: int) -> None:
    cache = KVCache(100, size)
    run(cache, TokenSequence(list(tokens)))
    found = run(cache, TokenSequence(list(tokens)))
    assert found < len(tokens) <= found + size


@given(PROMPTS)
def test_nothing_is_found_when_caching_is_off(tokens: list[int]) -> None:
    cache = KVCache(100, 2, caching=False)
    assert [run(cache, TokenSequence(list(tokens))) for _ in range(2)] == [0, 0]
    assert cache.free == cache.capacity


class CacheMachine(RuleBasedStateMachine):
    """Requests that come, grow, end and are preempted, in a cache that is too small for them."""

    @initialize(capacity=st.integers(1, 12), size=st.integers(1, 4))
    def start(self, capacity: int, size: int) -> None:
        self.cache = KVCache(capacity, size)
        self.running: list[tuple[TokenSequence, int]] = []
        """Sequences and how many of their tokens are computed."""

    @rule(tokens=PROMPTS, salt=SALTS, budget=st.integers(1, 24))
    def admit(self, tokens: list[int], salt: str, budget: int) -> None:
        sequence = TokenSequence(list(tokens), salt)
        free = self.cache.free
        found = self.cache.admit(sequence, budget)
        if found is None:
            assert (self.cache.free, sequence.blocks) == (free, [])
            return
        assert found % self.cache.block_size == 0
        assert all(block.key for block in sequence.blocks[: found // self.cache.block_size])
        computed = min(found + budget, len(tokens))
        self.cache.commit(sequence, computed)
        self.running.append((sequence, computed))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), token=st.integers(0, 1))
    def grow(self, data: st.DataObject, token: int) -> None:
        index = data.draw(st.integers(0, len(self.running) - 1))
        sequence, computed = self.running[index]
        if computed == len(sequence.tokens):
            sequence.tokens.append(token)
        blocks = list(sequence.blocks)
        if self.cache.grow(sequence, computed + 1):
            self.cache.commit(sequence, computed + 1)
            self.running[index] = (sequence, computed + 1)
        else:
            assert sequence.blocks == blocks
            assert self.cache.free == 0

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        sequence, _ = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        self.cache.release(sequence)
        assert not sequence.blocks

    @rule()
    def reset(self) -> None:
        assert self.cache.reset() == (not self.running)

    @invariant()
    def references_are_counted_exactly(self) -> None:
        if not hasattr(self, "cache"):
            return
        held: Counter[Block] = Counter(block for sequence, _ in self.running for block in sequence.blocks)
        assert all(block.references == count for block, count in held.items())
        assert all(block.references == 0 for block in self.cache._idle)
        assert len(held) + self.cache.free == self.cache.capacity
        assert 0 <= self.cache.usage <= 1

    @invariant()
    def what_runs_is_never_evicted_and_what_is_findable_exists(self) -> None:
        if not hasattr(self, "cache"):
            return
        for sequence, computed in self.running:
            for block in sequence.blocks[: computed // self.cache.block_size]:
                assert block in self.cache._cached[block.key]
        findable = {block for copies in self.cache._cached.values() for block in copies}
        held = {block for sequence, _ in self.running for block in sequence.blocks}
        assert findable <= held | set(self.cache._idle)
        assert set(self.cache._idle) <= findable

    def teardown(self) -> None:
        for sequence, _ in getattr(self, "running", []):
            self.cache.release(sequence)
        if hasattr(self, "cache"):
            assert self.cache.free == self.cache.capacity


TestCache = pytest.mark.heavy(CacheMachine.TestCase)
TestCache.settings = examples(60, stateful_step_count=40)
