"""Where a request goes that continues a response: `routing/test_route.py` has the routes."""

import json

import pytest

from promptgroup_contract.access import ANONYMOUS
from promptgroup_router.apis.endpoints import ENDPOINTS
from promptgroup_router.apis.session_key import SessionKey
from promptgroup_router.base.errors import ApiError
from promptgroup_router.features.isolation.salts import Salts
from promptgroup_router.features.stored_responses.feature import StoredResponses
from promptgroup_router.features.stored_responses.response_id import RANDOM_BYTES, response_id
from promptgroup_router.prefixes.cache_domain import SHARED, CacheDomain
from promptgroup_router.rings.building import build_index
from promptgroup_router.routing.process_points import PlacedRequest
from support.tables import group, revision, table

FEATURE = StoredResponses(Salts(bytes(32)))
GROUP = build_index(table(group("a", revision(slots=2)))).groups[0]
CANDIDATES = GROUP.revisions[0].candidates
MEMBER = CANDIDATES.ready[1]
ID = response_id(MEMBER, SessionKey(7), bytes(RANDOM_BYTES))


def request(previous=None):
    fields = {"previous_response_id": previous} if previous is not None else {}
    return ENDPOINTS[b"/v1/responses"].parse(json.dumps({"model": "a", "input": "Hi"} | fields).encode())


def placed(*, chosen=False, domain=SHARED):
    return PlacedRequest(CANDIDATES, ANONYMOUS, domain, SessionKey(5), chosen)


def test_a_request_goes_to_the_replica_that_stores_the_response():
    continued = FEATURE.replica(request(ID), placed())
    assert (continued.member, continued.session) == (MEMBER, 7)
    assert FEATURE.session(request(ID), SHARED).key == 7
    assert FEATURE.revision(GROUP, request(ID)) in (None, GROUP.revisions[0])


def test_a_request_that_continues_none_gets_an_id_alone():
    continued = FEATURE.replica(request(), placed())
    assert continued.member is None
    assert continued.feature is not None
    assert FEATURE.session(request(), SHARED) is None
    assert FEATURE.revision(GROUP, request()) is None


def test_a_client_that_may_chooses_the_id():
    assert FEATURE.replica(request(), placed(chosen=True)).feature is None
    assert FEATURE.replica(request(), placed(chosen=True, domain=CacheDomain("00", 1))).feature is not None


@pytest.mark.parametrize("restarted", [True, False])
def test_a_response_that_is_gone_with_its_replica_is_not_found(restarted):
    gone = build_index(table(group("a", revision(slots=1)))).groups[0].revisions[0].candidates
    place = placed()._replace(candidates=CANDIDATES if restarted else gone)
    text = ID if not restarted else ID[: len("resp_pg_") + 11] + "AAAAA" + ID[len("resp_pg_") + 16 :]
    with pytest.raises(ApiError) as caught:
        FEATURE.replica(request(text), place)
    assert caught.value.status == 404


def test_an_isolated_caller_continues_no_response_of_another():
    with pytest.raises(ApiError) as caught:
        FEATURE.session(request(ID), CacheDomain("00", 1))
    assert caught.value.code == "previous_response_not_found"
