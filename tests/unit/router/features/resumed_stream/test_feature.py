"""Streams whose engine is lost, through a router on real sockets."""

import asyncio

import pytest

from promptgroup_contract.table import SlotState
from support.fakeengine import Call, engines, until
from support.tables import SYSTEM, group, revision, slot, table
from support.tokenstream import DONE, breaks_off, data_of, event, events, streams, text_of
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


async def cut_anywhere(tmp_path, body, first, path="/v1/chat/completions", then=None, **fields):
    """The answer where whichever engine gets the request first is lost."""
    calls = []

    async def behave(call):
        calls.append(call)
        await (first if len(calls) == 1 else then or streams())(call)

    async with engines(3, behave, behave, behave) as three:
        addresses = [engine.address for engine in three]
        async with routing(tmp_path, served(*addresses, **fields)) as router, connected(router.port) as client:
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


def test_a_text_completion_goes_on_too(tmp_path):
    async def check():
        body = {"model": "llama", "prompt": f"{SYSTEM} Hi", "stream": True, "temperature": 0, "max_tokens": 40, **USAGE}
        body["ignore_eos"] = True
        path = "/v1/completions"
        expected = data_of((await whole(tmp_path, body, path)).body)
        answer, _, _ = await cut_anywhere(tmp_path, body, breaks_off(9), path)
        told = data_of(answer)
        assert answer.count(RESUMED) == 1
        assert text_of(told) == text_of(expected)
        assert {document["object"] for document in told} == {"text_completion"}
        assert len({document["id"] for document in told}) == 1
        assert all(
            "prompt_token_ids" not in choice or choice["prompt_token_ids"] is None
            for document in told
            for choice in document["choices"]
        )

    run(check())


def test_a_chat_without_a_limit_goes_on_to_the_end_of_the_context(tmp_path):
    async def check():
        body = request(**USAGE)
        del body["max_tokens"]
        expected = data_of((await whole(tmp_path, body)).body)
        answer, calls, _ = await cut_anywhere(tmp_path, body, breaks_off(30))
        assert answer.count(RESUMED) == 1
        assert text_of(data_of(answer)) == text_of(expected)
        assert [call.request.head.path for call in calls[1:]] == [b"/v1/models", b"/v1/completions"]
        usage = data_of(answer)[-1]["usage"]
        assert usage["total_tokens"] == expected[-1]["usage"]["total_tokens"] == 4000

    run(check())


def test_of_two_limits_the_newer_one_counts(tmp_path):
    async def check():
        _, calls, _ = await cut_anywhere(tmp_path, request() | {"max_completion_tokens": 20}, breaks_off(12))
        assert 0 < calls[1].json["max_tokens"] < 20

    run(check())


def test_who_asks_for_ids_gets_each_once(tmp_path):
    async def check():
        body = request(return_token_ids=True)
        expected = data_of((await whole(tmp_path, body)).body)
        answer, _, _ = await cut_anywhere(tmp_path, body, breaks_off(12))
        told = data_of(answer)
        assert answer.count(RESUMED) == 1
        assert [document["prompt_token_ids"] for document in told if document.get("prompt_token_ids")] == [
            expected[0]["prompt_token_ids"]
        ]
        assert text_of(told) == text_of(expected)

    run(check())


def test_an_answer_goes_on_as_often_as_the_group_lets_it(tmp_path):
    async def check(most):
        answer, calls, state = await cut_anywhere(
            tmp_path, request(), breaks_off(12), then=breaks_off(9), max_resumes=most
        )
        assert b"[DONE]" not in answer
        assert b"answer_cut" in answer
        assert 'answers_cut_total{group="chat/support",by="engine"} 1' in state.exposition(0.0, 0)
        assert state.token_bytes == 0
        assert len(calls) == 1 + min(most, 2)  # there are three engines

    for most in (0, 1, 3):
        run(check(most))


NOT_RESUMED = {
    "tools": {"tools": [{"type": "function", "function": {"name": "f"}}]},
    "structured output": {"response_format": {"type": "json_object"}},
    "stop strings": {"stop": ["x"]},
    "a grammar": {"guided_regex": "[a-z]+"},
    "a seed": {"seed": 1, "temperature": 1},
    "choices": {"n": 2},
    "logprobs": {"logprobs": True},
    "penalties": {"presence_penalty": 0.5},
    "an unknown field": {"of_next_year": 1},
}


@pytest.mark.parametrize("field", NOT_RESUMED)
def test_any_other_answer_ends_with_an_error(tmp_path, field):
    async def check():
        answer, calls, _ = await cut_anywhere(tmp_path, request() | NOT_RESUMED[field], breaks_off(12))
        assert len(calls) == 1
        assert "return_token_ids" not in calls[0].json
        assert b"[DONE]" not in answer
        assert b"answer_cut" in answer

    run(check())


def test_no_ids_are_asked_for_where_a_prompt_has_more_than_text(tmp_path):
    """The ids of an image's tokens stand for the image, which a text completion would not have."""
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": [picture]}]

    async def refuse(call):
        call.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    async def check():
        _, calls, _ = await cut_anywhere(tmp_path, request() | {"messages": messages}, refuse)
        assert "return_token_ids" not in calls[0].json

    run(check())


def test_an_answer_with_something_else_than_text_ends_with_an_error(tmp_path):
    async def check():
        async def thinks(call):
            call.begin_stream()
            for delta in ({"role": "assistant", "content": ""}, {"reasoning": "hm"}, {"content": "Hi"}):
                ids = {"token_ids": [7]} if "role" not in delta else {}
                choice = {"index": 0, "delta": delta, "finish_reason": None, **ids}
                call.chunk(event({"choices": [choice], "prompt_token_ids": [1, 2]}))
            await call.writer.drain()
            await asyncio.sleep(0.02)
            call.reset()

        answer, calls, state = await cut_anywhere(tmp_path, request(), thinks)
        assert len(calls) == 1
        assert b"answer_cut" in answer
        assert state.token_bytes == 0

    run(check())


def test_an_engine_that_tells_no_ids_is_not_gone_on_for(tmp_path):
    async def check():
        async def silent(call):
            call.begin_stream()
            call.chunk(event({"choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": None}]}))
            await call.writer.drain()
            await asyncio.sleep(0.02)
            call.reset()

        answer, calls, _ = await cut_anywhere(tmp_path, request(), silent)
        assert len(calls) == 1
        assert b"answer_cut" in answer

    run(check())


@pytest.mark.parametrize("status", [400, 404, 500])
def test_an_engine_that_does_not_know_the_rest_leads_to_the_next(tmp_path, status):
    async def check():
        calls = []

        async def behave(call):
            calls.append(call)
            if len(calls) == 2:
                call.answer(b'{"error": {"message": "no"}}', status)
            else:
                await (breaks_off(12) if len(calls) == 1 else streams())(call)

        expected = await whole(tmp_path, request())
        async with (
            engines(3, *[behave] * 3) as three,
            routing(tmp_path, served(*(engine.address for engine in three))) as router,
        ):
            answer = await ask(router.port, post(request()))
        assert text_of(data_of(answer.body)) == text_of(data_of(expected.body))
        assert len(calls) == 3

    run(check())


def test_a_replica_that_must_leave_hands_its_streams_on(tmp_path):
    async def check():
        released = asyncio.Event()

        async def slow(call):
            call.begin_stream()
            told = events(call)
            for part in told[:10]:
                call.chunk(part)
            await call.writer.drain()
            await call.client_gone()
            released.set()

        body = request(**USAGE)
        expected = data_of((await whole(tmp_path, body)).body)
        first = []

        async def behave(call):
            first.append(call)
            await (slow if len(first) == 1 else streams())(call)

        async with engines(2, behave, behave) as both:
            addresses = [engine.address for engine in both]
            async with routing(tmp_path, served(*addresses)) as router, connected(router.port) as client:
                client.send(post(body))
                await until(lambda: first, "a request")
                mine = next(number for number, engine in enumerate(both) if engine.requests)
                states = [SlotState.READY, SlotState.READY]
                states[mine] = SlotState.DRAINING
                router.state.install(served(*addresses, states=states), "test", 0.0)
                answer = (await client.answer()).body
                await released.wait()
                assert text_of(data_of(answer)) == text_of(expected)
                assert answer.count(RESUMED) == 1
                exposition = router.state.exposition(0.0, 0)
                assert 'answers_resumed_total{group="chat/support",reason="leaving"} 1' in exposition
                assert "ejections_total 1" not in exposition

    run(check())


def test_where_nobody_else_is_the_stream_stays_with_the_replica_that_leaves(tmp_path):
    async def check():
        goes = asyncio.Event()

        async def slow(call):
            call.begin_stream()
            told = events(call)
            for part in told[:10]:
                call.chunk(part)
            await call.writer.drain()
            await goes.wait()
            for part in told[10:]:
                call.chunk(part)
            call.send(b"0\r\n\r\n")

        async with (
            engines(1, slow) as (engine,),
            routing(tmp_path, served(engine.address)) as router,
            connected(router.port) as client,
        ):
            client.send(post(request()))
            await until(lambda: engine.requests, "a request")
            router.state.install(served(engine.address, states=[SlotState.DRAINING]), "test", 0.0)
            await asyncio.sleep(1.3)  # longer than the router looks after its streams
            goes.set()
            answer = (await client.answer()).body
            assert answer.endswith(DONE)
            assert RESUMED not in answer

    run(check())


ANSWERS = {
    "no JSON": b"{",
    "a list": b"[]",
    "no models": b'{"data": []}',
    "no length": b'{"data": [{"id": "llama"}]}',
    "a length that is none": b'{"data": [{"max_model_len": "long"}]}',
    "models that are none": b'{"data": {"max_model_len": 7}}',
    "more than is read": b"[" * 70_000,
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_engine_that_does_not_tell_its_context_leads_to_the_next(tmp_path, answer):
    async def check():
        asked = []

        async def hides(call):
            asked.append(call)
            if call.request.head.method == b"GET" and len(asked) == 2:
                call.answer(ANSWERS[answer])
            else:
                await (breaks_off(30) if len(asked) == 1 else streams())(call)

        body = request()
        del body["max_tokens"]
        expected = await whole(tmp_path, body)
        async with (
            engines(3, *[hides] * 3) as three,
            routing(tmp_path, served(*(engine.address for engine in three))) as router,
        ):
            told = await ask(router.port, post(body))
            assert router.state.token_bytes == 0
        assert text_of(data_of(told.body)) == text_of(data_of(expected.body))

    run(check())
