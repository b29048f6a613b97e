"""Limits of callers on real routers, in real time: three processes of which one is killed, and one greedy caller."""

import asyncio
import contextlib
import os
import random
import secrets
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from statistics import median

import pytest
import uvloop

from promptgroup_contract.caller_rules import CallerLimits, CallerRules
from promptgroup_router.feed import table_file
from support.fakeengine import Call, engines
from support.keys import BY_KEY, write_keys
from support.routerprocess import Process, started
from support.tables import group, revision, slot, table
from support.wire import ask, chat, connected, get, post

pytestmark = [pytest.mark.integration, pytest.mark.slow]

LIMIT, RATE = 600, 24.0
"""Requests a minute that are allowed, and requests a second that come: more than twice as many."""
SECONDS, KILLED_AT = 78.0, 17.0
MINUTE = 60.0

POLITE, SHARE, GREED = 10, 1.0, 100
"""Polite callers, the requests a second of each, and how many times as many the greedy one sends."""
TURNS, CLOSE, FAR = 3, 1.2, 3.0
"""Turns of alone and beside until the ratio of the 99th percentiles is close; else it may not be far. What else a
machine does lengthens one or the other. Without limits it is 75 times as long."""
PHASE_SECONDS = 25.0
LIMITS = CallerLimits(requests_per_minute=120, in_flight=8)
"""A polite caller's chance is what its limit allows in bursts; the greedy one has the same."""
PLACES, FIRST_TOKEN, ANSWER = 32, 0.5, 0.8
"""Requests that the engine works on at a time, others wait; seconds to the first token of one, and to its end."""


def run(test: Awaitable[None], seconds: float) -> None:
    async def limited() -> None:
        async with asyncio.timeout(seconds):
            await test

    uvloop.run(limited())


async def paced(rate: float, seconds: float, seed: int, send: Callable[[], Awaitable[None]]) -> None:
    """Send at random moments, so many a second, whether or not those before have ended."""
    draw, due = random.Random(seed), time.monotonic()
    end = due + seconds
    async with asyncio.TaskGroup() as tasks:
        while due < end:
            due += draw.expovariate(rate)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            tasks.create_task(send())  # type: ignore[arg-type]


async def peers_of(router: Process) -> int:
    text = (await ask(router.admin_port, get("/metrics"))).body.decode()
    return int(text.partition("\npromptgroup_router_peers ")[2].partition("\n")[0] or 0)


def test_three_routers_hold_a_limit_within_two_percent_although_one_is_killed(tmp_path: Path) -> None:
    """No minute has more than the limit, and the first, in which a router dies, has it whole, as the engine counts."""
    (tmp_path / "key").write_bytes(os.urandom(32))
    arrived: list[float] = []

    async def counted(call: Call) -> None:
        arrived.append(time.monotonic())
        call.answer(b'{"usage": {"prompt_tokens": 40, "completion_tokens": 10}}')

    async def check() -> None:
        async with engines(1, counted) as (engine,), contextlib.AsyncExitStack() as stack:
            rules = CallerRules(default=CallerLimits(requests_per_minute=LIMIT))
            slots = (slot(0, address=engine.address),)
            table_file.write(tmp_path / "table.json", table(group("support", revision(slots=slots), callers=rules)))
            flags = ["--table", str(tmp_path / "table.json"), "--peers", "127.0.0.1"]
            flags += ["--peer-key-file", str(tmp_path / "key"), "--peer-port"]
            flags += [str(secrets.choice(range(20_008, 32_000, 16)))]
            routers = [await stack.enter_async_context(started(*flags)) for _ in range(3)]
            for each in routers:
                while await peers_of(each) < 2:  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.02)
            live, statuses, lost = [each.port for each in routers], [], [0]
            request, draw = post(chat()), random.Random(1)

            async def send() -> None:
                try:
                    statuses.append((await ask(draw.choice(live), request)).status)
                except (EOFError, OSError):
                    lost[0] += 1

            async def kill() -> None:
                await asyncio.sleep(KILLED_AT)
                routers[0].process.send_signal(signal.SIGKILL)
                live.remove(routers[0].port)

            began = time.monotonic()
            await asyncio.gather(paced(RATE, SECONDS, 2, send), kill())
            worst = max(sum(at <= other < at + MINUTE for other in arrived) for at in arrived)
            first = sum(at < began + MINUTE for at in arrived)
            later = len(arrived) - first
            figures = f"worst {worst}, first {first} of {LIMIT}; {later} later, {len(statuses)} answers, {lost[0]} lost"
            print(figures)  # noqa: T201 - shown by pytest -s
            assert set(statuses) == {200, 429}
            assert worst <= 1.02 * LIMIT, figures
            assert first >= 0.98 * LIMIT, figures
            assert later > (SECONDS - MINUTE) * LIMIT / MINUTE, figures  # what came early has left the window
            assert lost[0] <= RATE, figures

    run(check(), SECONDS + 60)


@pytest.mark.parametrize("count", [2, 4])
def test_a_burst_over_several_routers_has_the_limit_and_one_request_for_each_further_one(
    tmp_path: Path, count: int
) -> None:
    (tmp_path / "key").write_bytes(os.urandom(32))

    async def check() -> None:
        async with engines(1) as (engine,), contextlib.AsyncExitStack() as stack:
            rules = CallerRules(default=CallerLimits(requests_per_minute=200))
            slots = (slot(0, address=engine.address),)
            table_file.write(tmp_path / "table.json", table(group("support", revision(slots=slots), callers=rules)))
            flags = ["--table", str(tmp_path / "table.json"), "--peers", "127.0.0.1"]
            flags += ["--peer-key-file", str(tmp_path / "key"), "--peer-port"]
            flags += [str(secrets.choice(range(20_008, 32_000, 16)))]
            routers = [await stack.enter_async_context(started(*flags)) for _ in range(count)]
            for each in routers:
                while await peers_of(each) < count - 1:  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.02)
            request = post(chat())
            burst = [ask(routers[number % count].port, request) for number in range(400)]
            statuses = [answer.status for answer in await asyncio.gather(*burst)]
            at_once = statuses.count(200)
            for _ in range(20):  # who asks on gets no more either
                answers = [ask(each.port, request) for each in routers for _ in range(5)]
                statuses += [answer.status for answer in await asyncio.gather(*answers)]
                await asyncio.sleep(0.2)
            print(f"{at_once} at once, {statuses.count(200)} in all")  # noqa: T201 - shown by pytest -s
            assert set(statuses) == {200, 429}
            assert 200 - count <= at_once <= statuses.count(200) <= 200 + count - 1

    run(check(), 60)


def test_ten_polite_callers_wait_beside_a_greedy_one_as_long_as_alone(tmp_path: Path) -> None:
    """Times to first tokens, of which an engine's own is most, so that other work on the machine is little of them.

    Alone means that the greedy one sends the same to a router and an engine of its own: its requests cost this process
    and the machine as much.
    """
    callers = {"greedy": "sk-" + "g" * 24} | {f"polite-{n}": f"sk-{n}" + "p" * 24 for n in range(POLITE)}
    write_keys(tmp_path / "secrets", **callers)

    async def check() -> None:
        places = asyncio.Semaphore(PLACES)

        async def work(call: Call) -> None:
            async with places:
                await asyncio.sleep(FIRST_TOKEN)
                call.begin_stream()
                call.chunk(b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n')
                await asyncio.sleep(ANSWER - FIRST_TOKEN)
                call.chunk(b"data: [DONE]\n\n")
                call.send(b"0\r\n\r\n")

        async with engines(1, work) as (engine,), engines(1, work) as (other,):

            def router_before(address: str, folder: Path, limits: CallerLimits) -> AbstractAsyncContextManager[Process]:
                folder.mkdir()
                known = group(
                    "support",
                    revision(slots=(slot(0, address=address),)),
                    access=BY_KEY,
                    callers=CallerRules(default=limits),
                )
                table_file.write(folder / "table.json", table(known))
                return started("--table", str(folder / "table.json"), "--secrets-dir", str(tmp_path / "secrets"))

            async def phase(name: str, limits: CallerLimits, *, beside: bool) -> tuple[list[float], Counter[int], int]:
                """The polite ones' times in order; statuses of the greedy one; how many polite requests were refused.

                A machine that stands still for seconds bunches a polite caller's requests, up to its own limit.
                """
                waited: list[float] = []
                seen: Counter[int] = Counter()
                polite: Counter[int] = Counter()

                def sender(router: Process, key: str, times: list[float] | None) -> Callable[[], Awaitable[None]]:
                    request = post(chat(key, stream=True), f"Authorization: Bearer {key}")

                    async def send() -> None:
                        began = time.monotonic()
                        async with connected(router.port) as client:
                            client.send(request)
                            first = await client.reader.readuntil(b"\r\n\r\n")
                            if first.startswith(b"HTTP/1.1 200"):
                                await client.reader.readuntil(b"\n\n")
                            took = time.monotonic() - began
                            (seen if times is None else polite)[int(first[9:12])] += 1
                            if times is not None:
                                times.append(took)
                            if first.startswith(b"HTTP/1.1 200"):
                                await client.reader.readuntil(b"0\r\n\r\n")

                    return send

                async with (
                    router_before(engine.address, tmp_path / name, limits) as shared,
                    router_before(other.address, tmp_path / f"{name}-own", LIMITS) as own,
                ):
                    for each in (shared, own):
                        while await each.ready() != 200:  # noqa: ASYNC110
                            await asyncio.sleep(0.02)
                    loads = [
                        paced(SHARE, PHASE_SECONDS, number, sender(shared, key, waited))
                        for number, (name, key) in enumerate(callers.items())
                        if name != "greedy"
                    ]
                    crowd = sender(shared if beside else own, callers["greedy"], None)
                    await asyncio.gather(*loads, paced(GREED * SHARE, PHASE_SECONDS, 99, crowd))
                assert polite.keys() <= {200, 429}, polite
                return sorted(waited), seen, polite[429]

            for turn in range(TURNS):
                alone, _, _ = await phase(f"alone-{turn}", CallerLimits(), beside=False)
                beside, greedy, turned_away = await phase(f"beside-{turn}", LIMITS, beside=True)
                before, after = p99(alone), p99(beside)
                figures = (
                    f"p99 {before:.3f} s alone, {after:.3f} s beside; greedy: {greedy}; polite: {turned_away} refused"
                )
                print(figures)  # noqa: T201
                close = median(beside) <= CLOSE * median(alone) and not turned_away
                if close and after <= CLOSE * before:
                    break
            assert after <= FAR * before, figures
            assert close, figures
            assert greedy[200] <= 120, figures
            assert greedy[429] >= GREED * PHASE_SECONDS * SHARE / 2, figures

    run(check(), 2 * TURNS * PHASE_SECONDS + 90)


def p99(ordered: Sequence[float]) -> float:
    return ordered[len(ordered) * 99 // 100]
