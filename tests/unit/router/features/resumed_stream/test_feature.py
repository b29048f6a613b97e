"""Streams whose engine is lost, through a router on real sockets."""

import asyncio
import json

import pytest

from promptgroup_contract.table import SlotState
from support.fakeengine import Call, engines
from support.tables import group, revision, slot, table
from support.tokenstream import DONE, breaks_off, data_of, event, streams, text_of
from support.wire import ask, chat, connected, post, routing, run

USAGE = {"stream_options": {"include_usage": True}}
RESUMED = b": the answer goes on on another replica\n\n"


def served(*addresses, max_resumes=1, states=(), **fields):
    slots = tuple(
        slot(number, *states[number : number + 1], address=address) for number, address in enumerate(addresses)
    )
    return table(group("support", revision(slots=slots), max_resumes=max_resumes, **fields))


def request(**fields):
    return chat(stream=True, temperature=0, max_tokens=40, ignore_eos=True, **fields)


async def whole(tmp_path, body, path="/v1/chat/completions"):
    """The answer of an engine that is not lost."""
    async with engines(1, streams()) as (engine,), routing(tmp_path, served(engine.address)) as router:
        return await ask(router.port, post(body, path=path))


async def cut_anywhere(tmp_path, body, first, path="/v1/chat/completions", **fields):
    """The answer where whichever engine gets the request first is lost."""
    calls = []

    async def behave(call):
        calls.append(call)
        await (first if len(calls) == 1 else streams())(call)

    async with engines(2, behave, behave) as both:
        async with routing(tmp_path, served(*(engine.address for engine in both), **fields)) as router:
            async with connected(router.port) as client:
                client.send(post(body, path=path))
                try:
                    answer = (await client.answer()).body
                except EOFError as error:
                    answer = str(error).encode()
            return answer, calls, router.state


ENDS = {
    "reset": Call.reset,
    "aborted": lambda call: (
        call.chunk(event({"choices": [{"index": 0, "delta": {}, "finish_reason": "abort"}]}) + DONE),
        call.send(b"0\r\n\r\n"),
    ),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("after", [4, 5, 6, 7, 8, 23, 40])
def test_a_chat_whose_engine_is_lost_goes_on_on_another(tmp_path, after, end):
    async def check():
        body = request(**USAGE)
        expected = data_of((await whole(tmp_path, body)).body)
        answer, calls, state = await cut_anywhere(tmp_path, body, breaks_off(after, ENDS[end]))
        told = data_of(answer)
        assert text_of(told) == text_of(expected)
        assert answer.endswith(DONE)
        assert answer.count(RESUMED) == 1
        assert [call.request.head.path for call in calls] == [b"/v1/chat/completions", b"/v1/completions"]
        assert {document["id"] for document in told} == {told[0]["id"]}
        assert {document["object"] for document in told} == {"chat.completion.chunk"}
        assert sum("role" in choice["delta"] for document in told for choice in document["choices"]) == 1
        usages = [document["usage"] for document in (told[-1], expected[-1])]
        for usage in usages:
            assert usage.pop("prompt_tokens_details")["cached_tokens"] <= usage["prompt_tokens"]
        assert usages[0] == usages[1]
        assert sum("usage" in document for document in told) == 1
        assert b'token_ids":[' not in answer
        assert 'answers_resumed_total{group="chat/support",reason="lost"} 1' in state.exposition(0.0, 0)
        assert "answers_cut_total{" not in state.exposition(0.0, 0)
        assert state.token_bytes == 0

    run(check())
