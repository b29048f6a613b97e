"""LangChain and LiteLLM, which stand between applications and the official clients, against a router.

Each adds fields and headers of its own to requests and reads more of an answer than the official clients do: usage with
cached tokens, errors by status and code, events in their order. They run where the dependency group `compat` is
installed: `make compat`.
"""

import asyncio
import os
from collections.abc import Iterator

import pytest

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # it asks a server for prices otherwise, when imported
litellm = pytest.importorskip("litellm", reason="the dependency group compat is not installed")
anthropic = pytest.importorskip("anthropic")
openai = pytest.importorskip("openai")
langchain_anthropic = pytest.importorskip("langchain_anthropic")
langchain_openai = pytest.importorskip("langchain_openai")

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage  # noqa: E402

from support.served import ENGINES, Served, served  # noqa: E402
from support.tables import SYSTEM as SENTENCE  # noqa: E402

SYSTEM = SENTENCE * 20
# LiteLLM reads deprecated attributes of pydantic models; this suite is about requests and answers
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
STAND_IN_ONLY = pytest.mark.skipif(bool(ENGINES), reason="a model with random weights calls no tool")
CHAT = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Hi"}]
USER = CHAT[1:]
NOTE = {
    "type": "function",
    "function": {
        "name": "note",
        "description": "Notes a text.",
        "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    },
}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("fleet"), system=SYSTEM) as up:
        yield up


def chat_model(fleet: Served, model: str, **options: object) -> langchain_openai.ChatOpenAI:
    return langchain_openai.ChatOpenAI(
        base_url=f"{fleet.url}/v1", api_key="sk-test", model=model, max_tokens=8, max_retries=0, **options
    )


def claude_model(fleet: Served, model: str, **options: object) -> langchain_anthropic.ChatAnthropic:
    return langchain_anthropic.ChatAnthropic(
        base_url=fleet.url, api_key="sk-test", model=model, max_tokens=8, max_retries=0, **options
    )


def asked(fleet: Served, model: str = "openai/llama", **options: object) -> dict:
    """Return the arguments with which LiteLLM asks the router: OpenAI's or Anthropic's API, by the model's prefix."""
    base = fleet.url if model.startswith("anthropic/") else f"{fleet.url}/v1"
    return {"model": model, "api_base": base, "api_key": "sk-test", "max_tokens": 8, "num_retries": 0} | options


def groups_requests(fleet: Served) -> int:
    """Return how many requests the declared group has served."""
    text = fleet.router.state.exposition(0.0, 0)
    lines = [line for line in text.splitlines() if "requests_total{" in line and 'group="chat/support"' in line]
    return sum(int(float(line.rpartition(" ")[2])) for line in lines if 'code="200"' in line)


# --- LangChain


@pytest.mark.parametrize("make", [chat_model, claude_model])
@pytest.mark.parametrize(("model", "before"), [("llama", [SystemMessage(SYSTEM)]), ("support", [])])
def test_langchain_by_content_and_by_name(fleet, make, model, before):
    served_before = groups_requests(fleet)
    chat = make(fleet, model)
    answer = chat.invoke([*before, HumanMessage("Hi")])
    assert answer.text
    again = chat.invoke([*before, HumanMessage("Hi"), answer, HumanMessage("And then?")])
    assert again.usage_metadata["input_token_details"]["cache_read"] > 0
    assert groups_requests(fleet) == served_before + 2


@pytest.mark.parametrize("make", [chat_model, claude_model])
def test_langchain_streams(fleet, make):
    chunks = list(make(fleet, "support", stream_usage=True).stream([HumanMessage("Hi")]))
    assert "".join(chunk.text for chunk in chunks)
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert 0 < whole.usage_metadata["output_tokens"] <= 8


def test_langchain_speaks_the_responses_api(fleet):
    chat = chat_model(fleet, "support", use_responses_api=True)
    answer = chat.invoke([HumanMessage("Hi")])
    assert answer.text
    assert answer.usage_metadata["input_tokens"] > 100
    # the framework continues by the response's id, which the router leads to the replica that holds it
    follow = chat.invoke([HumanMessage("And then?")], previous_response_id=answer.response_metadata["id"])
    assert follow.text


@pytest.mark.parametrize("make", [chat_model, claude_model])
def test_langchain_asks_many_at_once(fleet, make):
    async def check() -> None:
        answers = await make(fleet, "support").abatch([[HumanMessage(f"Hi {number}")] for number in range(8)])
        assert all(answer.text for answer in answers)

    asyncio.run(check())


@STAND_IN_ONLY
@pytest.mark.parametrize(("make", "any_tool"), [(chat_model, "required"), (claude_model, "any")])
def test_langchains_tools_go_there_and_back(fleet, make, any_tool):
    chat = make(fleet, "llama").bind_tools([NOTE], tool_choice=any_tool)
    call = chat.invoke([HumanMessage("Hi")])
    assert isinstance(call, AIMessage)
    assert [each["name"] for each in call.tool_calls] == ["note"]
    streamed = None
    for chunk in chat.stream([HumanMessage("Hi")]):
        streamed = chunk if streamed is None else streamed + chunk
    assert [(each["name"], each["args"]) for each in streamed.tool_calls] == [("note", call.tool_calls[0]["args"])]
    result = ToolMessage("noted", tool_call_id=call.tool_calls[0]["id"])
    assert make(fleet, "llama").bind_tools([NOTE]).invoke([HumanMessage("Hi"), call, result]).text


def test_langchain_raises_the_clients_own_errors(fleet):
    with pytest.raises(openai.NotFoundError) as caught:
        chat_model(fleet, "gpt").invoke("Hi")
    assert caught.value.code == "model_not_found"
    with pytest.raises(anthropic.NotFoundError):
        claude_model(fleet, "gpt").invoke("Hi")


# --- LiteLLM


@pytest.mark.parametrize(
    ("model", "messages"),
    [("openai/llama", CHAT), ("openai/support", USER), ("hosted_vllm/support", USER), ("anthropic/llama", CHAT)],
)
def test_litellm_by_content_and_by_name(fleet, model, messages):
    served_before = groups_requests(fleet)
    for _ in range(2):
        answer = litellm.completion(**asked(fleet, model), messages=messages)
        assert answer.choices[0].message.content
    assert answer.usage.prompt_tokens_details.cached_tokens > 0
    assert answer.usage.prompt_tokens > answer.usage.prompt_tokens_details.cached_tokens
    assert groups_requests(fleet) == served_before + 2


@pytest.mark.parametrize("model", ["openai/support", "anthropic/support"])
def test_litellm_streams(fleet, model):
    stream = litellm.completion(
        **asked(fleet, model), messages=USER, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert 0 < chunks[-1].usage.completion_tokens <= 8


def test_litellm_asks_many_at_once(fleet):
    async def check() -> None:
        answers = await asyncio.gather(
            *(litellm.acompletion(**asked(fleet, "openai/support"), messages=USER) for _ in range(8))
        )
        assert all(answer.choices[0].message.content for answer in answers)

    asyncio.run(check())


def test_litellm_raises_errors_by_status(fleet):
    with pytest.raises(litellm.NotFoundError, match="gpt"):
        litellm.completion(**asked(fleet, "openai/gpt"), messages=USER)
    with pytest.raises(litellm.BadRequestError, match="brings its own prompt"):
        litellm.completion(**asked(fleet, "openai/support"), messages=CHAT)
    with pytest.raises(litellm.NotFoundError):
        litellm.completion(**asked(fleet, "anthropic/gpt"), messages=USER)


def test_litellms_router_falls_back_between_two_groups(fleet):
    """LiteLLM's own router, as gateways run it: a deployment that has no group is left for one that has."""
    router = litellm.Router(
        model_list=[
            {"model_name": "gone", "litellm_params": asked(fleet, "openai/gpt")},
            {"model_name": "support", "litellm_params": asked(fleet, "openai/support")},
        ],
        fallbacks=[{"gone": ["support"]}],
        num_retries=0,
    )
    assert router.completion(model="gone", messages=USER).choices[0].message.content
