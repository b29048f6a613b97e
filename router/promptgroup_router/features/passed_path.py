"""Decides which replicas get a request at a path that only the settings of the router allow (`--pass-paths`).

The answers of engines there are unspecified. They could repeat a prompt, or disclose the contents of the cache. So
replicas whose prompt is from a Secret, and those that isolate their callers, get none of these requests. Does no I/O.
"""

from promptgroup_router.base.errors import ApiError, shown
from promptgroup_router.rings.index import GroupEntry, RoutingIndex
from promptgroup_router.routing.route import Route


def keep_unprotected(index: RoutingIndex, route: Route) -> None:
    """Leave a route only the replicas that may get any request.

    Raises:
        ApiError: 400: it leads to others alone.
    """
    candidates = route.candidates
    labels = {member.group for member in candidates.members} | {route.group}
    protected = {label for label in labels if (group := index.names.get(label)) is not None and _is_protected(group)}
    if not protected:
        return
    addresses = {member.address for member in candidates.members if member.group not in protected}
    if route.group in protected or not addresses:
        message = (
            f"model {shown(route.model)} has a secret prompt or keeps its callers apart, and nobody knows what its "
            "engine tells at this path: use another path, or another group"
        )
        raise ApiError(400, message, param="model", code="path_not_allowed")
    route.candidates = candidates.within(addresses)


def _is_protected(group: GroupEntry) -> bool:
    return group.group.callers.isolates or any(revision.revision.is_secret for revision in group.revisions)
