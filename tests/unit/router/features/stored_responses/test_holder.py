import pytest

from promptgroup_router.features.stored_responses.holder import find_holder, holds, lost
from promptgroup_router.features.stored_responses.response_id import ResponseId, process_hash
from promptgroup_router.rings.building import build_index
from promptgroup_router.rings.ids import member_hash
from support.tables import table

CANDIDATES = build_index(table()).names["support"].revisions[0].candidates
MEMBER = CANDIDATES.members[1]


def made_by(member, process="a") -> ResponseId:
    return ResponseId(member_hash(member.id), process_hash(process), 7)


def test_the_member_that_made_a_response_holds_it():
    assert find_holder(CANDIDATES, made_by(MEMBER)) is MEMBER
    assert find_holder(CANDIDATES, ResponseId(1, 2, 3)) is None


def test_another_process_in_its_place_does_not():
    assert holds(MEMBER, made_by(MEMBER))
    assert not holds(MEMBER, made_by(MEMBER, "b"))


def test_candidates_may_be_narrowed_to_one():
    alone = CANDIDATES.only(MEMBER)
    assert alone.members == alone.ready == (MEMBER,)
    assert list(alone.order(99)) == [MEMBER]
    assert alone.id == CANDIDATES.id


@pytest.mark.parametrize(("restarted", "words"), [(True, "restarted"), (False, "superseded")])
def test_a_lost_response_is_told_with_the_way_out(restarted, words):
    error = lost("resp_1", "previous_response_id", "previous_response_not_found", restarted=restarted)
    assert (error.status, error.code, error.param) == (404, "previous_response_not_found", "previous_response_id")
    assert words in str(error)
    assert "without previous_response_id" in str(error)
    assert "without" not in str(lost("resp_1", "response_id", "response_not_found", restarted=restarted))
