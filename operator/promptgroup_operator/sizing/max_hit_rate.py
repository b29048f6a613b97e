"""Estimates the share of prompt tokens that would be found in cache if nothing was ever evicted.

A prompt is the Tier-1 prefix, what the session said before, and a new message. Of a session of k turns whose turns are
alike, a prompt has on average k-1 halves of (message + answer) before its message:

    length = prefix + (k - 1)/2 (message + answer) + message

which is solved for the message. k is one over the share of requests that open a session. The message must be computed,
and so may be the answer before it, which all but a session's first request have: generated and sent back it is the same
text, not always the same tokens. Tokenizers split text as models do not, and templates leave out what a model thought,
which by this formula is missing from the message.
"""

from promptgroup_operator.world.load import GroupLoad

SLACK = 0.05
"""Share of prompt tokens that may be missing without a cause: what may be found is an estimate, hits end with a whole
block, and engines and routers are not read at the same moment."""


def declared(load: GroupLoad) -> float | None:
    """Share of prompt tokens that the Tier-1 prefix is, if every prompt begins with it; None when unknown."""
    engines, clients = load.engines, load.clients
    if engines is None or clients is None or not engines.requests or not engines.queries:
        return None
    return min(1.0, clients.declared_tokens * engines.requests / engines.queries) if clients.declared_tokens else None


def ceiling(load: GroupLoad) -> float | None:
    """Share of prompt tokens that the Tier-1 prefix and the sessions' history are; None when unknown."""
    engines, clients, prefix = load.engines, load.clients, declared(load)
    if engines is None or clients is None or prefix is None or not clients.opening:
        return None
    length = engines.queries / engines.requests
    answer = engines.generated / engines.requests
    halves = (1 / clients.opening - 1) / 2
    rest = length * (1 - prefix)
    message = (rest - halves * answer) / (1 + halves)
    return 1 - min(rest, max(0.0, message + (1 - clients.opening) * answer)) / length


def expected(load: GroupLoad) -> float | None:
    """Return the share that may be expected: the ceiling, or the Tier-1 prefix where sessions are unknown."""
    known = ceiling(load)
    return known if known is not None else declared(load)
