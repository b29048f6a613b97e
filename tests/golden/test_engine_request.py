"""One whole request as an engine gets it through a router and behind a picker, and one answer as its client gets it.

The client sends each field that an engine was ever seen to read, and those of popular clients, gateways and browsers.
GOLDEN_UPDATE=1 rewrites the pages; a line more is a right more of clients, and is to be judged.
"""

import json
import os
from pathlib import Path

import pytest

from promptgroup_contract.caller_rules import CallerRules
from promptgroup_picker.stubs.ext_proc_pb2 import ProcessingRequest
from promptgroup_router.decision.composition import router_state
from support.engineheaders import FROM_ENGINES, JUDGED
from support.fakeengine import Call, engines
from support.grpcclient import OneRequest, header_map
from support.tables import group, revision, slot, table
from support.wire import ask, post, routing, run

FOLDER = Path(__file__).parent / "engine_request"
OTHERS = (
    *("accept-language", "anthropic-beta", "anthropic-version", "baggage", "cache-control", "cookie", "dnt"),
    *("forwarded", "idempotency-key", "openai-organization", "openai-project", "origin", "priority", "referer"),
    *("x-amzn-trace-id", "x-b3-traceid", "x-forwarded-client-cert", "x-forwarded-user", "x-promptgroup-warmup"),
    *("x-real-ip", "x-stainless-lang", "x-stainless-retry-count", "x-tenant", "x_data_parallel_rank"),
)
FIELDS = dict.fromkeys(sorted({*JUDGED, *OTHERS} - {"content-length"}), "1") | {"content-type": "application/json"}
ANSWER = dict.fromkeys(sorted({*FROM_ENGINES, "cache-control", "retry-after", "x-ratelimit-limit", "x-tenant"}), "1")
BODY = {"model": "support", "messages": [{"role": "user", "content": "Hi"}], "kv_transfer_params": {}, "priority": -9}
CASES = {"": (), "-named": ("x-tenant",)}
"""The end of a page's name → the fields that the group names."""


def served(named: tuple[str, ...], address: str = "10.0.0.1:8000"):
    made = revision(slots=(slot(0, address=address),))
    return table(group("support", made, callers=CallerRules(headers=frozenset(named))))


def compared(name: str, lines: list[str]) -> None:
    path, found = FOLDER / f"{name}.txt", "\n".join([*lines, ""])
    if os.environ.get("GOLDEN_UPDATE"):
        path.write_text(found)
    assert found == path.read_text(), "GOLDEN_UPDATE=1 rewrites it"


def lines_of(fields: dict[str, str], own: dict[str, str]) -> list[str]:
    return [f"{name}: {own.get(name, value)}" for name, value in fields.items()]


@pytest.mark.parametrize("case", CASES)
def test_a_request_through_a_router(tmp_path, case):
    async def tell(call: Call) -> None:
        call.answer(b"{}", 200, *(f"{name}: {value}" for name, value in ANSWER.items()))

    async def check():
        async with engines(1, tell) as (engine,), routing(tmp_path, served(CASES[case], engine.address)) as router:
            answer = await ask(router.port, post(BODY, *(f"{name}: {value}" for name, value in FIELDS.items())))
        (seen,) = engine.requests
        got = {each.name.decode(): each.value.decode() for each in seen.head.headers}
        assert len(got) == len(seen.head.headers)
        told = {name.decode(): value.decode() for name, value in answer.headers.items()}
        own = {"host": "ENGINE", "x-request-id": "ID"}
        asked = [f"{seen.head.method.decode()} {seen.head.path.decode()}", *lines_of(got, own), "", seen.body.decode()]
        answered = [f"{answer.status}", *lines_of(told, {}), "", answer.body.decode()]
        compared(f"router{case}", [*asked, "", *answered])

    run(check())


@pytest.mark.parametrize("case", CASES)
def test_a_request_behind_a_picker(case):
    state = router_state()
    state.install(served(CASES[case]), "file", 0.0)
    request, body = OneRequest(state), json.dumps(BODY).encode()
    sent = {":method": "POST", ":path": "/v1/chat/completions", ":authority": "gateway", **FIELDS}
    sent["content-length"] = str(len(body))
    request.show(header_map(ProcessingRequest(), "request_headers", sent, end=False))
    head, content = request.body(body)
    got = mutated(sent, head.request_headers.response.header_mutation)
    asked = content.request_body.response.body_mutation.streamed_response.body.decode()
    answered = {":status": "200", "content-type": "application/json", **ANSWER}
    (answer,) = request.show(header_map(ProcessingRequest(), "response_headers", answered, end=True))
    told = mutated(answered, answer.response_headers.response.header_mutation)
    compared(f"picker{case}", [*lines_of(got, {}), "", asked, "", *lines_of(told, {})])


def mutated(fields: dict[str, str], mutation) -> dict[str, str]:
    """The fields of a message after a gateway has done what it was told."""
    left = {name: value for name, value in fields.items() if name not in mutation.remove_headers}
    return left | {each.header.key: each.header.raw_value.decode() for each in mutation.set_headers}
