"""The best that prefix caching can do on given requests: one replica with a cache that never evicts.

Counts with the stand-in's own template, tokenizer and block cache, so that the figure compares with its counters.
For a real engine, whose template and tokenizer are others, it is an estimate.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from promptgroup_local.engine import chat
from promptgroup_local.engine.kvcache import KVCache, TokenSequence
from promptgroup_local.engine.tokenizer import tokenize

_UNLIMITED = 1 << 40
"""Blocks of a cache that is never full."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request as the engine saw it, and its answer."""

    messages: Sequence[dict[str, str]]
    answer: str


def infinite_cache_hit_rate(
    exchanges: Iterable[Exchange], *, warm: Iterable[str] = (), block_size: int = 16
) -> float | None:
    """Share of prompt tokens that are cached, 0 to 1, when the exchanges run one after the other; None without any.

    Pass them in the order in which they ended. `warm` are system prompts that are in the cache from the start, as
    they are in warmed replicas.
    """
    cache = KVCache(_UNLIMITED, block_size)
    for system in warm:
        _run(cache, Exchange([{"role": "system", "content": system}], ""))
    queries = hits = 0
    for exchange in exchanges:
        length, result = _run(cache, exchange)
        queries += length
        hits += result
    return hits / queries if queries else None


def _run(cache: KVCache, exchange: Exchange) -> tuple[int, int]:
    """Run one exchange on the cache; return its prompt's length and the cached part of it, in tokens."""
    sequence = TokenSequence(list(chat.render(exchange.messages).tokens))
    length = len(sequence.tokens)
    admit = cache.admit(sequence, length) or 0
    answer = tokenize(exchange.answer)
    sequence.tokens += answer[:-1]  # the last token's KV is never computed: nothing follows it
    cache.grow(sequence, len(sequence.tokens))
    cache.commit(sequence, len(sequence.tokens))
    cache.release(sequence)
    return length, admit
