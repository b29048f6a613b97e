"""The official clients of OpenAI and Anthropic against a router in front of stand-in engines.

They run where the dependency group `compat` is installed: `make compat`.
"""

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

openai = pytest.importorskip("openai", reason="the dependency group compat is not installed")
anthropic = pytest.importorskip("anthropic", reason="the dependency group compat is not installed")

from promptgroup_contract.caller_rules import CallerLimits, CallerRules  # noqa: E402
from promptgroup_contract.fingerprint import canonical_tools  # noqa: E402
from support.keys import BY_KEY, KEY_A, KEY_B, write_keys  # noqa: E402
from support.served import ENGINES, Served, served  # noqa: E402
from support.tables import SYSTEM as SENTENCE  # noqa: E402

SYSTEM = SENTENCE * 20
"""Longer than a block of the cache, on real engines too."""
STAND_IN_ONLY = pytest.mark.skipif(bool(ENGINES), reason="a model with random weights calls no tool")

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
FUNCTION = {"type": "function", "function": {"name": "note", "description": "Notes a text.", "parameters": SCHEMA}}
TOOL = {"name": "note", "description": "Notes a text.", "input_schema": SCHEMA}
CHAT = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Hi"}]
USER = [{"role": "user", "content": "Hi"}]
BRIEF = [{"role": "user", "content": "Answer 17"}]
"""A stand-in answers it with one word; a model with random weights may do so with any message."""
WHOLE = {"ignore_eos": True}
"""For answers that must not end before their clients want it."""
WAIT_SECONDS = 10.0


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("fleet"), system=SYSTEM) as up:
        yield up


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Engines whose answers take real time, so that they can be left."""
    with served(tmp_path_factory.mktemp("slow"), engines=1, system=SYSTEM, time_scale=1.0) as up:
        yield up


def openai_client(fleet: Served, **options: object) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{fleet.url}/v1", **({"api_key": "sk-test", "max_retries": 0} | options))


def anthropic_client(fleet: Served, **options: object) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=fleet.url, **({"api_key": "sk-test", "max_retries": 0} | options))


@pytest.fixture
def oai(fleet: Served) -> Iterator[openai.OpenAI]:
    with openai_client(fleet) as client:
        yield client


@pytest.fixture
def claude(fleet: Served) -> Iterator[anthropic.Anthropic]:
    with anthropic_client(fleet) as client:
        yield client


def settle(fleet: Served) -> None:
    """Wait until the router has nothing in flight."""
    deadline = time.monotonic() + WAIT_SECONDS
    while fleet.in_flight():
        assert time.monotonic() < deadline, "a request that its client left is still in flight"
        time.sleep(0.01)


# --- OpenAI: chat completions and completions


@pytest.mark.parametrize(("model", "messages"), [("llama", CHAT), ("support", USER)])
def test_chat_by_content_and_by_name(oai, model, messages):
    raw = oai.chat.completions.with_raw_response.create(model=model, messages=messages, max_tokens=8)
    answer = raw.parse()
    assert raw.headers["x-promptgroup-served-by"].startswith("chat/support/")
    assert answer.choices[0].message.content
    assert 0 < answer.usage.completion_tokens <= 8
    again = oai.chat.completions.create(model=model, messages=messages, max_tokens=8)
    assert again.usage.prompt_tokens_details.cached_tokens > 0


def test_chat_streams(oai):
    whole = oai.chat.completions.create(model="llama", messages=CHAT, max_tokens=8)
    stream = oai.chat.completions.create(
        model="llama", messages=CHAT, max_tokens=8, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text if ENGINES else text == whole.choices[0].message.content
    assert 0 < chunks[-1].usage.completion_tokens <= 8


def test_completions(oai):
    answer = oai.completions.create(model="llama", prompt="Once", max_tokens=4)
    assert answer.choices[0].text
    assert "".join(
        chunk.choices[0].text
        for chunk in oai.completions.create(model="llama", prompt="Once", max_tokens=4, stream=True)
    )


def test_async_clients(fleet):
    async def check() -> None:
        async with (
            openai.AsyncOpenAI(base_url=f"{fleet.url}/v1", api_key="sk-test") as oai,
            anthropic.AsyncAnthropic(base_url=fleet.url, api_key="sk-test") as claude,
        ):
            answers = await asyncio.gather(
                *(oai.chat.completions.create(model="support", messages=USER, max_tokens=4) for _ in range(5)),
                *(oai.responses.create(model="support", input="Hi", max_output_tokens=16) for _ in range(5)),
                *(claude.messages.create(model="support", messages=USER, max_tokens=4) for _ in range(5)),
            )
            assert len(answers) == 15
            async with claude.messages.stream(model="support", messages=USER, max_tokens=4) as stream:
                assert await stream.get_final_text()

    asyncio.run(check())


def test_models(oai, claude):
    listed = {model.id: model for model in oai.models.list()}
    assert set(listed) == {"llama", "support"}
    assert oai.models.retrieve("chat/support").id == "chat/support"
    with pytest.raises(openai.NotFoundError) as caught:
        oai.models.retrieve("gpt")
    assert caught.value.code == "model_not_found"
    assert [model.id for model in claude.models.list()] == ["llama", "support"]
    assert claude.models.retrieve("support").display_name == "support"


# --- OpenAI: responses


def test_responses_continue_where_they_are(oai):
    answer = oai.responses.create(model="support", input="What is a parcel?", max_output_tokens=16)
    assert answer.output_text
    holders = set()
    for _ in range(4):
        raw = oai.responses.with_raw_response.create(
            model="support", input="More", previous_response_id=answer.id, max_output_tokens=16
        )
        before, answer = answer, raw.parse()
        assert answer.previous_response_id == before.id
        assert answer.usage.input_tokens > before.usage.input_tokens
        holders.add(raw.headers["x-promptgroup-served-by"])
    assert len(holders) == 1
    assert oai.responses.retrieve(answer.id).output_text == answer.output_text


def test_responses_stream(oai):
    with oai.responses.stream(model="llama", instructions=SYSTEM, input="Hi", max_output_tokens=16) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")
    assert oai.responses.retrieve(final.id).output_text == final.output_text


def test_a_response_in_the_background_is_cancelled(slow):
    with openai_client(slow) as oai:
        begun = oai.responses.create(model="support", input="Hi", background=True, max_output_tokens=4000)
        assert begun.status == "queued"
        assert oai.responses.cancel(begun.id).status == "cancelled"
        assert oai.responses.retrieve(begun.id).status == "cancelled"


def test_a_lost_response(oai):
    for ask, code in (
        (lambda: oai.responses.retrieve("resp_none"), "response_not_found"),
        (
            lambda: oai.responses.create(model="support", input="Hi", previous_response_id="resp_pg_" + "A" * 40),
            "previous_response_not_found",
        ),
    ):
        with pytest.raises(openai.NotFoundError) as caught:
            ask()
        assert caught.value.code == code


def test_what_the_engine_does_not_have_is_named(oai):
    answer = oai.responses.create(model="support", input="Hi", max_output_tokens=16)
    with pytest.raises(openai.NotFoundError) as caught:
        oai.responses.delete(answer.id)
    assert caught.value.code == "not_served_by_engine"
    with pytest.raises(openai.NotFoundError) as caught:
        oai.embeddings.create(model="support", input="Hi")
    assert caught.value.code == "not_served_by_engine"


# --- Anthropic: messages


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        ("llama", {"system": SYSTEM}),
        ("llama", {"system": [{"type": "text", "text": SYSTEM, "cache_control": {"type": "ephemeral", "ttl": "1h"}}]}),
        ("support", {}),
    ],
)
def test_messages_by_content_and_by_name(claude, model, fields):
    raw = claude.messages.with_raw_response.create(model=model, messages=USER, max_tokens=8, **fields)
    assert raw.headers["x-promptgroup-served-by"].startswith("chat/support/")
    answer = raw.parse()
    assert answer.content[0].type == "text"
    assert answer.stop_reason == "max_tokens" or ENGINES
    again = claude.messages.create(model=model, messages=USER, max_tokens=8, **fields)
    assert again.usage.cache_read_input_tokens > 0


def test_messages_stream(claude):
    whole = claude.messages.create(model="support", messages=USER, max_tokens=8)
    with claude.messages.stream(model="support", messages=USER, max_tokens=8) as stream:
        text = "".join(stream.text_stream)
        assert text if ENGINES else text == whole.content[0].text
        final = stream.get_final_message()
    assert 0 < final.usage.output_tokens <= 8


def test_tokens_are_counted_with_the_declared_prompt(claude):
    counted = claude.messages.count_tokens(model="support", messages=USER).input_tokens
    assert counted == claude.messages.count_tokens(model="llama", messages=USER, system=SYSTEM).input_tokens
    usage = claude.messages.create(model="support", messages=USER, max_tokens=4).usage
    assert counted == usage.input_tokens + (usage.cache_read_input_tokens or 0)


# --- tools


@pytest.fixture(scope="module")
def tooled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("tooled"), system=SYSTEM, tools=canonical_tools([FUNCTION])) as up:
        yield up


@pytest.mark.parametrize("named", [True, False])
def test_tools_of_all_apis_are_those_of_one_group(tooled, named):
    """Each API's own form of the tools finds the group, and what one API has computed the others find in cache."""
    brings = {} if named else {"system": SYSTEM, "tools": [TOOL]}
    model = "support" if named else "llama"
    with openai_client(tooled) as oai, anthropic_client(tooled) as claude:
        tools = {} if named else {"tools": [FUNCTION]}
        chat = oai.chat.completions.with_raw_response.create(
            model=model, messages=USER if named else CHAT, max_tokens=4, **tools
        )
        message = claude.messages.with_raw_response.create(model=model, messages=USER, max_tokens=4, **brings)
        flat = [{"type": "function", **FUNCTION["function"], "strict": None}]
        response = oai.responses.with_raw_response.create(
            model=model,
            input="Hi",
            max_output_tokens=16,
            **({} if named else {"instructions": SYSTEM, "tools": flat}),
        )
        assert all(
            raw.headers["x-promptgroup-served-by"].startswith("chat/support/") for raw in (chat, message, response)
        )
        told = message.parse().usage
        lengths = {
            chat.parse().usage.prompt_tokens,
            told.input_tokens + (told.cache_read_input_tokens or 0),
            response.parse().usage.input_tokens,
        }
        assert len(lengths) == 1


@STAND_IN_ONLY
def test_tool_calls_are_relayed(fleet):
    with openai_client(fleet) as oai, anthropic_client(fleet) as claude:
        message = claude.messages.create(
            model="llama", messages=USER, max_tokens=8, tools=[TOOL], tool_choice={"type": "any"}
        )
        (call,) = message.content
        assert (call.type, call.name, message.stop_reason) == ("tool_use", "note", "tool_use")
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "noted"}
        turns = [
            *USER,
            {"role": "assistant", "content": [each.model_dump() for each in message.content]},
            {"role": "user", "content": [result]},
        ]
        assert claude.messages.create(model="llama", messages=turns, max_tokens=8, tools=[TOOL]).content
        with claude.messages.stream(
            model="llama", messages=USER, max_tokens=8, tools=[TOOL], tool_choice={"type": "any"}
        ) as stream:
            assert stream.get_final_message().content[0].input == call.input
        flat = [{"type": "function", **FUNCTION["function"], "strict": True}]
        answer = oai.responses.create(
            model="llama", input="Hi", tools=flat, tool_choice="required", max_output_tokens=16
        )
        assert json.loads(answer.output[0].arguments)["text"]
        output = {"type": "function_call_output", "call_id": answer.output[0].call_id, "output": "noted"}
        assert oai.responses.create(
            model="llama", input=[output], previous_response_id=answer.id, tools=flat, max_output_tokens=16
        ).output_text


# --- errors, in the clients' own classes


def test_openais_errors(fleet, oai):
    for ask, kind, code in (
        (lambda: oai.chat.completions.create(model="gpt", messages=USER), openai.NotFoundError, "model_not_found"),
        (
            lambda: oai.chat.completions.create(model="support", messages=CHAT),
            openai.BadRequestError,
            "prompt_given_twice",
        ),
        (
            lambda: oai.responses.create(model="support", input="Hi", instructions="Mine"),
            openai.BadRequestError,
            "prompt_given_twice",
        ),
        (lambda: oai.images.generate(prompt="A train"), openai.NotFoundError, "not_found"),
        (
            lambda: oai.chat.completions.create(model="llama", messages=CHAT, max_tokens=-1),
            openai.BadRequestError,
            "400",
        ),
    ):
        with pytest.raises(kind) as caught:
            ask()
        assert caught.value.code == code
        assert caught.value.request_id or code == "400"


def test_anthropics_errors(claude):
    for fields, kind, told in (
        ({"model": "gpt"}, anthropic.NotFoundError, "not_found_error"),
        ({"model": "support", "system": "Mine"}, anthropic.BadRequestError, "invalid_request_error"),
        ({"model": "llama", "max_tokens": 0}, anthropic.BadRequestError, ""),
    ):
        with pytest.raises(kind) as caught:
            claude.messages.create(**({"messages": USER, "max_tokens": 4} | fields))
        assert told in ("", caught.value.body["error"]["type"])  # the last is the engine's own


def test_what_has_no_replica_is_tried_again_as_the_clients_do(tmp_path):
    with served(tmp_path, engines=0) as up:
        with openai_client(up, max_retries=1) as oai, pytest.raises(openai.InternalServerError) as caught:
            oai.chat.completions.create(model="support", messages=USER)
        assert (caught.value.status_code, caught.value.code) == (503, "no_replica")
        with anthropic_client(up, max_retries=1) as claude, pytest.raises(anthropic.InternalServerError) as refused:
            claude.messages.create(model="support", messages=USER, max_tokens=4)
        assert refused.value.status_code == 503
        text = up.router.state.exposition(0.0, 0)
        assert 'requests_total{group="-",code="503"} 4' in text


# --- clients that leave


def test_a_stream_that_is_left_frees_its_engine(slow):
    with openai_client(slow) as oai:
        stream = oai.chat.completions.create(
            model="llama", messages=CHAT, max_tokens=5000, stream=True, extra_body=WHOLE
        )
        next(iter(stream))
        assert slow.in_flight() == 1
        stream.close()
        settle(slow)
    with anthropic_client(slow) as claude:
        with claude.messages.stream(model="support", messages=USER, max_tokens=5000) as stream:
            next(iter(stream.text_stream))
        settle(slow)


def test_a_request_that_is_cancelled_frees_its_engine(slow):
    async def check() -> None:
        async with openai.AsyncOpenAI(base_url=f"{slow.url}/v1", api_key="sk-test", max_retries=0) as oai:
            task = asyncio.ensure_future(
                oai.responses.create(model="support", input="Hi", max_output_tokens=5000, extra_body=WHOLE)
            )
            while not slow.in_flight():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(check())
    settle(slow)


def test_a_client_that_waits_for_too_long_gives_up(slow):
    with openai_client(slow, timeout=0.5) as oai, pytest.raises(openai.APITimeoutError):
        oai.chat.completions.create(
            model="llama", messages=CHAT, max_tokens=5000, extra_body={**WHOLE, "cache_salt": "x"}
        )
    settle(slow)


# --- callers who are asked for a key


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("closed")
    write_keys(folder / "secrets", team_a=KEY_A, team_b=KEY_B)
    with served(folder, system=SYSTEM, access=replace(BY_KEY, callers=("team-a",))) as up:
        yield up


@pytest.mark.parametrize(
    ("key", "of_openai", "of_anthropic", "code"),
    [
        ("sk-nobody-has-this-key", openai.AuthenticationError, anthropic.AuthenticationError, "invalid_api_key"),
        (KEY_B, openai.PermissionDeniedError, anthropic.PermissionDeniedError, "not_allowed"),
    ],
)
def test_a_key_that_opens_nothing_is_told_in_each_clients_own_class(closed, key, of_openai, of_anthropic, code):
    with openai_client(closed, api_key=key) as oai, anthropic_client(closed, api_key=key) as claude:
        for ask in (
            lambda: oai.chat.completions.create(model="support", messages=USER),
            lambda: oai.chat.completions.create(model="llama", messages=CHAT, stream=True),
            lambda: oai.completions.create(model="llama", prompt="Once"),
            lambda: oai.responses.create(model="support", input="Hi"),
            oai.models.list,
        ):
            with pytest.raises(of_openai) as caught:
                ask()
            assert caught.value.code == code
            assert key not in str(caught.value)
        for ask in (
            lambda: claude.messages.create(model="support", messages=USER, max_tokens=4),
            lambda: claude.messages.count_tokens(model="support", messages=USER),
            claude.models.list,
        ):
            with pytest.raises(of_anthropic):
                ask()


def test_a_key_opens_the_group_to_clients_of_both_apis(closed):
    with openai_client(closed, api_key=KEY_A) as oai, anthropic_client(closed, api_key=KEY_A) as claude:
        assert oai.chat.completions.create(model="support", messages=USER, max_tokens=4).choices
        assert claude.messages.create(model="support", messages=USER, max_tokens=4).content
        assert {model.id for model in oai.models.list()} == {"llama", "support"}
    closed.router.state.metrics.callers.tell()
    counted = closed.router.state.metrics.callers.requests.values
    assert counted["chat/support", "team-a", "200"] == 2


# --- callers with limits


def limited(folder, **limits: int):
    """A group whose callers have these limits; its engines take real time."""
    rules = CallerRules(default=CallerLimits(**limits))
    return served(folder, engines=1, system=SYSTEM, time_scale=1.0, callers=rules)


@pytest.fixture
def slept(monkeypatch):
    """The pauses that clients make before they try again; nobody waits for them."""
    found: list[float] = []
    monkeypatch.setattr(time, "sleep", found.append)
    return found


def ask_openai(up: Served, **options: object):
    with openai_client(up, **options) as oai:
        return oai.chat.completions.create(model="support", messages=USER, max_tokens=4)


def ask_anthropic(up: Served, **options: object):
    with anthropic_client(up, **options) as claude:
        return claude.messages.create(model="support", messages=USER, max_tokens=4)


CLIENTS = [(ask_openai, openai.RateLimitError), (ask_anthropic, anthropic.RateLimitError)]


@pytest.mark.parametrize(("ask", "kind"), CLIENTS)
@pytest.mark.parametrize(("limit", "most"), [("requests_per_minute", 1), ("tokens_per_minute", 200)])
def test_a_limit_is_told_in_each_clients_own_class(tmp_path, ask, kind, limit, most):
    with limited(tmp_path, **{limit: most}) as up:
        assert ask(up)
        with pytest.raises(kind) as caught:
            ask(up)
    error, told = caught.value, caught.value.response.headers
    unit = limit.partition("_")[0]
    assert error.status_code == 429
    assert 1 <= int(told["retry-after"]) <= 60
    assert int(told[f"x-ratelimit-limit-{unit}"]) == most
    assert told[f"x-ratelimit-remaining-{unit}"] == "0"
    assert told[f"x-ratelimit-reset-{unit}"].endswith("s")
    if kind is openai.RateLimitError:
        assert error.code == {"requests": "rate_limit_exceeded", "tokens": "tokens_exceeded"}[unit]
    else:
        assert error.body["error"]["type"] == "rate_limit_error"


@pytest.mark.parametrize(("ask", "kind"), CLIENTS)
def test_clients_wait_as_long_as_they_are_told(tmp_path, slept, ask, kind):
    """A time of more than a minute would be passed over, and the client come back at once."""
    with limited(tmp_path, requests_per_minute=1) as up:
        assert ask(up)
        with pytest.raises(kind) as caught:
            ask(up, max_retries=1)
        assert slept == [float(caught.value.response.headers["retry-after"])]
        assert 50 <= slept[0] <= 60


@pytest.mark.parametrize("ask", [ask_openai, ask_anthropic])
def test_a_request_that_is_tried_again_when_it_was_told_to_succeeds(tmp_path, monkeypatch, ask):
    """The only place is taken until the client pauses: its second try finds it free."""
    with limited(tmp_path, in_flight=1) as up, openai_client(up) as busy:
        stream = busy.chat.completions.create(
            model="support", messages=BRIEF, max_tokens=5000, stream=True, extra_body=WHOLE
        )
        next(iter(stream))
        pauses: list[float] = []
        pause = time.sleep

        def free(seconds: float) -> None:
            pauses.append(seconds)
            stream.close()
            while up.in_flight():
                pause(0.01)

        monkeypatch.setattr(time, "sleep", free)
        assert ask(up, max_retries=2)
        assert pauses[0] == 1.0
