"""A gateway's clients get no engine's error that may repeat a prompt from a Secret."""

import json

import pytest

from promptgroup_contract.table import PromptRef
from promptgroup_router.decision.composition import router_state
from support.grpcclient import OneRequest
from support.tables import SYSTEM, group, revision, slot, table

CHAT = {"model": "support", "messages": [{"role": "user", "content": "Hi"}]}
FULL_DUPLEX, STREAMED, BUFFERED, NONE = 4, 1, 2, 0


def shown() -> OneRequest:
    state = router_state()
    secret = revision(slots=(slot(0, address="10.0.0.1:8000"),), prompt_from=PromptRef("Secret", "support-1"))
    state.install(table(group("support", secret)), "file", 0.0)
    return OneRequest(state)


@pytest.mark.parametrize("mode", [FULL_DUPLEX, STREAMED, BUFFERED, NONE])
def test_an_engines_error_is_replaced_where_the_prompt_was_put_in_front(mode):
    request = shown()
    request.head(answer=mode)
    request.body(json.dumps(CHAT).encode())
    (answer,) = request.answer_head(status=400)
    refused = answer.immediate_response
    assert refused.status.code == 400
    assert json.loads(refused.body)["error"]["code"] == "engine_error"
    assert request.picker.state.balancer.placed.loads == {}


def test_who_brings_the_prompt_gets_the_engines_error():
    request = shown()
    request.head(answer=FULL_DUPLEX)
    body = CHAT | {"model": "llama", "messages": [{"role": "system", "content": SYSTEM}, *CHAT["messages"]]}
    request.body(json.dumps(body).encode())
    (answer,) = request.answer_head(status=400)
    assert answer.WhichOneof("response") == "response_headers"


def test_responses_by_name_are_refused():
    request = shown()
    request.head(**{":path": "/v1/responses"})
    (answer,) = request.body(json.dumps({"model": "support", "input": "Hi"}).encode())
    assert json.loads(answer.immediate_response.body)["error"]["code"] == "secret_prompt"
