"""The KV cache of one engine: a tree of token stretches, evicted least recently used first, from their ends.

It does by stretches what vLLM does by blocks (see `promptgroup_local.engine.kvcache`): the end of a released chain is
nearer to eviction than its head, and blocks are evicted from the end of a stretch. A test compares the two.
"""

from collections import OrderedDict
from collections.abc import Sequence


class Cache:
    """`capacity` tokens in blocks of `block`."""

    __slots__ = ("_idle", "_idle_tokens", "_length", "_users", "block", "capacity", "used")

    def __init__(self, capacity: int, block: int) -> None:
        self.capacity = capacity
        self.block = block
        self.used = 0
        """Tokens that are cached or reserved."""
        self._length: dict[int, int] = {}
        """Node → tokens of it that are cached."""
        self._users: dict[int, int] = {}
        """Node → running requests that hold it."""
        self._idle: OrderedDict[int, None] = OrderedDict()
        """Nodes that no request holds, in the order of eviction."""
        self._idle_tokens = 0

    @property
    def held(self) -> int:
        """Tokens that running requests hold."""
        return self.used - self._idle_tokens

    def find(self, nodes: Sequence[int], sizes: Sequence[int]) -> int:
        """Leading tokens of a prompt that are cached, in whole blocks; never the last token."""
        length = self._length
        result = 0
        for node, size in zip(nodes, sizes, strict=True):
            have = length.get(node)
            if have is None:
                break
            if have < size:
                result += have
                break
            result += size
        else:
            result -= 1
        return result // self.block * self.block

    def admit(self, nodes: Sequence[int], sizes: Sequence[int], output: int) -> bool:
        """Reserve space for a prompt and its answer; False, with nothing changed, when there is too little."""
        length, users, idle = self._length, self._users, self._idle
        need = output
        mine = 0
        for node, size in zip(nodes, sizes, strict=True):
            have = length.get(node, 0)
            need += max(0, size - have)
            if node in idle:
                mine += have
        room = self.capacity - self.used
        if need > room:
            if need - room > self._idle_tokens - mine:
                return False
            for node in nodes:
                idle.pop(node, None)
            self._evict(need - room)
        self._idle_tokens -= mine
        for node, size in zip(nodes, sizes, strict=True):
            idle.pop(node, None)
            users[node] = users.get(node, 0) + 1
            if size > length.get(node, 0):
                length[node] = size
        self.used += need
        return True

    def release(self, nodes: Sequence[int], sizes: Sequence[int], output: int) -> None:
        """The answer is whole: it stays cached with the prompt, at the end of its last node."""
        length, users = self._length, self._users
        last = nodes[-1]
        grown = sizes[-1] + output
        have = length[last]
        if grown > have:
            length[last] = grown
            self.used -= output - (grown - have)
        else:
            self.used -= output
        for node in reversed(nodes):
            left = users[node] - 1
            if left:
                users[node] = left
            else:
                del users[node]
                self._idle[node] = None
                self._idle_tokens += length[node]

    def clear(self) -> None:
        """Forget everything."""
        self._length.clear()
        self._users.clear()
        self._idle.clear()
        self.used = self._idle_tokens = 0

    def _evict(self, tokens: int) -> None:
        """Free at least so many tokens of nodes that no request holds; there are as many."""
        length, idle = self._length, self._idle
        while tokens > 0:
            node = next(iter(idle))
            have = length[node]
            cut = -(-tokens // self.block) * self.block
            if cut < have:
                length[node] = have - cut
            else:
                cut = have
                del idle[node], length[node]
            self.used -= cut
            self._idle_tokens -= cut
            tokens -= cut
