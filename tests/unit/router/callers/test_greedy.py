"""One greedy caller beside ten polite ones: their first tokens in virtual time, and a real router's engine."""

import asyncio
import heapq
import random

import orjson
import pytest

from promptgroup_contract.caller_rules import CallerLimits, CallerRules
from promptgroup_router.base.errors import ApiError
from promptgroup_router.callers.limiter import Limiter
from promptgroup_router.routing.admission_queue import AdmissionQueue, Share
from support.fakeengine import Call, engines, until
from support.keys import BY_KEY, KEY_A, KEY_B, write_keys
from support.tables import group, revision, slot, table
from support.wire import ask, chat, post, routing, run

LIMITS = CallerLimits(requests_per_minute=60, in_flight=2)
SHARE = 1.0
"""Requests a second of a polite caller: its share."""
BATCH, SECONDS = 16, 0.5
"""Requests that the engine works on at a time, and seconds that it takes for each."""


def first_tokens(*, greedy: bool, limits: CallerLimits = LIMITS, fair: bool = True) -> tuple[float, int, int]:
    """Return the 99th percentile of polite callers' times to their first token, and greedy requests: served, refused.

    The engine begins a request when it has a place; its first token comes 0.1 s later, and more with each that runs.
    """
    draw, limiter, queue = random.Random(7), Limiter(), AdmissionQueue()
    arrivals = [(draw.random() + index / SHARE, f"polite {caller}") for index in range(180) for caller in range(10)]
    if greedy:
        arrivals += [(index / (100 * SHARE), "greedy") for index in range(18_000)]
    arrivals.sort()
    ends: list[tuple[float, int, object]] = []
    waited, served, refused = [], 0, 0

    def begin(now: float) -> None:
        def fits(item: tuple[float, str, object]) -> bool:
            nonlocal served
            if len(ends) >= BATCH:
                return False
            arrived, caller, charge = item
            heapq.heappush(ends, (now + SECONDS, id(charge), charge))
            if caller == "greedy":
                served += 1
            else:
                waited.append(now - arrived + 0.1 + 0.002 * len(ends))
            return True

        queue.admit(fits)

    for at, caller in arrivals:
        while ends and ends[0][0] <= at:
            end, _, charge = heapq.heappop(ends)
            if charge is not None:
                limiter.settle(charge, None, end)
            begin(end)
        try:
            charge = limiter.admit("a/b", caller, limits, prompt=0, longest=0, now=at)
        except ApiError:
            refused += caller == "greedy"
            continue
        share = Share("a/b", caller if fair else "")
        queue.put((at, caller, charge), at, new=False, share=share)
        begin(at)
    waited.sort()
    return waited[len(waited) * 99 // 100], served, refused


@pytest.mark.heavy
def test_polite_callers_wait_as_long_as_they_would_alone():
    alone, _, _ = first_tokens(greedy=False, limits=CallerLimits(requests_per_minute=120))
    beside, served, refused = first_tokens(greedy=True)
    assert beside <= 1.2 * alone
    assert served <= 3 * 61
    assert refused > 17_000
    unlimited, _, _ = first_tokens(greedy=True, limits=CallerLimits(), fair=False)
    assert unlimited > 10 * alone


@pytest.mark.heavy
def test_shares_alone_keep_the_wait_of_polite_callers_short():
    """Without limits the engine is always full, and a polite request waits for a place, and no longer."""
    beside, _, _ = first_tokens(greedy=True, limits=CallerLimits())
    assert beside <= 0.1 + 0.002 * BATCH + 2 * SECONDS / BATCH + SECONDS


def test_the_engine_of_a_real_router_sees_no_more_of_a_greedy_caller_than_its_limit(tmp_path):
    write_keys(tmp_path / "secrets", team_a=KEY_A, team_b=KEY_B)
    seen: dict[str, int] = {}
    most = 0
    gate = asyncio.Event()

    async def behave(call: Call) -> None:
        nonlocal most
        who = call.json["messages"][1]["content"]
        seen[who] = seen.get(who, 0) + 1
        if who == "greedy":
            most = max(most, seen[who])
            await gate.wait()
        call.answer(orjson.dumps({"usage": {"prompt_tokens": 10, "completion_tokens": 1}}))

    async def check():
        async with engines(1, behave) as (engine,):
            rules = CallerRules(default=CallerLimits(in_flight=3))
            slots = (slot(0, address=engine.address),)
            known = table(group("support", revision(slots=slots), access=BY_KEY, callers=rules))
            async with routing(tmp_path, known, secrets_dir=tmp_path / "secrets") as router:
                await until(lambda: router.state.keys_tried, "the keys")
                greedy = post(chat("greedy"), f"Authorization: Bearer {KEY_A}")
                many = [asyncio.ensure_future(ask(router.port, greedy)) for _ in range(100)]
                await until(lambda: seen.get("greedy") == 3 and sum(each.done() for each in many) == 97, "refusals")
                for _ in range(20):
                    answer = await ask(router.port, post(chat("polite"), f"Authorization: Bearer {KEY_B}"))
                    assert answer.status == 200
                gate.set()
                assert sorted(each.status for each in await asyncio.gather(*many)) == [200] * 3 + [429] * 97
                assert most == 3

    run(check())
