import pytest

from promptgroup_contract.table import SlotState
from promptgroup_router.base.errors import ApiError
from promptgroup_router.decision.composition import router_state
from promptgroup_router.features.stored_responses.by_path import parse_path, route_by_response
from promptgroup_router.features.stored_responses.response_id import RANDOM_BYTES, ResponseId, encode, process_hash
from promptgroup_router.rings.ids import member_hash
from promptgroup_router.routing.state import RouterState
from support.tables import group, revision, slot, table


@pytest.mark.parametrize(
    ("path", "response", "methods"),
    [
        (b"/v1/responses/resp_1", "resp_1", (b"GET", b"DELETE")),
        (b"/v1/responses/resp_1/cancel", "resp_1", (b"POST",)),
        (b"/v1/responses/resp_1/input_items", "resp_1", (b"GET",)),
    ],
)
def test_paths_that_name_a_response(path, response, methods):
    found = parse_path(path)
    assert (found.response_id, found.methods) == (response, methods)


@pytest.mark.parametrize(
    "path",
    [
        b"/v1/responses",
        b"/v1/responses/",
        b"/v1/responses/a/b",
        b"/v1/responses/../x",
        b"/v1/responses/a/cancel/b",
        b"/v1/responses/compact",
        b"/v1/responses/input_tokens",
    ],
)
def test_paths_that_name_none(path):
    assert parse_path(path) is None


def state() -> RouterState:
    known = router_state()
    known.install(table(), "file", 0.0)
    return known


def test_the_replica_that_holds_it_is_the_only_candidate():
    known = state()
    member = known.index.names["support"].revisions[0].candidates.members[2]
    made = encode(ResponseId(member_hash(member.id), process_hash(member.incarnation), 7), bytes(RANDOM_BYTES))
    found = route_by_response(known.index, known.balancer.members, made, b"")
    assert found.candidates.members == (member,)
    assert (found.group, found.revision, found.demand.cached) == ("chat/support", "", False)


@pytest.mark.parametrize("response", ["resp_1", encode(ResponseId(1, 2, 3), bytes(RANDOM_BYTES))])
def test_a_response_that_nobody_holds(response):
    known = state()
    with pytest.raises(ApiError) as caught:
        route_by_response(known.index, known.balancer.members, response, b"")
    assert (caught.value.status, caught.value.code) == (404, "response_not_found")


def test_a_replica_that_drains_still_answers_for_what_it_holds():
    known = state()
    member = known.index.names["support"].revisions[0].candidates.members[2]
    made = encode(ResponseId(member_hash(member.id), process_hash(member.incarnation), 7), bytes(RANDOM_BYTES))
    slots = (slot(0), slot(1), slot(2, SlotState.DRAINING))
    known.install(table(group("support", revision(slots=slots))), "file", 1.0)
    candidates = known.index.names["support"].revisions[0].candidates
    assert member not in candidates.members
    assert route_by_response(known.index, known.balancer.members, made, b"").candidates.members == (member,)
    known.install(table(group("support", revision(slots=slots[:2]))), "file", 2.0)
    with pytest.raises(ApiError):
        route_by_response(known.index, known.balancer.members, made, b"")


@pytest.mark.parametrize(("namespace", "found"), [("", True), ("chat", True), ("other", False)])
def test_a_response_of_another_namespace_is_not_there(namespace, found):
    known = state()
    member = known.index.names["support"].revisions[0].candidates.members[0]
    made = encode(ResponseId(member_hash(member.id), process_hash(member.incarnation), 7), bytes(RANDOM_BYTES))
    if found:
        assert route_by_response(known.index, known.balancer.members, made, b"", namespace).candidates.members == (
            member,
        )
        return
    with pytest.raises(ApiError) as caught:
        route_by_response(known.index, known.balancer.members, made, b"", namespace)
    assert (caught.value.status, caught.value.code) == (404, "response_not_found")
