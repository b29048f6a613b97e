import orjson
import pytest

from promptgroup_contract.table import PromptRef
from promptgroup_router.apis.by_model import parse_json, parse_tokenize
from promptgroup_router.apis.request import ApiKind, parse
from promptgroup_router.apis.responses import parse_response
from promptgroup_router.apis.tokens import Tokens
from promptgroup_router.base.errors import ApiError
from promptgroup_router.features.near_miss import COARSE_BYTES, find_near_miss
from promptgroup_router.features.secret_prompt import SecretPrompt
from promptgroup_router.policy.session_locations import SessionLocations
from promptgroup_router.rings.building import build_index
from promptgroup_router.routing.points import feature_of
from support.routes import route
from support.tables import group, revision, table

TEXT = "You know what nobody else may know. " * 40
SECRET = build_index(table(group("support", revision(TEXT, prompt_from=PromptRef("Secret", "support-1")))))
PUBLIC = build_index(table(group("support", revision(TEXT, prompt_from=PromptRef("ConfigMap", "support-1")))))


def chat(model="support", **fields):
    body = {"model": model, "messages": [{"role": "user", "content": "Hi"}]} | fields
    return parse(ApiKind.CHAT, orjson.dumps(body))


def routed(view, ask, *, cached=True):
    return route(view, ask, {}, locations=SessionLocations(), tokens=Tokens(), now=0.0, cached=cached)


REPEATING = [
    "echo", "prompt_logprobs", "logprob_start_len", "top_logprobs_num", "token_ids_logprob", "kv_transfer_params",
    "vllm_xargs", "chat_template", "enable_response_messages", "previous_input_messages",
    "return_token_ids", "return_prompt_text", "return_of_next_year",
]  # fmt: skip
"""As the engines have them; the list is not that of the router, which may lose one."""


@pytest.mark.parametrize("value", [True, 0, 1, "yes", {}, []])
@pytest.mark.parametrize("field", REPEATING)
def test_by_name_fields_that_repeat_a_secret_prompt_are_refused(field, value):
    with pytest.raises(ApiError) as caught:
        routed(SECRET, chat(**{field: value}))
    assert (caught.value.status, caught.value.code, caught.value.param) == (400, "secret_prompt", field)
    assert "nobody else" not in str(caught.value)


def test_completions_are_refused_alike():
    with pytest.raises(ApiError, match="echo makes the engine repeat"):
        routed(SECRET, parse(ApiKind.TEXT, orjson.dumps({"model": "support", "prompt": "Hi", "echo": True})))


def test_the_name_of_a_refused_field_is_not_repeated_whole():
    with pytest.raises(ApiError) as caught:
        routed(SECRET, chat(**{"return_" + "x" * 10_000: True}))
    assert len(str(caught.value)) < 500
    assert len(caught.value.param) <= 100


@pytest.mark.parametrize("fields", [{}, {"enable_response_messages": True}])
def test_responses_are_refused_since_they_repeat_instructions(fields):
    ask = parse_response(orjson.dumps({"model": "support", "input": "Hi"} | fields))
    with pytest.raises(ApiError) as caught:
        routed(SECRET, ask)
    assert (caught.value.status, caught.value.code) == (400, "secret_prompt")
    assert "send a prompt of your own" in str(caught.value)
    assert routed(PUBLIC, ask).group == "chat/support"
    assert routed(SECRET, parse_response(orjson.dumps({"model": "llama", "instructions": TEXT, "input": "Hi"}))).group


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"echo": False},
        {"prompt_logprobs": None},
        {"logprobs": True},
        {"return_tokens_as_token_ids": True},
        {"return_cached_tokens_details": True},
    ],
)
def test_all_else_is_served(fields):
    assert routed(SECRET, chat(**fields)).group == "chat/support"


def test_apis_that_get_no_prompt_are_served_as_they_are():
    ask = parse_json(orjson.dumps({"model": "support", "query": "Hi", "documents": ["x"], "return_documents": True}))
    found = routed(SECRET, ask, cached=False)
    assert (found.group, feature_of(found.features, SecretPrompt)) == ("chat/support", None)
    assert feature_of(routed(SECRET, chat()).features, SecretPrompt) is not None


def test_what_a_client_may_know_is_not_refused():
    assert routed(PUBLIC, chat(echo=True)).group == "chat/support"
    messages = [{"role": "system", "content": TEXT}, {"role": "user", "content": "Hi"}]
    assert routed(SECRET, chat("llama", messages=messages, echo=True)).group == "chat/support"
    assert routed(SECRET, chat("llama", echo=True)).group != "chat/support"


def test_the_tokens_of_a_chat_with_a_secret_prompt_are_refused():
    ask = parse_tokenize(orjson.dumps({"model": "support", "messages": [{"role": "user", "content": "Hi"}]}))
    with pytest.raises(ApiError) as caught:
        routed(SECRET, ask, cached=False)
    assert (caught.value.code, caught.value.param) == ("secret_prompt", "model")
    routed(PUBLIC, ask, cached=False)
    routed(SECRET, parse_tokenize(orjson.dumps({"model": "llama", "prompt": "Hi"})), cached=False)


@pytest.mark.parametrize(("view", "step"), [(SECRET, COARSE_BYTES), (PUBLIC, 1)])
def test_offsets_into_a_secret_prompt_are_coarse(view, step):
    """Of an exact offset a guesser learns every byte that is right."""
    tenant = view.models["llama"].first
    for right in range(len(TEXT) // 2 + 1, len(TEXT), 97):
        guess = chat("llama", messages=[{"role": "system", "content": TEXT[:right] + "#"}])
        assert find_near_miss(tenant, guess).at == right // step * step
