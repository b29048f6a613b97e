"""Updates the candidates of a request to the table in use: the request may outlive the table that it began with.

Removed members are dropped, and a slot that another process has taken over is reached at its new address. No member is
added, because the members that the caller may use were determined when the request arrived.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from promptgroup_router.rings.ids import MemberId
from promptgroup_router.rings.index import Candidates, Member, RoutingIndex


def renewed(candidates: Candidates, view: RoutingIndex) -> Candidates:
    """Return candidates of an earlier table with their members as in `view`.

    Draining members are included only if no other is left. The result may have no members.
    """
    others = renewed(candidates.last_resort, view) if candidates.last_resort is not None else None
    ready, lent = _present(candidates.ready, view.ready), _present(candidates.lent, view.ready)
    if not ready and not lent and (others is None or not others.members):
        ready, lent = _present(candidates.ready, view.draining), _present(candidates.lent, view.draining)
    return replace(
        candidates,
        ready=ready,
        lent=lent,
        draining=_present(candidates.draining, view.draining),
        last_resort=others if others is not None and others.members else None,
    )


def _present(members: Sequence[Member], current: Mapping[MemberId, Member]) -> tuple[Member, ...]:
    return tuple(current[member.id] for member in members if member.id in current)
