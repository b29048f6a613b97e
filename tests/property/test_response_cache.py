"""Interleaved requests of several callers and groups, with releases and purges: nobody ever gets what is not theirs."""

import asyncio
import itertools
import os
import random

import orjson
import pytest

from promptgroup_contract.fingerprint import short
from promptgroup_contract.table import CacheScope, Engine, ResponseCaching, RoutingTable
from promptgroup_router.response_cache.purge import Purge
from support.answered import event, said
from support.answering_fleet import knowing_each_other
from support.fakeengine import Call, engines
from support.tables import group, revision, slot, table
from support.wire import Client, connected, post

CALLERS = ["", "ann", "ben"]
QUESTIONS = ["a", "b", "c", "d"]
REVISIONS = 4
REQUESTS = int(os.environ.get("RESPONSE_CACHE_REQUESTS", "10000"))
"""Requests of the long run."""
SEED = int(os.environ.get("RESPONSE_CACHE_SEED", "2"))
REQUESTS_A_CHANGE = 120
"""Answers between two releases or purges: as many on a busy machine as on another."""
SECONDS = 300.0 + REQUESTS / 100


class Witness:
    """An engine whose answers say who asked, of which prompt and model, and for what, and which inference it was."""

    def __init__(self) -> None:
        self.inferences = 0

    async def __call__(self, call: Call) -> None:
        self.inferences += 1
        asked = call.json
        caller = call.request.head.fields.get(b"user-agent", b"").decode()
        text = orjson.dumps(
            {
                "caller": caller,
                "prompt": asked["messages"][0]["content"],
                "model": asked["model"],
                "asked": asked["messages"][-1]["content"],
                "limit": asked.get("max_tokens"),
                "number": self.inferences,
            }
        ).decode()
        id_ = f"chatcmpl-{self.inferences:032x}"
        if asked.get("stream"):
            call.begin_stream()
            call.chunk(
                event({"id": id_, "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": "stop"}]})
            )
            call.chunk(b"data: [DONE]\n\n")
            call.send(b"0\r\n\r\n")
        else:
            choice = {"index": 0, "message": {"content": text}, "finish_reason": "stop"}
            call.answer(orjson.dumps({"id": id_, "choices": [choice]}))


class World:
    """Two groups of two models, each with a revision that releases replace."""

    def __init__(self, address: str, rng: random.Random) -> None:
        self._slots = (slot(0, address=address),)
        self._rng = rng
        self.versions = {"one": 0, "two": 0}
        self.prompts: dict[str, str] = {}
        """Short fingerprint → prompt, of all revisions that ever were."""
        self.settings = 0

    def release(self) -> RoutingTable:
        changed = self._rng.choice(["one", "two", "engine"])
        if changed == "engine":
            self.settings += 1
        else:
            # also back to an older prompt
            self.versions[changed] = self._rng.randrange(REVISIONS)
        return self.table()

    def table(self) -> RoutingTable:
        groups = []
        for name, current in self.versions.items():
            # older revisions take no new sessions and finish what they have, as the operator keeps them
            revisions = [
                revision(
                    f"Prompt {number} of {name}.",
                    self._slots,
                    engine=Engine(f"e{self.settings}"),
                    weight=100 if number == current else 0,
                )
                for number in range(REVISIONS)
            ]
            self.prompts |= {short(each.fingerprint): each.prompt.system for each in revisions}
            caching = ResponseCaching(3600, 2**20, CacheScope.GROUP if name == "one" else CacheScope.CALLER)
            groups.append(group(name, *revisions, model=f"model-{name}", responses=caching))
        return table(*groups, version=f"{self.versions}{self.settings}")


async def client_of(world: World, client: Client, rng: random.Random, count: int, told: dict[str, int]) -> int:
    """Ask and check, so many times. Return the number of hits."""
    hits = 0
    for _ in range(count):
        caller, name, question = rng.choice(CALLERS), rng.choice(["one", "two"]), rng.choice(QUESTIONS)
        limit, streamed = rng.choice([None, 5]), rng.random() < 0.5
        body = {
            "model": name,
            "messages": [{"role": "user", "content": question}],
            "temperature": 0,
            "stream": streamed,
        }
        if limit is not None:
            body["max_tokens"] = limit
        header = [f"Authorization: {caller}", f"User-Agent: {caller}"] if caller else []
        least = told["purged"]
        answer = await client.ask(post(body, *header))
        told["answered"] += 1
        assert answer.status == 200, answer
        text = orjson.loads(said(answer.body))
        current = world.prompts[answer.headers[b"x-promptgroup-revision"].decode()]
        assert (text["caller"], text["asked"], text["limit"]) == (caller, question, limit)
        assert (text["model"], text["prompt"]) == (f"model-{name}", current)
        assert text["number"] > least, "an answer from before a purge of everything"
        hits += b"hit" in answer.headers[b"cache-status"]
    return hits


async def interleave(tmp_path, count: int, seed: int, clients: int = 24) -> None:
    rng, witness = random.Random(seed), Witness()
    async with engines(1, witness) as (engine,):
        world = World(engine.address, rng)
        told = {"purged": 0, "answered": 0}
        async with knowing_each_other(tmp_path, world.table()) as routers:
            for router in routers:
                router.core._feed.look = lambda: None  # the table comes from here alone

            async def change() -> None:
                for next_one in itertools.count(REQUESTS_A_CHANGE, REQUESTS_A_CHANGE):
                    while told["answered"] < next_one:  # noqa: ASYNC110
                        await asyncio.sleep(0.002)
                    if rng.random() < 0.2:
                        before = witness.inferences
                        for router in routers:
                            router.answers.purge(Purge())
                        # a request that begins from here on gets nothing that an engine was asked for before
                        told["purged"] = before
                    else:
                        new = world.release()
                        for router in rng.sample(routers, 3):
                            router.state.install(new, "test", router.core.clock())
                            if rng.random() < 0.3:
                                await asyncio.sleep(0.005)

            async def ask(number: int) -> int:
                async with connected(routers[number % 3].port) as client:
                    return await client_of(world, client, random.Random(seed * 1000 + number), count // clients, told)

            changing = asyncio.ensure_future(change())
            hits = sum(await asyncio.gather(*(ask(number) for number in range(clients))))
            changing.cancel()
            assert hits > count // 5, "too few answers came from the cache to say anything"
            assert witness.inferences < count


def timed(test) -> None:
    async def limited() -> None:
        async with asyncio.timeout(SECONDS):
            await test

    asyncio.run(limited())


@pytest.mark.heavy
def test_no_answer_is_of_another_caller_revision_or_model(tmp_path):
    timed(interleave(tmp_path, 240, 1))


@pytest.mark.slow
def test_none_of_many_answers_is_of_another_caller_revision_or_model(tmp_path):
    timed(interleave(tmp_path, REQUESTS, SEED))


@pytest.mark.slow
def test_a_thousand_equal_requests_to_three_routers_are_one_inference(tmp_path):
    async def inside() -> None:
        witness = Witness()
        async with engines(1, witness) as (engine,):
            world = World(engine.address, random.Random(0))
            async with knowing_each_other(tmp_path, world.table(), max_connections=2000) as routers:
                body = {
                    "model": "one",
                    "messages": [{"role": "user", "content": "a"}],
                    "temperature": 0,
                    "stream": True,
                }

                async def one(number: int) -> bytes:
                    async with connected(routers[number % 3].port) as client:
                        return (await client.ask(post(body))).body

                answers = await asyncio.gather(*(one(number) for number in range(1000)))
                assert witness.inferences == 1
                assert all(answer.endswith(b"data: [DONE]\n\n") for answer in answers)
                assert {orjson.loads(said(answer))["number"] for answer in answers} == {1}

    timed(inside())
