import json
from dataclasses import replace

from promptgroup_contract.table import ResponseCaching
from promptgroup_router.decision.arrival import arrive
from promptgroup_router.decision.composition import router_state
from promptgroup_router.features.kept_request import KeptRequest
from promptgroup_router.routing.points import feature_of
from support.tables import group, table
from support.wire import chat


def test_a_request_of_a_group_that_keeps_answers_is_there_to_be_looked_up():
    for caching in (None, ResponseCaching(60, 1 << 20)):
        state = router_state()
        state.install(table(replace(group(), responses=caching)), "file", 0.0)
        body = json.dumps(chat("What time is it?")).encode()
        found = arrive(state, method=b"POST", path=b"/v1/chat/completions", headers={}, body=body, now=0.0)
        kept = feature_of(found.features, KeptRequest)
        assert (kept is not None) is (caching is not None)
        assert kept is None or kept.ask.raw == body
