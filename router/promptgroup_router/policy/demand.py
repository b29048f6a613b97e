"""Describes what one request asks of its replica: everything that a placement may depend on.

Values of this kind are made for every request. They are named tuples, which are made in a quarter of the time that a
frozen dataclass takes.
"""

from typing import NamedTuple

from promptgroup_router.apis.session_key import NO_SESSION, SessionKey
from promptgroup_router.rings.ids import PrefixKey


class Demand(NamedTuple):
    """A request as policies see it. Hashes have 64 bits; lengths are estimates in tokens."""

    session: SessionKey
    """Names the session within its group and decides its home on the ring."""
    prefix: PrefixKey
    prompt: int = 0
    """Length of the whole prompt."""
    tier1: int = 0
    """Length of the Tier-1 prefix."""
    history: int = 0
    """Length of everything before the last user message; 0 on a first turn."""
    turn: int = 1
    """Number of messages. It grows from turn to turn, so that a record of an older turn can be recognised."""
    origin: SessionKey = NO_SESSION
    """Key of the session on its first turn where it was another: a short first message is told apart only by what
    follows it."""
    streamed: bool = True
    """True if the first byte of the answer is that of its first token."""
    cached: bool = True
    """True if the engine keeps the prompt in its KV cache; else nothing is recorded of the session."""
