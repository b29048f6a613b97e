"""Each rule for callers by each way to a strict group's engine: own requests, a sibling's, lent replicas, pickers."""

import contextlib
from dataclasses import dataclass, replace

import orjson
import pytest

from promptgroup_contract.caller_rules import CachedTokens, CallerLimits, CallerRules, EngineField
from promptgroup_contract.table import Engine, SlotState
from promptgroup_picker.stubs.ext_proc_pb2 import ProcessingRequest
from promptgroup_router.decision.composition import router_state
from promptgroup_router.features.stored_responses.response_id import OWNED
from promptgroup_router.http11.http1 import pairs
from promptgroup_router.rings.building import build_index
from support.answered import CACHING
from support.fakeengine import engines, until
from support.grpcclient import OneRequest, header_map
from support.keys import BY_KEY, KEY_A, KEY_B, write_keys
from support.tables import SYSTEM, group, revision, slot, table
from support.wire import ask, get, post, routing, run

A, B = (f"Authorization: Bearer {key}" for key in (KEY_A, KEY_B))
LOOSE = CallerRules(
    allowed=frozenset((EngineField.PRIORITY, EngineField.KV_TRANSFER_PARAMS)), headers=frozenset(("x-tenant",))
)
ALL = frozenset(("chat", "text", "messages", "responses", "by model"))
STRICT = {
    "isolation": replace(LOOSE, salted=ALL),
    "allowed fields": replace(LOOSE, allowed=frozenset()),
    "allowed headers": replace(LOOSE, headers=frozenset()),
    "cached tokens": replace(LOOSE, cached_tokens=CachedTokens.HIDDEN),
}
SAID = {"priority": -9, "kv_transfer_params": {"do_remote_prefill": True}, "temperature": 0}
RESPONSES = "/v1/responses"


async def tells(call) -> None:
    """Answer as an engine that stores responses, with all that it knows of its cache."""
    details = {"cached_tokens": 32}
    usage = {"prompt_tokens": 40, "input_tokens": 40, "completion_tokens": 3, "output_tokens": 3}
    usage |= {"prompt_tokens_details": details, "input_tokens_details": details}
    asked = orjson.loads(call.request.body or b"{}")
    choice = {"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
    told = {"id": asked.get("request_id", "c-1"), "choices": [choice], "usage": usage}
    call.answer(orjson.dumps(told), 200, "X-Tenant: of another")


@dataclass
class World:
    router: object
    engines: list
    rules: CallerRules

    async def send(self, who: str, body: dict, path: str = "/v1/chat/completions"):
        fields = (who, "Content-Type: application/json", "X-Tenant: acme")
        return await ask(self.router.port, post(SAID | body, *fields, path=path))

    async def both(self, body: dict, path: str = "/v1/chat/completions"):
        return [await self.send(who, body, path) for who in (A, B)]


def chat(model: str, system: str = "", user: str = "Hi") -> dict:
    told = [{"role": "system", "content": system}] if system else []
    return {"model": model, "messages": [*told, {"role": "user", "content": user}]}


async def stored(it: World):
    """A's response, which B continues, reads and cancels through every group."""
    made = await it.send(A, {"model": "strict", "input": "Hi"}, RESPONSES)
    name, isolated = made.json["id"], it.rules.isolates
    assert name.startswith(OWNED) is isolated
    more = {"input": "Hi", "previous_response_id": name}
    tried = [await it.send(B, more | {"model": model}, RESPONSES) for model in ("strict", "loose", "llama")]
    lines = get(f"{RESPONSES}/{name}", B), post(b"", B, path=f"{RESPONSES}/{name}/cancel")
    tried += [await ask(it.router.port, line) for line in lines]
    mine = await ask(it.router.port, get(f"{RESPONSES}/{name}", A))
    assert mine.status == 200
    # through the group that has other replicas nobody continues it, and none but A anywhere if callers are kept apart
    assert [each.status for each in tried] == ([404] * 5 if isolated else [200, 404, 200, 200, 200])
    return [made, mine, *(each for each in tried if each.status == 200)]


async def undeclared_elsewhere(it: World):
    """Responses of prompts that no group declares, some of which the engine of the loose group holds."""
    made = [await it.send(A, {"model": "llama", "input": str(turn)}, RESPONSES) for turn in range(8)]
    assert all(each.requests for each in it.engines)
    read = [await ask(it.router.port, get(f"{RESPONSES}/{each.json['id']}", B)) for each in made]
    assert {each.status for each in read} == {404 if it.rules.isolates else 200}
    if it.rules.cached_tokens is CachedTokens.HIDDEN:
        assert not any(b"cached" in each.body for each in read)
    return [*made, *read]


WAYS = {
    "own group": lambda it: it.both(chat("llama", SYSTEM)),
    "own group by name": lambda it: it.both(chat("strict")),
    "sibling": lambda it: it.both(chat("loose")),
    "lent": lambda it: it.both(chat("loose")),
    "undeclared": lambda it: it.both(chat("llama")),
    "large body": lambda it: it.both(chat("llama", SYSTEM, "Hi " * 100_000)),
    "large body to a sibling": lambda it: it.both(chat("loose", user="Hi " * 100_000)),
    "stored response": stored,
    "response of another engine": undeclared_elsewhere,
    "response cache": lambda it: it.both(chat("llama", SYSTEM)),
}


def known(rules: CallerRules, way: str, strict: str, loose: str):
    of, away = Engine(settings="same"), way == "lent"
    slots = (slot(0, SlotState.ABSENT if away else SlotState.READY, loose),)
    caching = CACHING if way == "response cache" else None
    return table(
        group("strict", revision(SYSTEM, (slot(0, address=strict),), engine=of), access=BY_KEY, callers=rules,
              responses=caching),
        group("loose", revision("You are loose.", slots, engine=of), access=BY_KEY, callers=LOOSE),
    )  # fmt: skip


def check(rule: str, engine, answers: list) -> None:
    """Check what the strict group's engine got, and what callers learned of it."""
    bodies = [orjson.loads(each.body) for each in engine.requests if each.body]
    if rule == "isolation":
        assert all(len(body["cache_salt"]) == 48 for body in bodies)
    elif rule == "allowed fields":
        assert all(SAID.keys() & body.keys() == {"temperature"} for body in bodies)
    elif rule == "allowed headers":
        assert not any(name == b"x-tenant" for each in engine.requests for name, _ in pairs(each.head.headers))
        assert not any(b"x-tenant" in answer.headers for answer in answers)
    else:
        assert not any(b"cached" in answer.body for answer in answers)


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=[pytest.mark.heavy] if "large" in way else []) for way in WAYS]
)
@pytest.mark.parametrize("rule", STRICT)
def test_no_way_to_an_engine_goes_past_the_rules_of_its_group(tmp_path, rule, way):
    async def test():
        write_keys(tmp_path / "secrets", team_a=KEY_A, team_b=KEY_B)
        async with engines(2, tells, tells) as (strict, loose), contextlib.AsyncExitStack() as stack:
            served = known(STRICT[rule], way, strict.address, loose.address)
            router = await stack.enter_async_context(routing(tmp_path, served, secrets_dir=tmp_path / "secrets"))
            await until(lambda: router.state.keys_tried, "the keys")
            answers = await WAYS[way](World(router, [strict, loose], STRICT[rule]))
            bodies = [orjson.loads(each.body) for each in strict.requests if each.body]
            check(rule, strict, [each for each in answers if each.served_by.startswith("chat/strict")])
            if way == "lent":
                assert not bodies
                assert [each.status for each in answers] == [503, 503]
            elif "sibling" in way:
                assert not bodies
            elif rule == "isolation" and way in ("own group", "response cache"):
                assert len({body["cache_salt"] for body in bodies}) == len(bodies) == 2

    run(test())


@pytest.mark.parametrize("lends", [True, False])
@pytest.mark.parametrize("rule", STRICT)
def test_a_picker_keeps_the_same_rules(rule, lends):
    state, of, away = router_state(), Engine(settings="same"), (slot(0, SlotState.ABSENT),)
    strict = group("strict", revision(SYSTEM, 1, engine=of), callers=LOOSE if lends else STRICT[rule])
    state.install(
        table(strict, group("loose", revision("You are loose.", away, engine=of), callers=LOOSE)), "file", 0.0
    )
    request = OneRequest(state)
    request.head()
    first, *_ = request.body(orjson.dumps(SAID | chat("loose")))
    assert (first.WhichOneof("response") == "request_headers") is lends


PICKED = {
    "own group": ("/v1/chat/completions", chat("llama", SYSTEM)),
    "own group by name": ("/v1/chat/completions", chat("strict")),
    "undeclared": ("/v1/chat/completions", chat("llama")),
    "stored response": (RESPONSES, {"model": "strict", "input": "Hi", "previous_response_id": "resp_of_an_engine"}),
}
"""Ways through a picker, which keeps no answers."""


@pytest.mark.parametrize("way", PICKED)
@pytest.mark.parametrize("rule", [rule for rule in STRICT if rule != "isolation"])
def test_what_a_picker_passes_on_keeps_the_rules_of_the_group(rule, way):
    state, (path, document) = router_state(), PICKED[way]
    state.install(table(group("strict", revision(SYSTEM), callers=STRICT[rule])), "file", 0.0)
    request = OneRequest(state)
    request.head(_path=path, x_tenant="acme")
    head, body = request.body(orjson.dumps(SAID | document))
    sent = orjson.loads(body.request_body.response.body_mutation.streamed_response.body)
    answer = header_map(
        ProcessingRequest(),
        "response_headers",
        {":status": "200", "content-type": "application/json", "x-tenant": "of another"},
        end=False,
    )
    (began,) = request.show(answer)
    told = orjson.dumps({"usage": {"prompt_tokens": 40, "prompt_tokens_details": {"cached_tokens": 32}}})
    (ended,) = request.answer_body(told)
    if rule == "allowed fields":
        assert SAID.keys() & sent.keys() == {"temperature"}
    elif rule == "allowed headers":
        assert "x-tenant" in head.request_headers.response.header_mutation.remove_headers
        assert "x-tenant" in began.response_headers.response.header_mutation.remove_headers
    else:
        assert b"cached" not in ended.response_body.response.body_mutation.streamed_response.body


def test_groups_with_the_same_rules_and_other_limits_lend():
    strict, loose = known(STRICT["isolation"], "lent", "127.0.0.1:1", "127.0.0.1:2").groups
    limited = replace(strict.callers, default=CallerLimits(in_flight=4), named=(("web", CallerLimits(weight=4)),))
    view = build_index(table(strict, replace(loose, callers=limited)))
    assert [each.group for each in view.names["loose"].revisions[0].candidates.members] == ["chat/strict"]
