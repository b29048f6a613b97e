"""Describes the demand of one request: everything that its placement may depend on.

A value of this type is created for every request. These dataclasses are not frozen: frozen ones take four times as long
to create. mypyc compiles the constructors of neither, so `scripts/compile_router.py` writes out the constructors of
those that are not frozen.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from promptgroup_router.apis.session_key import NO_SESSION, SessionKey
from promptgroup_router.rings.ids import PrefixKey


@dataclass(slots=True)
class Demand:
    """The properties of a request that policies use. Hashes have 64 bits; lengths are estimates in tokens."""

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
    that routers which have not received each other's last turns can tell which record is older."""
    origin: SessionKey = NO_SESSION
    """Key of the session on its first turn if it was a different one: sessions with a short first message differ only
    in the messages behind it."""
    streamed: bool = True
    """True if the first byte of the answer is that of its first token."""
    cached: bool = True
    """True if the engine stores the prompt in its KV cache; otherwise nothing is recorded of the session."""
    shared_prefix: PrefixKey | None = None
    """The key of the prefix without the caller's salt, by which sessions are counted; None if it is the same."""
    marks: Sequence[PrefixKey] = ()
    """Keys of the prefixes that other requests may share, the shortest first; only those longer than Tier 1 if a group
    declares it. A replica that has cached one has cached all shorter ones."""
    lengths: Sequence[int] = ()
    """Tokens of each of these prefixes."""
    scope: PrefixKey | None = None
    """A value that distinguishes these prefixes from the same text in other groups and caches; None without any."""
    instructions: int = 0
    """Length of its tools and system text; 0 if it has no such prefix."""
    counted: int = 0
    """Tokens of the prompt that were counted, and not estimated."""
    estimated_bytes: int = 0
    """Bytes of text whose tokens are estimated; 0 if the engine's token count says nothing about text."""
    unranked: bool = False
    """True if the engine has data-parallel ranks and chooses the rank itself, so that the router does not know which
    cache serves the request; then nothing is recorded of the session, either."""
    declared: bool = True
    """False if no group declares the Tier-1 prefix: it is the system text of a request that matches none."""
    unseen: bool = False
    """True if it is placed like the first request of its session, without regard to records."""

    @property
    def recorded(self) -> bool:
        """True if the engine caches the prompt and the router knows in which cache."""
        return self.cached and not self.unranked

    @property
    def record(self) -> SessionKey:
        """The key by which records of the session are looked up."""
        return NO_SESSION if self.unseen else self.session

    @property
    def size(self) -> int:
        """Bytes of its text, or tokens that were counted: what does not depend on the estimated tokens of a byte."""
        return self.estimated_bytes or self.prompt

    @property
    def unmarked(self) -> int:
        """Length of the Tier-1 prefix if marks begin behind it; 0 if it has marks itself, as no group declares it."""
        return 0 if self.marks and self.lengths[0] <= self.tier1 else self.tier1

    @property
    def counted_prefix(self) -> PrefixKey:
        """The prefix by which sessions are counted."""
        return self.prefix if self.shared_prefix is None else self.shared_prefix
