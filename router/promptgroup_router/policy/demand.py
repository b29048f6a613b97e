"""Describes what one request asks of its replica: everything that a placement may depend on.

Values of this kind are made for every request. They are dataclasses that are not frozen: frozen ones take four times as
long to make, and mypyc compiles the constructors of neither, so that `scripts/compile_router.py` writes out those of
the ones that are not.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from promptgroup_router.apis.session_key import NO_SESSION, SessionKey
from promptgroup_router.rings.ids import PrefixKey


@dataclass(slots=True)
class Demand:
    """A request as policies see it. Hashes have 64 bits; lengths are estimates in tokens."""

    session: SessionKey
    """Names the session within its group and decides its home on the ring."""
    prefix: PrefixKey
    """The Tier-1 prefix in the caches of this caller."""
    prompt: int = 0
    """Length of the whole prompt."""
    tier1: int = 0
    """Length of the Tier-1 prefix."""
    history: int = 0
    """Length of everything before the last user message; 0 on a first turn."""
    turn: int = 1
    """Number of messages, at most `LAST_TURN`. It grows from turn to turn unless the client compacts its history, so
    that it tells routers which have not heard of each other's last turns which record is older."""
    origin: SessionKey = NO_SESSION
    """Key of the session on its first turn where it was another: a short first message is told apart only by what
    follows it."""
    streamed: bool = True
    """True if the first byte of the answer is that of its first token."""
    cached: bool = True
    """True if the engine keeps the prompt in its KV cache; else nothing is recorded of the session."""
    shared_prefix: PrefixKey | None = None
    """The prefix whoever's caches it is in, by which sessions are counted; None where that is the same."""
    marks: Sequence[PrefixKey] = ()
    """Keys of the prefixes that other requests may share, the shortest first; only those beyond Tier 1 where a group
    declares it. A replica that has one has all that are shorter."""
    lengths: Sequence[int] = ()
    """Tokens of each of these prefixes."""
    scope: PrefixKey | None = None
    """A value that keeps these prefixes apart from the same text in other groups and caches; None without any."""
    instructions: int = 0
    """Length of its tools and system text; 0 where it has no such prefix."""
    counted: int = 0
    """Tokens of the prompt that were counted, and not estimated."""
    estimated_bytes: int = 0
    """Bytes of text whose tokens are an estimate; 0 where the engine's count says nothing about text."""
    unranked: bool = False
    """True if the engine has data-parallel ranks and chooses the rank itself, so that nobody knows which cache the
    request meets; then nothing is recorded of the session, either."""
    unseen: bool = False
    """True if it is placed as the first request of its session, whatever is recorded."""

    @property
    def recorded(self) -> bool:
        """True if it is known in which cache the engine keeps the prompt."""
        return self.cached and not self.unranked

    @property
    def record(self) -> SessionKey:
        """The key by which records of the session are looked up."""
        return NO_SESSION if self.unseen else self.session

    @property
    def unmarked(self) -> int:
        """Length of the Tier-1 prefix if marks begin behind it; 0 if it has marks itself, since nobody declared it."""
        return 0 if self.marks and self.lengths[0] <= self.tier1 else self.tier1

    @property
    def counted_prefix(self) -> PrefixKey:
        """The prefix by which sessions are counted."""
        return self.prefix if self.shared_prefix is None else self.shared_prefix
