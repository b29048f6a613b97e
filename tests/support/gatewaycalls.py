"""A request that a gateway shows to a picker of a small table."""

import json
import random

from promptgroup_router.decision.composition import router_state
from promptgroup_router.features.tracing.sampling import Sampling
from promptgroup_router.features.tracing.tracer import Tracer
from support.grpcclient import OneRequest
from support.wire import chat, table_of

ADDRESSES = ("10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000")


CHAT = json.dumps(chat()).encode()


USAGE = b'{"usage":{"prompt_tokens":40,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":30}}}'


def shown(*addresses: str, served=None, **limits: int) -> OneRequest:
    state = router_state()
    state.install(served or table_of(*(addresses or ADDRESSES)), "file", 0.0)
    return OneRequest(state, **limits)


def in_flight(request: OneRequest) -> int:
    return sum(request.picker.state.balancer.placed.loads.values())


def refusal(responses):
    (response,) = responses
    answer = response.immediate_response
    return answer.status.code, json.loads(answer.body)["error"]["code"], answer


def exposition(request: OneRequest) -> str:
    return request.picker.state.exposition(request.now, 0)


EARLY = {
    "head": lambda request: request.answer_head(504),
    "body": lambda request: request.answer_body(b"timeout"),
    "trailers": lambda request: request.trailers("response_trailers"),
}


CLIENT_TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0"


def traced(ratio: float):
    ended, request = [], shown()
    request.picker.state.features.tracer = Tracer(Sampling(ratio, parent_based=True), random.randbytes, ended.append)
    return request, ended


def set_by(response) -> dict[str, str]:
    mutation = response.request_headers.response.header_mutation
    return {each.header.key: each.header.raw_value.decode() for each in mutation.set_headers}
