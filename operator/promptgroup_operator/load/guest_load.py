"""Decides what the load of a guest is, whose engines count the prompts of all groups that share them.

Routers count each group by itself, from what the engines' answers report, so that a guest's figures are theirs. Engines
give what belongs to a replica: its memory and its speed. Does no I/O and reads no clock.
"""

from datetime import timedelta

from promptgroup_operator.world.engine_facts import Measured
from promptgroup_operator.world.load import LOAD_WINDOW, ClientLoad, EngineLoad, GroupLoad, PromptDrift
from promptgroup_operator.world.samples import Histogram

NO_ROUTER = "no router reports what the requests of this group found in cache"

NOT_REPORTED = "the answers of the engines do not report what was found in cache"


def load(
    clients: ClientLoad | None,
    drift: PromptDrift | None,
    replicas: int,
    known: Measured,
    window: timedelta = LOAD_WINDOW,
) -> GroupLoad:
    """Return the load of a guest.

    Args:
        clients: what its clients had; None if no router could be read.
        drift: where its requests differ from its prompt.
        replicas: the host's replicas that are warm for it.
        known: measurements of their engines.
        window: time that the figures are of.
    """
    seconds = window.total_seconds()
    if clients is None:
        return GroupLoad(seconds, None, stale=NO_ROUTER, is_guest=True)
    if clients.hit_rate is None and clients.requests:
        return GroupLoad(seconds, None, clients=clients, drift=drift, stale=NOT_REPORTED, is_guest=True)
    return GroupLoad(seconds, _engines(clients, replicas, known), clients=clients, drift=drift, is_guest=True)


def _engines(clients: ClientLoad, replicas: int, known: Measured) -> EngineLoad:
    """Return what engines did for a guest: of answers that do not report what was found, as of those that do."""
    return EngineLoad(
        replicas=float(replicas),
        coverage=1.0,
        requests=max(0.0, clients.requests - clients.errors),
        queries=clients.prompt_tokens,
        hits=clients.prompt_tokens * (clients.hit_rate or 0.0),
        generated=clients.answer_tokens,
        computed=None,
        prefill_busy=None,
        decode_busy=None,
        queue_busy=None,
        running=0.0,
        waiting=0.0,
        usage=0.0,
        preemptions=None,
        first_token=Histogram(),
        kv_tokens=known.kv_tokens,
        prefill_rate=float(known.prefill_rate),
    )


NO_CLIENTS = ClientLoad(
    requests=0.0,
    errors=0.0,
    prompt_tokens=0.0,
    sessions=0.0,
    session_tokens=0.0,
    declared_tokens=0,
    first_token=Histogram(),
)
"""The load of a group that no router has had a request of."""
