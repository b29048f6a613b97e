import json

import pytest

from promptgroup_contract.caller_rules import CallerRules
from promptgroup_picker.extproc import messages
from promptgroup_picker.extproc.gateway_fields import OWN, to_remove
from promptgroup_picker.stubs.ext_proc_pb2 import ProcessingRequest, ProcessingResponse
from promptgroup_router.decision.composition import router_state
from promptgroup_router.decision.engine_headers import TO_ENGINES
from support.engineheaders import FROM_ENGINES, JUDGED
from support.grpcclient import OneRequest, header_map
from support.tables import group, table
from support.wire import chat

CHAT = json.dumps(chat()).encode()


def shown(*named: str) -> OneRequest:
    state = router_state()
    state.install(table(group("support", callers=CallerRules(headers=frozenset(named)))), "file", 0.0)
    return OneRequest(state)


def removed(responses: list[ProcessingResponse], kind: str) -> set[str]:
    (first, *_) = responses
    return set(getattr(first, kind).response.header_mutation.remove_headers)


def asked(request: OneRequest, mode: int, fields: dict[str, str]) -> set[str]:
    request.head(mode=mode, **fields)
    return removed(request.body(CHAT), "request_body" if mode == 2 else "request_headers")


@pytest.mark.parametrize("mode", [2, 4], ids=["buffered", "full duplex"])
def test_the_gateway_takes_out_each_field_that_was_not_judged_to_be_harmless(mode):
    taken = asked(shown(), mode, dict.fromkeys(JUDGED, "1"))
    kept = {name for name, judged in JUDGED.items() if judged.passes} | {"x-request-id", "content-length"}
    assert taken == JUDGED.keys() - kept


def test_what_nobody_has_heard_of_is_taken_out_too():
    assert "x-engine-of-next-year" in asked(shown(), 4, {"X-Engine-Of-Next-Year": "1"})


def test_what_a_group_names_stays():
    assert asked(shown("x-tenant"), 4, {"x-tenant": "a", "x-rank": "1"}) == {"x-rank"}


def test_what_the_gateway_needs_stays():
    own = {name.decode(): "1" for name in OWN} | {"x-envoy-attempt-count": "1"}
    assert asked(shown(), 4, own) == set()
    assert to_remove((b":method", b":path", b":authority", b":scheme"), TO_ENGINES) == ()


def test_what_is_overwritten_is_not_removed():
    assert to_remove((b"authorization", b"x-a"), TO_ENGINES, (b"authorization",)) == ("x-a",)


def answered(request: OneRequest, *names: str) -> set[str]:
    request.head()
    request.body(CHAT)
    fields = {":status": "200", "content-type": "application/json", "x-envoy-upstream-service-time": "3"}
    message = header_map(ProcessingRequest(), "response_headers", fields | dict.fromkeys(names, "1"), end=True)
    return removed(request.show(message), "response_headers")


def test_the_gateway_takes_out_what_an_engine_says_of_itself():
    assert answered(shown(), *FROM_ENGINES, "retry-after", "cache-control") == set(FROM_ENGINES)
    assert "server" not in answered(shown("server"), *FROM_ENGINES)


def test_a_client_that_thinks_up_names_fills_no_memory():
    request = shown()
    messages._picked.cache_clear()
    for number in range(3):
        asked(request, 4, {f"x-{number}-{'a' * 600}": "1"})
        request.begin()
    assert messages._picked.cache_info().currsize == 0


def test_trailers_are_taken_out_both_ways():
    request = shown("x-tenant")
    request.head()
    request.body(CHAT, end=False)
    message = ProcessingRequest()
    message.request_trailers.trailers.headers.add(key="x-data-parallel-rank", raw_value=b"1")
    responses = request.show(message)
    assert list(responses[-1].request_trailers.header_mutation.remove_headers) == ["x-data-parallel-rank"]
    request.answer_head()
    message = ProcessingRequest()
    for name in ("x-tenant", "endpoint-load-metrics", "x-tenant"):
        message.response_trailers.trailers.headers.add(key=name, raw_value=b"1")
    (last,) = request.show(message)
    assert list(last.response_trailers.header_mutation.remove_headers) == ["endpoint-load-metrics", "x-tenant"]
