"""Estimates the share of prompt tokens that would be served from cache if nothing was ever evicted.

A prompt consists of the Tier-1 prefix, the session's history, and a new message. In a session of k similar turns, a
prompt has on average (k - 1)/2 times (message + answer) before its message:

    length = prefix + (k - 1)/2 (message + answer) + message

which is solved for the message. k is one over the share of requests that open a session. The message must be computed.
The answer before it, which all but a session's first request have, may have to be computed too: sent back by the
client, it is the same text, but not always the same tokens. Tokenizers may split text differently from the model's
output, and templates omit reasoning tokens, which this formula therefore subtracts from the message.
"""

from promptgroup_operator.world.load import GroupLoad

SLACK = 0.05
"""Tolerance, as a share of prompt tokens, between the expected and the observed hit rate: the former is an estimate,
hits end with a whole block, and engines and routers are not read at the same moment."""


def declared(load: GroupLoad) -> float | None:
    """Share of prompt tokens that belong to the Tier-1 prefix, if every prompt begins with it; None when unknown."""
    engines, clients = load.engines, load.clients
    if engines is None or clients is None or not engines.requests or not engines.queries:
        return None
    return min(1.0, clients.declared_tokens * engines.requests / engines.queries) if clients.declared_tokens else None


def ceiling(load: GroupLoad) -> float | None:
    """Share of prompt tokens that belong to the Tier-1 prefix or the sessions' history; None when unknown."""
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
    """Return the expected hit rate: the ceiling, or the share of the Tier-1 prefix where sessions are unknown."""
    limit = ceiling(load)
    return limit if limit is not None else declared(load)
