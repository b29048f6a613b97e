"""Groups whose slots are on the same engine, as a host and its guests are: what each has of its own stays its own."""

import contextlib

import orjson
import pytest

from promptgroup_contract.access import ANYBODY
from promptgroup_contract.caller_rules import CallerLimits, CallerRules
from promptgroup_contract.table import Engine
from support.answered import CACHING
from support.fakeengine import Call, engines, until
from support.keys import BY_KEY, KEY_A, write_keys
from support.tables import group, revision, slot, table
from support.wire import ask, chat, post, routing, run

HOST, GUEST = "You are the host's assistant.", "You are the guest's assistant."


async def counted(call: Call) -> None:
    choice = {"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 40, "completion_tokens": 10}
    call.answer(orjson.dumps({"id": "a", "choices": [choice], "usage": usage}))


@contextlib.asynccontextmanager
async def shared(folder, **guest):
    """A router of a host and a guest with these fields, and the one engine of both."""
    async with engines(1, counted) as (engine,):
        slots = (slot(0, address=engine.address),)
        known = table(
            group("pool", revision(HOST, slots=slots, engine=Engine("e1"))),
            group("returns", revision(GUEST, slots=slots, engine=Engine("e1")), **guest),
        )
        async with routing(folder, known, secrets_dir=folder / "secrets", access=ANYBODY) as router:
            yield router, engine


def test_a_guest_asks_for_keys_and_its_host_does_not(tmp_path):
    write_keys(tmp_path / "secrets", team_a=KEY_A)

    async def check():
        async with shared(tmp_path, access=BY_KEY) as (router, engine):
            await until(lambda: router.state.keys_tried, "the keys")
            assert (await ask(router.port, post(chat(system=HOST)))).status == 200
            assert (await ask(router.port, post(chat(system=GUEST)))).status == 401
            assert (await ask(router.port, post(chat(system=GUEST), f"x-api-key: {KEY_A}"))).status == 200
            assert len(engine.requests) == 2

    run(check())


def test_limits_of_a_guest_hold_for_its_requests_alone(tmp_path):
    async def check():
        rules = CallerRules(default=CallerLimits(requests_per_minute=1))
        async with shared(tmp_path, callers=rules) as (router, _):
            for _ in range(3):
                assert (await ask(router.port, post(chat(system=HOST)))).status == 200
            found = [(await ask(router.port, post(chat(system=GUEST)))).status for _ in range(2)]
            assert found == [200, 429]

    run(check())


def test_a_guest_that_isolates_its_callers_salts_its_requests_alone(tmp_path):
    write_keys(tmp_path / "secrets", team_a=KEY_A)

    async def check():
        rules = CallerRules(salted=frozenset(("chat", "text")))
        async with shared(tmp_path, access=BY_KEY, callers=rules) as (router, engine):
            await until(lambda: router.state.keys_tried, "the keys")
            await ask(router.port, post(chat(system=GUEST), f"x-api-key: {KEY_A}"))
            await ask(router.port, post(chat(system=HOST)))
            assert ["cache_salt" in orjson.loads(request.body) for request in engine.requests] == [True, False]

    run(check())


def test_answers_of_a_guest_are_kept_for_it_alone(tmp_path):
    async def check():
        async with shared(tmp_path, responses=CACHING) as (router, engine):
            for _ in range(2):
                await ask(router.port, post(chat(system=GUEST, temperature=0)))
            assert len(engine.requests) == 1
            for _ in range(2):
                await ask(router.port, post(chat(system=HOST, temperature=0)))
            assert len(engine.requests) == 3

    run(check())


@pytest.mark.parametrize("name", ["pool", "returns"])
def test_a_client_that_names_a_group_gets_its_prompt(tmp_path, name):
    async def check():
        async with shared(tmp_path) as (router, engine):
            body = {"model": name, "messages": [{"role": "user", "content": "Hi"}]}
            assert (await ask(router.port, post(body))).status == 200
            sent = orjson.loads(engine.requests[0].body)
            assert sent["messages"][0]["content"] == (HOST if name == "pool" else GUEST)

    run(check())
