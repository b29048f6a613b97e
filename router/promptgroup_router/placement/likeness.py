"""Decides whether a request is comparable across revisions: whether its replica should have its prefix in cache.

Two revisions are compared by requests that differ in nothing else. A request is like others of its kind if

    a replica of its own revision got it     one that is lent holds another prompt
    and it begins a session,                 the declared prompt is there, as the replica was proven warm
    or comes back to the process             what the session left there is cached; elsewhere it is computed once
    that served its last turn                more, which says where the session was and nothing of the prompt

A request whose engine chooses among several caches is like none, since the engine does not report its choice.

Its time to first token is that of its revision only if it was also sent once, at once, and to a replica that nothing
waited at: the rest is load. Does no I/O and reads no clock.
"""

from promptgroup_router.placement.pick import Pick


def is_like(pick: Pick, group: str, revision: str) -> bool:
    """Return True if a request may be compared with others of its kind.

    Args:
        pick: the first replica that it was sent to.
        group: `namespace/name` of its group.
        revision: short fingerprint of the revision that it was routed to; empty without one.
    """
    member, demand, before = pick.member, pick.demand, pick.before
    if member.group != group or not member.fingerprint.startswith(revision):
        return False
    if demand.unranked:
        return False
    if not demand.history or not demand.cached:
        return True
    if before is None or pick.moved or before.prefix != demand.prefix:
        return False
    return before.seen > pick.replica.inherited


def own_tokens(pick: Pick) -> float:
    """Return the tokens of a request beyond the declared prompt and beyond its session's history.

    Where clients choose the revision, those of one may ask for more than those of the other.
    """
    return max(0.0, pick.demand.prompt - _repeats(pick))


def shared_tokens(pick: Pick) -> float:
    """Return how many of them should be in the replica's cache, as other sessions have sent them, such as a document.

    Keys and values depend on all text before them, so a new revision has none of these at first.
    """
    return max(0.0, pick.cached - _repeats(pick))


def _repeats(pick: Pick) -> float:
    """Return the tokens of the declared prompt, or of the session's history if that is longer."""
    demand, before = pick.demand, pick.before
    known = min(float(demand.history), before.tokens) if before is not None else 0.0
    return max(float(demand.tier1), known)
