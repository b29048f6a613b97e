"""What one request asks of the replica that gets it: all that placement may depend on. Pure.

A named tuple, as all that is made for each request: it is made in a quarter of a frozen dataclass's time.
"""

from typing import NamedTuple


class Demand(NamedTuple):
    """A request as policies see it: hashes of 64 bits, lengths in tokens (estimates)."""

    session: int
    """Names the session within its group: its home on the ring."""
    prefix: int
    """Names the Tier-1 prefix."""
    prompt: int = 0
    """Length of the whole prompt."""
    tier1: int = 0
    """Length of the Tier-1 prefix."""
    history: int = 0
    """Length of what an earlier turn has sent or got: everything before the last user message. 0 on a first turn."""
    turn: int = 1
    """Messages of the request: grows from turn to turn, so that a record of an older turn can be told."""
    origin: int = 0
    """The session's key on its first turn where that was another: a short first message is told apart by what follows
    only. 0 where it was the same."""
    streamed: bool = True
    """Whether the first byte of the answer is that of its first token."""
