"""Leads a request to the replica that stores the response which it continues."""

from promptgroup_router.apis.request import ParsedRequest
from promptgroup_router.apis.responses import previous_response
from promptgroup_router.apis.session_key import NO_SESSION, RequestSession
from promptgroup_router.features.isolation.salts import Salts
from promptgroup_router.features.stored_responses.holder import PREVIOUS, find_holder, holds, lost
from promptgroup_router.features.stored_responses.response_id import ChosenResponseId, decode, is_of, is_open_to
from promptgroup_router.prefixes.cache_domain import CacheDomain
from promptgroup_router.rings.index import GroupEntry, RevisionEntry
from promptgroup_router.routing.process_points import Continuation, Continued, PlacedRequest

_CODE = "previous_response_not_found"


class StoredResponses(Continuation):
    """The stored responses of all replicas."""

    def __init__(self, salts: Salts) -> None:
        """Begin.

        Args:
            salts: the salts of callers, for groups that isolate them.
        """
        self._salts = salts

    def session(self, request: ParsedRequest, domain: CacheDomain) -> RequestSession | None:
        """Return the session of the response that a request continues; None if it continues none.

        Raises:
            ApiError: 404: the response is another caller's, or its id has no tag of a caller.
        """
        continued = previous_response(request)
        if not continued:
            return None
        previous = decode(continued)
        if domain.salt and not is_of(continued, domain):
            raise lost(continued, PREVIOUS, _CODE, restarted=False)
        if previous is None:
            return None
        return RequestSession(previous.session, previous.session, named=True, source=f"field {PREVIOUS}")

    def revision(self, group: GroupEntry, request: ParsedRequest) -> RevisionEntry | None:
        """Return the revision whose replica stores the response; None where none does."""
        previous = decode(previous_response(request))
        if previous is None:
            return None
        for revision in group.revisions:
            if revision.preamble is not None and find_holder(revision.candidates, previous) is not None:
                return revision
        return None

    def replica(self, request: ParsedRequest, placed: PlacedRequest) -> Continued:
        """Return the replica that stores the response, and the feature of the request.

        Raises:
            ApiError: 404: no replica that may serve the request stores it, or the response is another caller's.
        """
        # an isolated caller chooses no ids: such an id would have no tag of the caller
        domain = placed.domain
        chosen = ChosenResponseId(placed.session, domain) if domain.salt or not placed.chosen else None
        previous = previous_response(request)
        desired = decode(previous)
        if desired is None:
            return Continued(None, NO_SESSION, chosen)
        member = find_holder(placed.candidates, desired)
        if member is None or not holds(member, desired):
            raise lost(previous, PREVIOUS, _CODE, restarted=member is not None)
        namespace = member.group.partition("/")[0]
        if not is_open_to(previous, placed.caller, namespace, self._salts, isolated=bool(domain.salt)):
            raise lost(previous, PREVIOUS, _CODE, restarted=False)
        return Continued(member, desired.session, chosen)
