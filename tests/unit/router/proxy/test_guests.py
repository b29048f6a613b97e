"""Groups whose slots are on the same engine, as a host and its guests are: what each has of its own stays its own."""

import contextlib
import itertools
import time

import orjson
import pytest

from promptgroup_contract.access import ANYBODY
from promptgroup_contract.caller_rules import CallerLimits, CallerRules
from promptgroup_contract.table import Engine
from promptgroup_router.apis.request import ApiKind, parse
from promptgroup_router.apis.tokens import Tokens
from promptgroup_router.placement.balancer import Balancer
from promptgroup_router.policy.health import Health
from promptgroup_router.rings.building import build_index
from promptgroup_router.routing.route import route
from support.answered import CACHING
from support.fakeengine import Call, engines, until
from support.keys import BY_KEY, KEY_A, write_keys
from support.routes import points_of
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


class Placing:
    """A router that places a thousand requests by name, each of another group in turn."""

    def __init__(self, known):
        self.view, self.balancer, self.tokens = build_index(known), Balancer(Health()), Tokens()
        self.balancer.members.install(self.view, 0.0)
        self.points = points_of(self.view)
        names = itertools.cycle(item.name for item in known.groups)
        bodies = [orjson.dumps(chat(f"Hello {number}", system="", model=next(names))) for number in range(1000)]
        self.requests = [parse(ApiKind.CHAT, body) for body in bodies]

    def seconds(self, now):
        """CPU time that it takes."""
        began = time.thread_time()
        for request in self.requests:
            where = {"points": self.points, "locations": self.balancer.locations, "tokens": self.tokens}
            placed = route(self.view, request, {}, **where, now=now)
            pick = self.balancer.pick(placed.candidates, placed.demand, now)
            assert pick is not None
            self.balancer.placed.release(pick, now)
        return time.thread_time() - began


@pytest.mark.heavy
def test_a_request_of_one_of_two_hundred_guests_costs_no_more_than_of_one_of_as_many_groups():
    def fleet(address):
        slots = [tuple(slot(index, address=address(number, index)) for index in range(8)) for number in range(200)]
        prompts = [revision(f"You are number {number}.", slots=slots[number]) for number in range(200)]
        return Placing(table(*(group(f"g{number}", prompt) for number, prompt in enumerate(prompts))))

    guests = fleet(lambda _, index: f"10.0.0.{index}:8000")
    owners = fleet(lambda number, index: f"10.0.{number}.{index}:8000")
    # by turns: what else runs on the machine only adds to the time of either
    spent = [(guests.seconds(now), owners.seconds(now)) for now in range(12)]
    shared, own = (min(column) for column in zip(*spent, strict=True))
    assert shared < 1.5 * own, f"{shared / own:.2f} times"
