"""Finds the replica that holds a stored response by the response's id."""

from promptgroup_router.base.errors import ApiError, shown
from promptgroup_router.features.stored_responses.response_id import ResponseId, process_hash
from promptgroup_router.rings.ids import member_hash
from promptgroup_router.rings.index import Candidates, Member

PREVIOUS = "previous_response_id"
"""The field that names the response which a request continues."""


def find_holder(candidates: Candidates, response_id: ResponseId) -> Member | None:
    """Return the member that a response's id names, whatever process it is; None if it is not among the candidates."""
    others = candidates.last_resort.members if candidates.last_resort is not None else ()
    members = (*candidates.members, *candidates.draining, *others)
    return next((member for member in members if member_hash(member.id) == response_id.replica), None)


def holds(member: Member, response_id: ResponseId) -> bool:
    """Return True if the process that made the response still runs."""
    return process_hash(member.incarnation) == response_id.process


def lost(response_id: str, param: str, code: str, *, restarted: bool) -> ApiError:
    """Return the error for a response that no replica holds any more.

    Args:
        response_id: its id.
        param: the field that names it.
        code: the code of the error, for programs.
        restarted: True if its replica still exists, as another process.
    """
    why = (
        "the engine that held it was restarted"
        if restarted
        else "the replica that held it no longer serves this request: it was replaced, or its revision superseded"
    )
    way_out = f"send the whole conversation, without {param}" if param == PREVIOUS else "ask for it once more"
    return ApiError(404, f"response {shown(response_id)} is lost, {why}: {way_out}", param=param, code=code)
