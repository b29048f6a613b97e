import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import uvloop

from promptgroup_local.engine.chat import plain, render
from promptgroup_local.engine.core import COLD, Engine
from promptgroup_local.engine.flags import Knobs, parse
from promptgroup_local.engine.metrics.page import Source
from promptgroup_local.engine.protocol import Completion
from promptgroup_local.engine.scheduler import Cost, Scheduler

DEADLINE = 10.0


def asks(text: str, tokens: int) -> Completion:
    return Completion(plain(text), "m", tokens, "", stream=False, include_usage=False, ignore_eos=True)


@contextlib.asynccontextmanager
async def running(knobs: Knobs, *flags: str) -> AsyncIterator[Engine]:
    engine = Engine(parse(["m", *flags]), knobs)
    async with asyncio.timeout(DEADLINE), asyncio.TaskGroup() as tasks:
        run = tasks.create_task(engine.run())
        yield engine
        run.cancel()


async def answer(engine: Engine, completion: Completion) -> int:
    async with contextlib.aclosing(engine.generate(completion, Source.CLIENT)) as tokens:
        return len([token async for token in tokens])


def test_an_answer_takes_the_simulated_time() -> None:
    async def main() -> None:
        async with running(Knobs(cost=Cost(step=0.2), time_scale=0.1)) as engine:
            began = time.monotonic()
            assert await answer(engine, asks("hi", 10)) == 10
            assert 0.19 <= time.monotonic() - began < 1

    uvloop.run(main())


def test_an_idle_engine_takes_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    schedule = Scheduler.schedule
    monkeypatch.setattr(Scheduler, "schedule", lambda self, now: calls.append(now) or schedule(self, now))

    async def main() -> None:
        async with running(Knobs(time_scale=0)) as engine:
            await answer(engine, asks("hi", 3))
            for _ in range(100):
                await asyncio.sleep(0)
            assert len(calls) == 3 + 1  # a step a token, then one look that finds nothing to do
            assert await answer(engine, asks("ho", 1)) == 1

    uvloop.run(main())


def test_requests_run_together_and_load_counts_them() -> None:
    async def main() -> None:
        async with running(Knobs(time_scale=0)) as engine:
            both = [asyncio.ensure_future(answer(engine, asks(text, 50))) for text in ("a", "b")]
            await asyncio.sleep(0)
            assert engine.load == 2
            assert await asyncio.gather(*both) == [50, 50]
            assert engine.load == 0

    uvloop.run(main())


def test_leaving_aborts_and_the_next_request_finds_room() -> None:
    async def main() -> None:
        async with running(Knobs(time_scale=0), "--num-gpu-blocks-override=4") as engine:
            async with contextlib.aclosing(engine.generate(asks("x" * 160, 20), Source.CLIENT)) as tokens:
                await anext(tokens)
            assert engine.load == 0
            assert await answer(engine, asks("y" * 160, 20)) == 20

    uvloop.run(main())


def test_requests_that_push_each_other_out_are_counted_and_all_answered() -> None:
    async def main() -> None:
        async with running(Knobs(time_scale=0), "--num-gpu-blocks-override=6") as engine:
            counts = await asyncio.gather(*(answer(engine, asks(text * 80, 40)) for text in ("a", "b")))
            assert counts == [40, 40]
            assert engine.metrics.registry.get_sample_value(
                "vllm:num_preemptions_total", {"model_name": "m", "engine": "0"}
            )

    uvloop.run(main())


def test_a_clients_request_on_a_cold_tier_1_is_in_the_log_and_a_warm_up_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with running(Knobs(time_scale=0)) as engine:
            for source, letter in ((Source.WARMUP, "a"), (Source.CLIENT, "a"), (Source.CLIENT, "b")):
                messages = [{"role": "system", "content": letter * 400}, {"role": "user", "content": "hi"}]
                completion = replace(asks("", 1), prompt=render(messages))
                async with contextlib.aclosing(engine.generate(completion, source)) as tokens:
                    assert len([token async for token in tokens]) == 1

    uvloop.run(main())
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"{COLD}: 0 of ")
    assert "bbb" not in line
