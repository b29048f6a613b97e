import asyncio
import contextlib
import functools

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from promptgroup_local.engine.flags import Knobs, parse
from promptgroup_local.engine.server import serving
from promptgroup_operator.engines import engine_metrics
from promptgroup_operator.engines.dialects.sglang import SGLANG
from promptgroup_operator.engines.dialects.vllm import VLLM

VLLM_ARGS = ("m", "--port=0", "--host=127.0.0.1", "--data-parallel-size=2", "--enable-prompt-tokens-details")
SGLANG_ARGS = (
    *("python3", "-m", "sglang.launch_server", "--model-path=m", "--port=0", "--host=127.0.0.1", "--dp-size=2"),
    *("--page-size=16", "--enable-metrics", "--enable-cache-report"),
)
PATHS = ("/v1/chat/completions", "/v1/messages", "/v1/responses")
LONG = "word " * 200


def over_sockets(test):
    @functools.wraps(test)
    def run(**fields):
        asyncio.run(asyncio.wait_for(test(**fields), 30))

    return run


@contextlib.asynccontextmanager
async def engine(argv=VLLM_ARGS, scale=0.01, died=None):
    async with (
        serving(parse(argv), Knobs(time_scale=scale), dev_mode=True, died=died) as url,
        aiohttp.ClientSession(url) as session,
    ):
        yield session


async def ask(session, rank=None, path=PATHS[0], text=LONG, **fields):
    body = {"model": "m", "max_tokens": 2, "messages": [{"role": "user", "content": text}]}
    if path == "/v1/responses":
        body = {"model": "m", "max_output_tokens": 2, "input": text}
    headers = {} if rank is None else {"X-Data-Parallel-Rank": rank}
    async with session.post(path, json=body | fields, headers=headers) as answer:
        return answer.status, await answer.text()


async def taken(session, dialect=VLLM):
    async with session.get("/metrics") as answer:
        page = await answer.text()
    list(text_string_to_metric_families(page))  # one page, each family once
    return engine_metrics.reading(page, dialect.metrics), page


@pytest.mark.parametrize("path", PATHS[:2])
@over_sockets
async def test_the_header_chooses_the_rank_whose_cache_is_used(path):
    async with engine() as session:
        for rank, before in (("1", (0, 0)), ("1", (0, 1)), ("0", (0, 2))):
            reading, page = await taken(session)
            assert tuple(tokens > 0 for tokens in reading.by_rank) == tuple(count > 0 for count in before)
            assert (await ask(session, rank, path))[0] == 200
        reading, page = await taken(session)
        ranks = [engine_metrics.reading(page, VLLM.metrics, rank) for rank in (0, 1)]
        assert [each.hits for each in ranks] == [0, reading.hits]
        assert reading.hits > 150
        assert reading.kv_tokens == sum(each.kv_tokens for each in ranks) == 2 * ranks[0].kv_tokens
        assert (reading.ranks, ranks[0].ranks) == (2, 2)


@over_sockets
async def test_vllms_responses_do_not_heed_it():
    async with engine() as session:
        for _ in range(4):
            assert (await ask(session, "1", PATHS[2]))[0] == 200
        assert all((await taken(session))[0].by_rank)


@over_sockets
async def test_sglangs_do():
    async with engine(SGLANG_ARGS) as session:
        for path in (PATHS[2], PATHS[0]):
            assert (await ask(session, "1", path))[0] == 200
        _, page = await taken(session, SGLANG)
        assert engine_metrics.reading(page, SGLANG.metrics, 0).queries == 0
        assert engine_metrics.reading(page, SGLANG.metrics, 1).queries > 400


@pytest.mark.parametrize(
    ("argv", "value", "status", "text"),
    [
        (VLLM_ARGS, "2", 400, "data_parallel_rank 2 is out of range [0, 2)."),
        (VLLM_ARGS, "-1", 400, "out of range"),
        (VLLM_ARGS, "1.0", 200, ""),
        (VLLM_ARGS, "abc", 200, ""),
        (SGLANG_ARGS, "abc", 400, "must be an integer"),
        (SGLANG_ARGS, "2", 400, "routed_dp_rank=2 out of range [0, 2)"),
        (("m", "--port=0", "--host=127.0.0.1"), "7", 200, ""),
    ],
)
@over_sockets
async def test_what_is_no_rank(argv, value, status, text):
    async with engine(argv) as session:
        found, body = await ask(session, value)
        assert found == status
        assert text in body


@over_sockets
async def test_without_it_the_ranks_take_turns_whatever_they_have_cached():
    async with engine() as session:
        for _ in range(4):
            await ask(session)
        reading, _ = await taken(session)
        assert reading.by_rank[0] == reading.by_rank[1] > 0


@over_sockets
async def test_the_death_of_one_rank_looks_like_success_to_the_others_clients():
    died = asyncio.Event()
    async with engine(scale=0.02, died=died) as session:
        streams = [
            asyncio.ensure_future(ask(session, rank, stream=True, max_tokens=5000, ignore_eos=True)) for rank in "01"
        ]
        while (await taken(session))[0].running < 2:  # noqa: ASYNC110 - a scraped value notifies nobody
            await asyncio.sleep(0)
        async with session.post("/standin/kill_rank/1") as answer:
            assert answer.status == 200
        status, body = await asyncio.wait_for(streams[0], 10)
        assert status == 200
        assert '"finish_reason":"abort"' in body
        assert body.endswith("data: [DONE]\n\n")
        assert not streams[1].done()
        assert (await ask(session, "0"))[0] == 500
        async with session.get("/health") as health:
            assert health.status == 200
        await asyncio.wait_for(died.wait(), 10)
        streams[1].cancel()
