"""The KV cache of one engine: blocks of tokens, looked up by a chained hash, evicted least recently used first.

Follows vLLM's block pool:

- A block is cached once all its tokens are scheduled for computation. Its key hashes the parent's key and its own
  tokens, so that a key identifies the whole prefix. The first parent is the hash of the salt and of name and path of
  the LoRA adapter: equal tokens under different salts or adapters never share a block.
- A hit covers whole blocks and never the last token of the prompt, which must be computed to get logits.
- A running request pins its blocks. A released block keeps its content until it is reused. The last blocks of a
  request are evicted before its first ones, since a prefix is usable without its continuation but not the reverse.
- Two requests that compute the same prefix concurrently hold a copy each: blocks are not merged afterwards.
- A second tier stores the keys of the most recently cached blocks, evicted ones included. A hit there is copied into
  blocks, which takes no time.
"""

import struct
from collections import OrderedDict
from dataclasses import dataclass, field

import xxhash


@dataclass(slots=True, eq=False)
class Block:
    """One block of KV memory that is in use or cached."""

    references: int = 0
    key: bytes = b""
    """Key of the prefix that ends with this block; empty while the block is not cached."""


@dataclass(slots=True, eq=False)
class TokenSequence:
    """The tokens of one request and the blocks that hold their KV."""

    tokens: list[int]
    salt: str = ""
    adapter: str = ""
    """The name and the path of the LoRA adapter; empty without one."""
    blocks: list[Block] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    """Keys of the leading full blocks, as far as they have been computed."""
    copied: int = 0
    """Tokens that were copied from the tier at the latest admission."""


class KVCache:
    """`capacity` blocks of `block_size` tokens; with `caching` off no lookup ever hits.

    A second tier stores the keys of `behind` blocks.
    """

    def __init__(self, capacity: int, block_size: int, *, caching: bool = True, behind: int = 0) -> None:
        self.capacity = capacity
        self.block_size = block_size
        self.caching = caching
        self.evicted = 0
        """Tokens of evicted blocks."""
        self._empty = capacity
        self._idle: OrderedDict[Block, None] = OrderedDict()
        """Cached blocks that no request uses, in the order of eviction."""
        self._cached: dict[bytes, list[Block]] = {}
        self._behind = behind
        self._tier: OrderedDict[bytes, None] = OrderedDict()
        """Keys of the tier, in the order of eviction."""
        self._packer = struct.Struct(f"<{block_size}Q")

    @property
    def free(self) -> int:
        """Blocks that a request could get: empty ones and cached ones that no request uses."""
        return self._empty + len(self._idle)

    @property
    def usage(self) -> float:
        """Share of the blocks that running requests hold, 0 to 1."""
        return 1 - self.free / self.capacity

    def whole_blocks(self, tokens: int) -> int:
        """Return how many of `tokens` leading tokens are in full blocks: the most that a lookup can hit."""
        return tokens // self.block_size * self.block_size

    def admit(self, sequence: TokenSequence, computed: int) -> int | None:
        """Allocate the cached prefix of a sequence without blocks, and blocks for `computed` tokens beyond that prefix.

        `computed` is capped at the sequence's length. Returns the cached tokens, those in the tier included, or None,
        with nothing changed, when too few blocks are free.
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

    def first_key(self, sequence: TokenSequence) -> bytes:
        """Return the key of the first block of a sequence; empty for one that fills none."""
        return self._key(sequence, 0) if len(sequence.tokens) > self.block_size else b""

    def begins_with(self, sequence: TokenSequence) -> bool:
        """Return True if the first block of a sequence is cached."""
        return bool(self._lookup(sequence))

    def grow(self, sequence: TokenSequence, computed: int) -> bool:
        """Allocate blocks for the first `computed` tokens; False, with nothing changed, when too few are free."""
        desired = self._blocks(computed) - len(sequence.blocks)
        if desired > self.free:
            return False
        sequence.blocks.extend(self._take() for _ in range(desired))
        return True

    def commit(self, sequence: TokenSequence, computed: int) -> None:
        """Cache the full blocks among the first `computed` tokens."""
        if not self.caching:
            return
        full = computed // self.block_size
        for index in range(full - 1, -1, -1):
            block = sequence.blocks[index]
            if block.key:
                break  # all blocks before a block with a key have keys too
            block.key = self._key(sequence, index)
            self._cached.setdefault(block.key, []).append(block)
            self._store(block.key)

    def release(self, sequence: TokenSequence) -> None:
        """Release the blocks of a sequence; cached ones keep their content until they are evicted."""
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
        """Clear the cache but not the tier; refused (False) while a request runs."""
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
        """Return how many of the blocks after the first `hits` are in the tier, up to the first miss."""
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
        """A block without a key and with one reference: an empty one, or else the least recently used."""
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
            parent = keys[-1] if keys else xxhash.xxh3_128_digest((sequence.salt + sequence.adapter).encode())
            start = len(keys) * size
            keys.append(xxhash.xxh3_128_digest(parent + self._packer.pack(*sequence.tokens[start : start + size])))
        return keys[index]

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.block_size)
