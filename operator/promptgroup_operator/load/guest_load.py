"""Computes the load of a guest. The counters of its engines include the prompts of all groups that share them.

Routers count each group separately, from the usage that the engines' responses report, so a guest's figures come from
the routers. Only the properties of a replica come from its engine: its KV capacity and its prefill rate. Does no I/O
and reads no clock.
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
    measured: Measured,
    window: timedelta = LOAD_WINDOW,
) -> GroupLoad:
    """Return the load of a guest.

    Args:
        clients: load of its clients; None if no router could be read.
        drift: where its requests differ from its prompt.
        replicas: the host's replicas that are warm for it.
        measured: measurements of their engines.
        window: time that the figures cover.
    """
    seconds = window.total_seconds()
    if clients is None:
        return GroupLoad(seconds, None, stale=NO_ROUTER, is_guest=True)
    if clients.hit_rate is None and clients.requests:
        return GroupLoad(seconds, None, clients=clients, drift=drift, stale=NOT_REPORTED, is_guest=True)
    return GroupLoad(seconds, _engines(clients, replicas, measured), clients=clients, drift=drift, is_guest=True)


def _engines(clients: ClientLoad, replicas: int, measured: Measured) -> EngineLoad:
    """Return the engines' load from a guest; responses without cached tokens are given the hit rate of the others."""
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
        kv_tokens=measured.kv_tokens,
        prefill_rate=float(measured.prefill_rate),
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
"""The load of a group for which no router has received a request."""
