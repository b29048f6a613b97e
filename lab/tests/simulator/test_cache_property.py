"""The tree of stretches does what the block-wise cache does, at blocks of one token, where neither rounds."""

from hypothesis import given
from hypothesis import strategies as st

from promptgroup_local.engine.kvcache import KVCache, TokenSequence
from promptgroup_research.simulator.cache import Cache

CAPACITY = 60

conversations = st.lists(
    st.tuples(
        st.integers(0, 2),  # which root
        st.lists(st.tuples(st.integers(1, 9), st.integers(1, 6)), min_size=1, max_size=4),  # message, answer
    ),
    min_size=1,
    max_size=8,
)


class Conversation:
    def __init__(self, number, root, turns):
        self.number, self.turns, self.next = number, turns, 0
        self.nodes, self.sizes = (root,), (7,)
        self.tokens = [1000 * root + each for each in range(7)]
        self.running = None

    def begin(self, cache, blocks):
        message, answer = self.turns[self.next]
        node = 100 + 10 * self.number + self.next
        nodes, sizes = (*self.nodes, node), (*self.sizes, message)
        prompt = [*self.tokens, *(10_000 * node + each for each in range(message))]
        whole = TokenSequence([*prompt, *(10_000 * node + 100 + each for each in range(answer))])
        found = cache.find(nodes, sizes)
        admitted = blocks.admit(whole, len(whole.tokens))
        assert cache.admit(nodes, sizes, answer) is (admitted is not None)
        if admitted is None:
            return
        assert found == min(admitted, len(prompt) - 1)
        blocks.commit(whole, len(whole.tokens))
        self.running = (nodes, sizes, answer, whole)

    def end(self, cache, blocks):
        nodes, sizes, answer, whole = self.running
        cache.release(nodes, sizes, answer)
        blocks.release(whole)
        self.running = None
        self.nodes, self.sizes, self.tokens = nodes, (*sizes[:-1], sizes[-1] + answer), list(whole.tokens)
        self.next += 1


@given(conversations, st.lists(st.integers(0, 7), max_size=60))
def test_it_finds_admits_and_evicts_as_the_block_wise_cache(drawn, order):
    cache, blocks = Cache(CAPACITY, 1), KVCache(CAPACITY, 1)
    talks = [Conversation(number, *each) for number, each in enumerate(drawn)]
    for index in order:
        talk = talks[index % len(talks)]
        if talk.running:
            talk.end(cache, blocks)
        elif talk.next < len(talk.turns):
            talk.begin(cache, blocks)
        assert cache.held == CAPACITY - blocks.free
        assert cache.used <= CAPACITY


@given(conversations, st.lists(st.integers(0, 7), max_size=60), st.sampled_from([4, 16]))
def test_at_larger_blocks_it_finds_whole_blocks_and_keeps_its_books(drawn, order, block):
    cache = Cache(CAPACITY, block)
    talks = [Conversation(number, *each) for number, each in enumerate(drawn)]
    running = {}
    for step, index in enumerate(order):
        talk = talks[index % len(talks)]
        nodes, sizes = (*talk.nodes, 100 + talk.number), (*talk.sizes, 5)
        if talk.number in running:
            cache.release(*running.pop(talk.number))
        else:
            found = cache.find(nodes, sizes)
            assert found % block == 0
            assert found < sum(sizes)
            if cache.admit(nodes, sizes, step % 5 + 1):
                running[talk.number] = (nodes, sizes, step % 5 + 1)
        assert 0 <= cache.held <= cache.used <= CAPACITY
    for each in running.values():
        cache.release(*each)
    assert cache.held == 0
