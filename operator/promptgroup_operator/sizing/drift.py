"""Prompts that leave the declared prefix: what replicas cannot mend. Pure."""

from dataclasses import replace

from promptgroup_operator.samples import Histogram
from promptgroup_operator.sizing.ceiling import expected
from promptgroup_operator.sizing.load import Departure, Load

SHARE = 0.1
"""Share of the requests from which departures are worth speaking of: below it, it is an old client here and there."""
BYTES_A_TOKEN = 4
"""Of English text, as tokenizers' makers give it; for estimates that people read."""
LEAST_TOKENS = 64
"""Tokens of a prefix whose loss nobody notices: a few cache blocks."""


def drifts(load: Load) -> Departure | None:
    """Where prompts leave the declared prefix, if enough of them lose enough of it."""
    found = load.departure
    if found is None or found.share < SHARE or (found.length - found.at) / BYTES_A_TOKEN < LEAST_TOKENS:
        return None
    return found


def mended(load: Load) -> Load:
    """The load as it would be if those prompts began with the declared prefix: what replicas are answerable for.

    Of a prompt that departs all is lost that comes after, the history too. How late its first token was, and what
    waited behind it, is left out: it would not have.
    """
    found, engines, share = drifts(load), load.engines, expected(load)
    if found is None or engines is None or share is None:
        return load
    hits = max(engines.hits, min(share * engines.queries, engines.hits + found.share * share * engines.queries))
    nothing = Histogram()
    clients = load.clients
    if clients is not None:
        clients = replace(clients, first_token=nothing, held=0.0)
    served = replace(engines, hits=hits, first_token=nothing, waiting=0.0, computed=None, prefill_busy=None)
    return replace(load, engines=served, clients=clients)
