import json
from dataclasses import replace

from promptgroup_router.decision.arrival import arrive
from promptgroup_router.decision.engine_request import NOT_FORWARDED, engine_body
from promptgroup_router.rings.ids import member_hash
from promptgroup_router.routing.response_id import RANDOM_BYTES, decode
from promptgroup_router.routing.state import RouterState
from support.wire import table_of


def route_of(path, document):
    state = RouterState()
    state.install(table_of("10.0.0.1:8000"), "file", 0.0)
    body = json.dumps(document).encode()
    found = arrive(state, method=b"POST", path=path, headers={}, body=body, now=0.0)
    return found, found.candidates.members[0], body


def test_a_response_gets_an_id_that_names_its_replica_and_process():
    found, member, _ = route_of(b"/v1/responses", {"model": "llama", "input": "hi"})
    sent = json.loads(engine_body(found, member, bytes(RANDOM_BYTES)))
    assert decode(sent["request_id"]).replica == member_hash(member.id)
    other = json.loads(engine_body(found, replace(member, incarnation="another"), bytes(RANDOM_BYTES)))
    assert decode(other["request_id"]).process != decode(sent["request_id"]).process


def test_other_bodies_are_the_routes_own():
    document = {"model": "llama", "messages": [{"role": "user", "content": "hi"}]}
    found, member, body = route_of(b"/v1/chat/completions", document)
    assert engine_body(found, member, b"") == body


def test_what_only_the_operator_may_say_is_not_forwarded():
    assert b"x-promptgroup-warmup" in NOT_FORWARDED
