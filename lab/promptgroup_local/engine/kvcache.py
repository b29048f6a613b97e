"""The KV cache of one engine: blocks of tokens, found again by a chained hash, evicted least recently used first.

Follows vLLM's block pool:

- A block is cached once all its tokens are scheduled for computation; its key hashes the parent's key and its own
  tokens, so that a key names the whole prefix. The first parent is the hash of the salt: equal tokens under another
  salt never meet.
- A hit covers whole blocks and never the last token of the prompt, which must be computed to get logits.
- A running request pins its blocks. A released block keeps its content until it is needed again; of one request the
  tail is evicted before the head, since the head is of use without the tail and not the other way round.
- Two requests that compute one prefix at once hold a copy each: blocks are not merged afterwards.
- A tier behind it keeps the keys of the latest cached blocks, also of those that were evicted. What is found there
  is copied into blocks, which takes no time.
"""

import struct
from collections import OrderedDict
from dataclasses import dataclass, field

import xxhash


@dataclass(slots=True, eq=False)
class Block:
    """One block of KV memory that is in use or holds something worth finding."""

    references: int = 0
    key: bytes = b""
    """The prefix that ends with this block; empty while it cannot be found."""


@dataclass(slots=True, eq=False)
class TokenSequence:
    """The tokens of one request and the blocks that hold their KV."""

    tokens: list[int]
    salt: str = ""
    blocks: list[Block] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    """Keys of the leading full blocks, as far as they were asked for."""
    copied: int = 0
    """Tokens that came from the tier when it was admitted last."""


class KVCache:
    """`capacity` blocks of `block_size` tokens; with `caching` off nothing is ever found again.

    Behind them is a tier of `behind` blocks.
    """

    def __init__(self, capacity: int, block_size: int, *, caching: bool = True, behind: int = 0) -> None:
        self.capacity = capacity
        self.block_size = block_size
        self.caching = caching
        self.evicted = 0
        """Tokens that made room for others."""
        self._empty = capacity
        self._idle: OrderedDict[Block, None] = OrderedDict()
        """Cached blocks that nobody uses, the next to be evicted first."""
        self._cached: dict[bytes, list[Block]] = {}
        self._behind = behind
        self._tier: OrderedDict[bytes, None] = OrderedDict()
        """Keys of the tier, the next to be dropped first."""
        self._packer = struct.Struct(f"<{block_size}Q")

    @property
    def free(self) -> int:
        """Blocks that a request could get: empty ones and cached ones that nobody uses."""
        return self._empty + len(self._idle)

    @property
    def usage(self) -> float:
        """Share of the blocks that running requests hold, 0 to 1."""
        return 1 - self.free / self.capacity

    def whole_blocks(self, tokens: int) -> int:
        """Return how many of so many leading tokens are in full blocks: the most that can be found again."""
        return tokens // self.block_size * self.block_size

    def admit(self, sequence: TokenSequence, computed: int) -> int | None:
        """Give a sequence without blocks its cached prefix and room for `computed` tokens past that prefix.

        `computed` is cut at the sequence's length. Returns the tokens found, in the tier too, or None, with nothing
        changed, when there is no room.
        """
        hits = self._lookup(sequence)
        copied = self._lookup_behind(sequence, len(hits))
        result = (len(hits) + copied) * self.block_size
        desired = self._blocks(min(result + computed, len(sequence.tokens))) - len(hits)
        if desired > self.free - sum(block.references == 0 for block in hits):
            return None
        for block in hits:
            if block.references == 0:
                del self._idle[block]
            block.references += 1
        sequence.blocks = hits + [self._take() for _ in range(desired)]
        sequence.copied = copied * self.block_size
        return result

    def grow(self, sequence: TokenSequence, computed: int) -> bool:
        """Make room for the sequence's first `computed` tokens; False, with nothing changed, when there is none."""
        desired = self._blocks(computed) - len(sequence.blocks)
        if desired > self.free:
            return False
        sequence.blocks.extend(self._take() for _ in range(desired))
        return True

    def commit(self, sequence: TokenSequence, computed: int) -> None:
        """Make the full blocks among the first `computed` tokens findable."""
        if not self.caching:
            return
        full = computed // self.block_size
        for index in range(full - 1, -1, -1):
            block = sequence.blocks[index]
            if block.key:
                break  # what lies before a keyed block has its keys already
            block.key = self._key(sequence, index)
            self._cached.setdefault(block.key, []).append(block)
            self._store(block.key)

    def release(self, sequence: TokenSequence) -> None:
        """Take the blocks from a sequence; what is cached in them stays until the room is needed."""
        for block in reversed(sequence.blocks):
            block.references -= 1
            if block.references:
                continue
            if block.key:
                self._idle[block] = None
            else:
                self._empty += 1
        sequence.blocks = []

    def reset(self) -> bool:
        """Forget everything but what the tier has; refused (False) while a request runs."""
        if self.free < self.capacity:
            return False
        self._idle.clear()
        self._cached.clear()
        self._empty = self.capacity
        return True

    def _lookup(self, sequence: TokenSequence) -> list[Block]:
        hits: list[Block] = []
        if not self.caching:
            return hits
        for index in range((len(sequence.tokens) - 1) // self.block_size):
            copies = self._cached.get(self._key(sequence, index))
            if copies is None:
                break
            hits.append(copies[0])
        return hits

    def _lookup_behind(self, sequence: TokenSequence, hits: int) -> int:
        """Return how many blocks behind the first `hits` the tier has."""
        last = (len(sequence.tokens) - 1) // self.block_size if self._tier else hits
        for index in range(hits, last):
            key = self._key(sequence, index)
            if key not in self._tier:
                return index - hits
            self._tier.move_to_end(key)
        return last - hits

    def _store(self, key: bytes) -> None:
        if self._behind:
            self._tier[key] = None
            self._tier.move_to_end(key)
            if len(self._tier) > self._behind:
                self._tier.popitem(last=False)

    def _take(self) -> Block:
        """An unkeyed block, held once: an empty one, or else the least recently used."""
        if self._empty:
            self._empty -= 1
        else:
            self._evict(self._idle.popitem(last=False)[0])
        return Block(references=1)

    def _evict(self, block: Block) -> None:
        self.evicted += self.block_size
        copies = self._cached[block.key]
        copies.remove(block)
        if not copies:
            del self._cached[block.key]

    def _key(self, sequence: TokenSequence, index: int) -> bytes:
        keys = sequence.keys
        size = self.block_size
        while len(keys) <= index:
            parent = keys[-1] if keys else xxhash.xxh3_128_digest(sequence.salt.encode())
            start = len(keys) * size
            keys.append(xxhash.xxh3_128_digest(parent + self._packer.pack(*sequence.tokens[start : start + size])))
        return keys[index]

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.block_size)
