"""The engine over real sockets on loopback: what a client, an operator and a scraper see."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import uvloop

from promptgroup_local.engine.flags import Knobs, parse
from promptgroup_local.engine.server import serving
from promptgroup_local.engine.tokenizer import detokenize
from promptgroup_local.load.counters import scrape

DEADLINE = 10.0
FAST = Knobs(time_scale=0.0)
SYSTEM = {"role": "system", "content": "You answer questions about trains and the people who drive them. " * 8}


def chat(text: str, **more: object) -> dict[str, Any]:
    return {"model": "m", "messages": [SYSTEM, {"role": "user", "content": text}], "max_tokens": 8, **more}


class Client:
    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self.http = http
        self.url = url

    async def post(self, path: str, body: object, **headers: str) -> tuple[int, Any]:
        async with self.http.post(self.url + path, json=body, headers=headers) as response:
            return response.status, await response.json()

    async def get(self, path: str) -> tuple[int, Any]:
        async with self.http.get(self.url + path) as response:
            return response.status, await response.json()

    async def metric(self, series: str) -> float:
        async with self.http.get(self.url + "/metrics") as response:
            lines = (await response.text()).splitlines()
        return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(series))

    async def until(self, series: str, value: float) -> None:
        async with asyncio.timeout(DEADLINE):
            while await self.metric(series) != value:  # noqa: ASYNC110 - a scraped value notifies nobody
                await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def engine(*flags: str, knobs: Knobs = FAST, dev_mode: bool = False) -> AsyncIterator[Client]:
    asked = parse(["m", "--host=127.0.0.1", "--port=0", "--enable-prompt-tokens-details", *flags])
    async with serving(asked, knobs, dev_mode=dev_mode) as url, aiohttp.ClientSession() as http:
        yield Client(http, url)


def check(test: Callable[[Client], Awaitable[None]], *flags: str, knobs: Knobs = FAST, dev_mode: bool = False) -> None:
    async def main() -> None:
        async with asyncio.timeout(DEADLINE), engine(*flags, knobs=knobs, dev_mode=dev_mode) as client:
            await test(client)

    uvloop.run(main())


def test_the_second_request_finds_the_prefix_of_the_first() -> None:
    async def test(client: Client) -> None:
        (_, first), (status, second) = [await client.post("/v1/chat/completions", chat(text)) for text in ("a", "b")]
        assert status == 200
        assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        usage = second["usage"]
        assert usage["prompt_tokens"] - 16 <= usage["prompt_tokens_details"]["cached_tokens"] < usage["prompt_tokens"]
        assert (usage["completion_tokens"], second["choices"][0]["finish_reason"]) == (8, "length")
        assert first["choices"] == (await client.post("/v1/chat/completions", chat("a")))[1]["choices"]

    check(test)


def test_the_next_turn_finds_the_answer_too() -> None:
    async def test(client: Client) -> None:
        body = chat("a", max_tokens=40, ignore_eos=True)
        first = (await client.post("/v1/chat/completions", body))[1]
        answer = first["choices"][0]["message"]
        body["messages"] = [*body["messages"], answer, {"role": "user", "content": "and then?"}]
        cached = (await client.post("/v1/chat/completions", body))[1]["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert cached == (first["usage"]["total_tokens"] - 1) // 16 * 16

    check(test)


def test_a_stream_says_the_same_as_the_whole_answer() -> None:
    async def test(client: Client) -> None:
        whole = (await client.post("/v1/chat/completions", chat("a")))[1]
        body = chat("a", stream=True, stream_options={"include_usage": True})
        async with client.http.post(client.url + "/v1/chat/completions", json=body) as response:
            assert response.content_type == "text/event-stream"
            events = [line.removeprefix("data: ") for line in (await response.text()).split("\n\n") if line]
        assert events.pop() == "[DONE]"
        role, *pieces, usage = map(json.loads, events)
        assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
        text = "".join(piece["choices"][0]["delta"]["content"] for piece in pieces)
        assert text == whole["choices"][0]["message"]["content"]
        reasons = [piece["choices"][0]["finish_reason"] for piece in pieces]
        assert reasons == [None] * (len(pieces) - 1) + ["length"]
        assert usage["usage"]["completion_tokens"] == len(pieces) == 8

    check(test)


def test_a_tool_that_must_be_called_is_called_whole_and_streamed() -> None:
    function = {"type": "function", "function": {"name": "note", "parameters": {"type": "object"}}}

    async def test(client: Client) -> None:
        for choice in ("required", {"type": "function", "function": {"name": "note"}}):
            body = chat("Hi", tools=[function], tool_choice=choice)
            _, answer = await client.post("/v1/chat/completions", body)
            (told,) = answer["choices"]
            (call,) = told["message"]["tool_calls"]
            assert (told["finish_reason"], call["function"]["name"]) == ("tool_calls", "note")
            async with client.http.post(client.url + "/v1/chat/completions", json=body | {"stream": True}) as response:
                lines = (await response.text()).split("\n\n")
            events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
            deltas = [event["choices"][0]["delta"]["tool_calls"][0] for event in events]
            arguments = "".join(delta["function"]["arguments"] for delta in deltas)
            assert json.loads(arguments) == json.loads(call["function"]["arguments"])
            assert [delta.get("id") is not None for delta in deltas] == [True] + [False] * (len(deltas) - 1)

    check(test)


def test_text_completions_and_tokens() -> None:
    async def test(client: Client) -> None:
        _, body = await client.post("/v1/completions", {"prompt": "Once upon a time"})
        assert (body["object"], body["usage"]["prompt_tokens"]) == ("text_completion", 5)
        _, tokens = await client.post("/tokenize", {"prompt": "Once upon a time"})
        assert (tokens["count"], len(tokens["tokens"]), tokens["max_model_len"]) == (5, 5, 131_072)
        _, text = await client.post("/detokenize", {"tokens": tokens["tokens"]})
        assert text == {"prompt": "<|begin|>Once upon a time"}
        assert (await client.post("/detokenize", {"tokens": [1 << 32]}))[0] == 400

    check(test)


def test_a_salt_separates_tenants() -> None:
    async def test(client: Client) -> None:
        for salt in ("a", "b"):
            _, body = await client.post("/v1/chat/completions", chat("x", cache_salt=salt))
            assert body["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        assert (await client.post("/v1/chat/completions", chat("x", cache_salt="a/b")))[0] == 400

    check(test)


def test_cached_tokens_are_reported_only_when_asked_for_and_zero_with_the_cache_off() -> None:
    async def silent(client: Client) -> None:
        assert "prompt_tokens_details" not in (await client.post("/v1/chat/completions", chat("a")))[1]["usage"]

    async def off(client: Client) -> None:
        for _ in range(2):
            usage = (await client.post("/v1/chat/completions", chat("a")))[1]["usage"]
            assert usage["prompt_tokens_details"]["cached_tokens"] == 0
        assert await client.metric("vllm:prefix_cache_queries_total") == 0
        assert await client.metric("standin_cold_prefix_requests_total") == 2

    check(silent, "--no-enable-prompt-tokens-details")
    check(off, "--no-enable-prefix-caching")


def test_errors_have_the_form_of_vllm() -> None:
    async def test(client: Client) -> None:
        status, body = await client.post("/v1/chat/completions", chat("a", model="other"))
        assert (status, body["error"]["type"], body["error"]["code"]) == (404, "NotFoundError", 404)
        assert (await client.get("/nothing"))[1] == {"detail": "Not Found"}
        assert (await client.get("/v1/completions"))[0] == 405
        async with client.http.post(client.url + "/v1/completions", data=b"{") as response:
            assert (response.status, (await response.json())["error"]["type"]) == (400, "BadRequestError")

    check(test)


def test_a_share_of_requests_fails_on_purpose() -> None:
    async def test(client: Client) -> None:
        statuses = [(await client.post("/v1/chat/completions", chat("a")))[0] for _ in range(8)]
        assert statuses == [200, 200, 200, 500] * 2

    check(test, knobs=Knobs(time_scale=0.0, error_rate=0.25))


def test_the_small_endpoints() -> None:
    async def test(client: Client) -> None:
        async with client.http.get(client.url + "/health") as response:
            assert response.status == 200
        assert "standin" in (await client.get("/version"))[1]["version"]
        models = (await client.get("/v1/models"))[1]["data"]
        assert [model["id"] for model in models] == ["m", "alias"]
        assert (await client.get("/load"))[1] == {"server_load": 0}
        assert (await client.post("/reset_prefix_cache", {}))[0] == 404

    check(test, "--served-model-name", "m", "alias")


def test_the_cache_can_be_reset_in_development_mode() -> None:
    async def test(client: Client) -> None:
        await client.post("/v1/chat/completions", chat("a"))
        assert await client.post("/reset_prefix_cache", {}) == (200, {"success": True})
        _, body = await client.post("/v1/chat/completions", chat("a"))
        assert body["usage"]["prompt_tokens_details"]["cached_tokens"] == 0

    check(test, dev_mode=True)


def test_cold_prefixes_are_counted_by_who_met_them() -> None:
    async def test(client: Client) -> None:
        path, warmup = "/v1/chat/completions", {"x-promptgroup-warmup": "1"}
        await client.post(path, chat("warm"), **warmup)
        await client.post(path, chat("warm"), **warmup)
        for text in ("a", "b"):
            await client.post(path, chat(text))
        assert await client.metric('standin_cold_prefix_requests_total{source="warmup"}') == 1
        assert await client.metric('standin_cold_prefix_requests_total{source="client"}') == 0
        other = chat("a")
        other["messages"][0] = {"role": "system", "content": "Another task. " * 20}
        await client.post(path, other)
        await client.post(path, {"messages": [{"role": "user", "content": "no Tier 1 at all " * 20}]})
        assert await client.metric('standin_cold_prefix_requests_total{source="client"}') == 1
        assert await client.metric('standin_requests_total{source="client"}') == 4
        assert await client.metric('standin_requests_total{source="warmup"}') == 2

    check(test)


def test_a_prefix_that_was_evicted_is_cold_again() -> None:
    async def test(client: Client) -> None:
        await client.post("/v1/chat/completions", chat("a"))
        await client.post("/v1/completions", {"prompt": "x" * 4 * 16 * 18})
        await client.post("/v1/chat/completions", chat("a"))
        assert await client.metric('standin_cold_prefix_requests_total{source="client"}') == 2

    check(test, "--num-gpu-blocks-override=20")


def test_counters_add_up() -> None:
    async def test(client: Client) -> None:
        bodies = [(await client.post("/v1/chat/completions", chat(text)))[1] for text in ("a", "b", "c")]
        prompt = sum(body["usage"]["prompt_tokens"] for body in bodies)
        cached = sum(body["usage"]["prompt_tokens_details"]["cached_tokens"] for body in bodies)
        counters = (await scrape([client.url]))[client.url]
        assert (counters.queries, counters.hits, counters.requests, counters.cold) == (prompt, cached, 3, 1)
        assert await client.metric("vllm:prompt_tokens_total") == prompt
        assert await client.metric("vllm:prompt_tokens_cached_total") == cached
        assert await client.metric("vllm:generation_tokens_total") == 24
        assert await client.metric("vllm:time_to_first_token_seconds_count") == 3
        assert await client.metric("vllm:inter_token_latency_seconds_count") == 21
        assert await client.metric("vllm:request_prefill_kv_computed_tokens_sum") == prompt - cached
        assert await client.metric('vllm:request_success_total{engine="0",finished_reason="length"') == 3

    check(test)


def test_a_client_that_leaves_frees_its_blocks() -> None:
    async def test(client: Client) -> None:
        body = chat("a", max_tokens=100_000, ignore_eos=True)
        async with client.http.post(client.url + "/v1/chat/completions", json=body | {"stream": True}) as response:
            await response.content.readline()
            await client.until("vllm:num_requests_running", 1)
            assert await client.metric("vllm:kv_cache_usage_perc") > 0
        await client.until("vllm:num_requests_running", 0)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(client.post("/v1/chat/completions", body), 0.05)
        await client.until('vllm:request_success_total{engine="0",finished_reason="abort"', 2)
        assert await client.metric("vllm:kv_cache_usage_perc") == 0

    check(test, knobs=Knobs(time_scale=0.1))


def stopped(*argv: str, path: str = "/v1/chat/completions", **more: object) -> str:
    """The answer to a request that runs while the server is told to stop."""

    async def main() -> str:
        async with aiohttp.ClientSession() as http:
            async with (
                asyncio.timeout(DEADLINE),
                serving(parse([*argv, "--host=127.0.0.1", "--port=0"]), Knobs(time_scale=0.5)) as url,
            ):
                client = Client(http, url)
                body = chat("a", max_tokens=30, ignore_eos=True, input="a", **more)
                request = asyncio.ensure_future(http.post(url + path, json=body))
                async with asyncio.timeout(DEADLINE):
                    while not await running(client):  # noqa: ASYNC110 - a scraped value notifies nobody
                        await asyncio.sleep(0.01)
            return await (await request).text()

    return uvloop.run(main())


async def running(client: Client) -> bool:
    async with client.http.get(client.url + "/metrics") as response:
        lines = (await response.text()).splitlines()
    gauges = [line for line in lines if "num_requests_running{" in line or "http_requests_active{" in line]
    return any(float(line.rpartition(" ")[2]) for line in gauges if 'method="GET"' not in line)


def test_a_running_request_ends_before_the_server_does_where_the_engine_waits_for_it() -> None:
    for argv in ((*SGLANG,), ("m", "--shutdown-timeout=5")):
        assert json.loads(stopped(*argv))["usage"]["completion_tokens"] == 30


def test_as_vllm_a_server_that_stops_aborts_what_runs_in_an_answer_that_looks_whole() -> None:
    whole = json.loads(stopped("m"))
    assert whole["choices"][0]["finish_reason"] == "abort"
    assert whole["usage"]["completion_tokens"] < 30
    *_, last, done = stopped("m", stream=True).strip().split("\n\n")
    assert json.loads(last.removeprefix("data: "))["choices"][0]["finish_reason"] == "abort"
    assert done == "data: [DONE]"


def test_as_vllm_each_api_has_its_own_word_for_an_abort() -> None:
    assert json.loads(stopped("m", path="/v1/messages"))["stop_reason"] is None
    assert json.loads(stopped("m", path="/v1/responses"))["status"] == "cancelled"


def speaking(test: Callable[[Client], Awaitable[None]], *argv: str) -> None:
    async def main() -> None:
        async with (
            asyncio.timeout(DEADLINE),
            serving(parse([*argv, "--host=127.0.0.1", "--port=0"]), FAST) as url,
            aiohttp.ClientSession() as http,
        ):
            await test(Client(http, url))

    uvloop.run(main())


async def cached(client: Client, text: str) -> int | None:
    status, body = await client.post("/v1/chat/completions", chat(text))
    assert status == 200
    details = body["usage"].get("prompt_tokens_details")
    return None if details is None else details["cached_tokens"]


async def statuses(client: Client, *paths: str) -> list[int]:
    found = []
    for path in paths:
        async with client.http.get(client.url + path) as response:
            found.append(response.status)
    return found


SGLANG = ("python3", "-m", "sglang.launch_server", "--model-path=m", "--enable-cache-report", "--enable-metrics")


def test_as_sglang_it_says_how_many_tokens_were_cached_and_forgets_them() -> None:
    async def test(client: Client) -> None:
        assert await cached(client, "a") == 0
        assert (await cached(client, "b") or 0) > 100
        async with client.http.post(client.url + "/flush_cache") as response:
            assert (response.status, await response.text()) == (200, "Cache flushed.\n")
        assert await cached(client, "c") == 0
        assert (await client.get("/server_info"))[1]["disable_radix_cache"] is False
        assert await statuses(client, "/health", "/metrics", "/prometheus/metrics", "/load") == [200, 200, 404, 404]
        assert await statuses(client, "/ready", "/version") == [200, 404]

    speaking(test, *SGLANG)


def test_as_sglang_it_serves_its_model_under_any_name_and_says_errors_without_an_envelope() -> None:
    async def test(client: Client) -> None:
        status, answer = await client.post("/v1/chat/completions", chat("a", model="other"))
        assert (status, answer["model"]) == (200, "other")
        status, answer = await client.post("/v1/chat/completions", {"model": "m", "messages": []})
        assert (status, answer["object"], answer["type"], answer["code"]) == (400, "error", "BadRequestError", 400)
        status, answer = await client.post("/v1/messages", {"model": "m", "max_tokens": 1})
        assert (status, answer["error"]["type"]) == (400, "invalid_request_error")
        again = {"model": "m", "input": "a", "previous_response_id": "resp_1"}
        status, answer = await client.post("/v1/responses", again)
        assert (status, answer["error"]["param"]) == (400, "previous_response_id")

    speaking(test, *SGLANG)


def test_as_sglang_each_pair_of_salts_has_its_own_cache_and_messages_have_none() -> None:
    async def test(client: Client) -> None:
        async def found(**fields: str) -> int:
            _, answer = await client.post("/v1/chat/completions", chat("a", **fields))
            return int(answer["usage"]["prompt_tokens_details"]["cached_tokens"])

        ways = ({}, {"cache_salt": "a"}, {"extra_key": "a"}, {"cache_salt": "a/b@", "extra_key": "a"})
        assert [await found(**way) for way in ways] == [0, 0, 0, 0]
        assert all([await found(**way) > 100 for way in (*ways, {"cache_salt": ""})])
        body = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "words " * 200}]}
        await client.post("/v1/messages", body)
        _, answer = await client.post("/v1/messages", body | {"cache_salt": "a", "extra_key": "b"})
        assert answer["usage"]["cache_read_input_tokens"] > 100

    speaking(test, *SGLANG)


def test_as_sglang_a_stream_tells_its_end_in_an_event_of_its_own() -> None:
    async def test(client: Client) -> None:
        async with client.http.post(client.url + "/v1/chat/completions", json=chat("a", stream=True)) as response:
            lines = (await response.text()).split("\n\n")
        events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
        *texts, last = [event["choices"][0] for event in events]
        assert {text["finish_reason"] for text in texts} == {None}
        assert (last["finish_reason"], last["delta"]) == ("length", {})

    speaking(test, *SGLANG)


def test_as_sglang_it_reports_and_counts_only_what_it_is_asked_for() -> None:
    async def test(client: Client) -> None:
        assert [await cached(client, text) for text in "ab"] == [None, None]
        assert (await client.get("/server_info"))[1]["disable_radix_cache"] is True
        assert await statuses(client, "/health", "/metrics") == [200, 404]

    speaking(test, "python3", "-m", "sglang.launch_server", "--model-path=m", "--disable-radix-cache")


def test_as_tensorrt_llm_it_always_says_what_was_cached_and_counts_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "engine.yaml").write_text("{return_perf_metrics: true, enable_iter_perf_stats: true}")

    async def test(client: Client) -> None:
        assert await cached(client, "a") == 0
        assert (await cached(client, "b") or 0) > 100
        assert await statuses(client, "/health", "/metrics", "/prometheus/metrics") == [200, 404, 200]

    speaking(test, "trtllm-serve", "m", f"--config={tmp_path}/engine.yaml")


def test_a_stream_tells_the_ids_of_its_tokens_to_who_asks() -> None:
    async def test(client: Client) -> None:
        body = chat("a", stream=True, temperature=0)
        async with client.http.post(client.url + "/v1/chat/completions", json=body) as response:
            assert "token_ids" not in await response.text()
        ids, text = await _with_ids(client, "/v1/chat/completions", body)
        prompt, answer = ids
        assert detokenize(answer) == text
        # the rest of the same answer, behind its first tokens
        rest = {"model": "m", "prompt": [*prompt, *answer[:3]], "max_tokens": 5, "stream": True}
        (seen, more), told = await _with_ids(client, "/v1/completions", rest)
        assert (seen, more) == (rest["prompt"], answer[3:])
        assert detokenize(answer[:3]) + told == text

    check(test)


async def _with_ids(client: Client, path: str, body: dict[str, Any]) -> tuple[tuple[list[int], list[int]], str]:
    """Ask for ids; return those of the prompt and of the answer, and the text."""
    async with client.http.post(client.url + path, json=body | {"return_token_ids": True}) as response:
        events = [line.removeprefix("data: ") for line in (await response.text()).split("\n\n") if line]
    documents = [json.loads(event) for event in events if event != "[DONE]"]
    prompts = [each["prompt_token_ids"] for each in documents if "prompt_token_ids" in each]
    choices = [choice for each in documents for choice in each["choices"]]
    prompts += [choice["prompt_token_ids"] for choice in choices if "prompt_token_ids" in choice]
    (prompt,) = prompts
    text = "".join(choice["delta"]["content"] if "delta" in choice else choice["text"] for choice in choices)
    return (prompt, [token for choice in choices for token in choice.get("token_ids", ())]), text
