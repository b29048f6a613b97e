"""Anthropic's Messages and OpenAI's Responses of the stand-in engine, over real sockets."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest
import uvloop

from promptgroup_local.engine.flags import Knobs, parse
from promptgroup_local.engine.server import serving

SYSTEM = "You answer questions about trains and the people who drive them. " * 8
SCHEMA = {"type": "object", "properties": {}}


class Client:
    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self.http = http
        self.url = url

    async def post(self, path: str, body: object) -> tuple[int, dict]:
        async with self.http.post(self.url + path, json=body) as response:
            return response.status, await response.json()

    async def get(self, path: str) -> tuple[int, dict]:
        async with self.http.get(self.url + path) as response:
            return response.status, await response.json()

    async def events(self, path: str, body: dict) -> list[dict]:
        async with self.http.post(self.url + path, json=body | {"stream": True}) as response:
            lines = (await response.text()).split("\n\n")
        found = [json.loads(line.partition("\ndata: ")[2]) for line in lines if line]
        assert [line.partition("\n")[0] for line in lines if line] == [f"event: {each['type']}" for each in found]
        return found


@contextlib.asynccontextmanager
async def engine(*flags: str) -> AsyncIterator[Client]:
    asked = parse(["m", "--host=127.0.0.1", "--port=0", "--enable-prompt-tokens-details", *flags])
    async with serving(asked, Knobs(time_scale=0.0)) as url, aiohttp.ClientSession() as http:
        yield Client(http, url)


def check(test: Callable[[Client], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(10), engine() as client:
            await test(client)

    uvloop.run(main())


def message(text: str = "Hi", **fields: object) -> dict:
    return {"model": "m", "max_tokens": 8, "system": SYSTEM, "messages": [{"role": "user", "content": text}]} | fields


def response(given: object = "Hi", **fields: object) -> dict:
    return {"model": "m", "max_output_tokens": 8, "instructions": SYSTEM, "input": given} | fields


def test_all_apis_render_one_prompt():
    async def test(client: Client) -> None:
        chat = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Hi"}]
        _, counted = await client.post("/tokenize", {"model": "m", "messages": chat})
        _, answer = await client.post("/v1/messages/count_tokens", message())
        assert answer["input_tokens"] == counted["count"]
        _, first = await client.post("/v1/messages", message())
        assert (first["usage"]["input_tokens"], first["usage"]["output_tokens"]) == (counted["count"], 8)
        _, second = await client.post("/v1/responses", response())
        usage = second["usage"]
        assert usage["input_tokens"] == counted["count"]
        assert usage["input_tokens_details"]["cached_tokens"] > 100
        _, third = await client.post("/v1/messages", message())
        told = third["usage"]
        assert told["cache_read_input_tokens"] + told["input_tokens"] == counted["count"]
        assert second["output"][0]["content"][0]["text"] == third["content"][0]["text"]

    check(test)


def test_tools_and_blocks_render_as_those_of_chat_completions():
    async def test(client: Client) -> None:
        tool = {"name": "find", "parameters": SCHEMA}
        chat = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Well"},
            {"role": "tool", "content": "found"},
            {"role": "user", "content": "So?"},
        ]
        tools = [{"function": tool, "type": "function"}]
        _, counted = await client.post("/tokenize", {"model": "m", "messages": chat, "tools": tools})
        blocks = [
            {"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "x"}, {"type": "text", "text": "Well"}]},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "found"}]},
                    {"type": "text", "text": "So?"},
                ],
            },
        ]
        system = [{"type": "text", "text": "x-anthropic-billing-header: 1"}, {"type": "text", "text": SYSTEM}]
        body = {"model": "m", "system": system, "messages": blocks, "tools": [{"name": "find", "input_schema": SCHEMA}]}
        _, answer = await client.post("/v1/messages/count_tokens", body)
        assert answer["input_tokens"] == counted["count"]

    check(test)


def test_streams_say_what_whole_answers_say():
    async def test(client: Client) -> None:
        _, whole = await client.post("/v1/messages", message())
        events = await client.events("/v1/messages", message())
        assert [events[0]["type"], events[-1]["type"]] == ["message_start", "message_stop"]
        text = "".join(each["delta"]["text"] for each in events if each["type"] == "content_block_delta")
        assert text == whole["content"][0]["text"]
        assert events[-2]["usage"]["output_tokens"] == 8
        _, whole = await client.post("/v1/responses", response())
        events = await client.events("/v1/responses", response())
        assert [each["sequence_number"] for each in events] == list(range(len(events)))
        assert events[-1]["response"]["output"][0]["content"][0]["text"] == whole["output"][0]["content"][0]["text"]

    check(test)


def test_a_tool_that_must_be_called_is():
    async def test(client: Client) -> None:
        tools = {"tools": [{"name": "find", "input_schema": SCHEMA}], "tool_choice": {"type": "any"}}
        _, whole = await client.post("/v1/messages", message(**tools))
        assert (whole["stop_reason"], whole["content"][0]["name"]) == ("tool_use", "find")
        events = await client.events("/v1/messages", message(**tools))
        given = "".join(each["delta"]["partial_json"] for each in events if each["type"] == "content_block_delta")
        assert json.loads(given) == whole["content"][0]["input"]
        tools = {"tools": [{"type": "function", "name": "find", "parameters": SCHEMA}], "tool_choice": "required"}
        _, whole = await client.post("/v1/responses", response(**tools))
        assert (whole["output"][0]["type"], whole["output"][0]["name"]) == ("function_call", "find")
        events = await client.events("/v1/responses", response(**tools))
        assert events[-1]["response"]["output"][0]["arguments"] == whole["output"][0]["arguments"]

    check(test)


def test_responses_are_kept_under_the_id_that_is_asked_for():
    async def test(client: Client) -> None:
        _, first = await client.post("/v1/responses", response(request_id="resp_1"))
        assert first["id"] == "resp_1"
        _, second = await client.post("/v1/responses", response("More", previous_response_id="resp_1"))
        assert second["usage"]["input_tokens"] > first["usage"]["input_tokens"]
        status, found = await client.get("/v1/responses/resp_1")
        assert (status, found) == (200, first)
        status, _ = await client.post("/v1/responses/resp_1/cancel", {})
        assert status == 400
        _, begun = await client.post("/v1/responses", response(background=True))
        assert begun["status"] == "queued"
        while (await client.get(f"/v1/responses/{begun['id']}"))[1]["status"] != "completed":  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    check(test)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/messages", message(max_tokens=0), 400),
        ("/v1/messages", message(messages=None), 400),
        ("/v1/messages", message(model="other"), 404),
        ("/v1/messages", message(messages=[{"role": "user", "content": [{"type": "image"}]}]), 400),
        ("/v1/messages", message(tools=[{}]), 400),
        ("/v1/responses", response(7), 400),
        ("/v1/responses", response([{}]), 400),
        ("/v1/responses", response([{"role": "user", "content": [{"type": "input_image"}]}]), 400),
        ("/v1/responses", response(previous_response_id="resp_none"), 404),
    ],
)
def test_what_cannot_be_used_is_refused_in_the_apis_form(path, body, status):
    async def test(client: Client) -> None:
        got, answer = await client.post(path, body)
        assert got == status
        assert answer.get("type") == ("error" if path == "/v1/messages" else None)
        assert answer["error"]["message"]

    check(test)
