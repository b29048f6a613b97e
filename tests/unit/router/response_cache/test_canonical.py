"""Keys: equal exactly where the answers would be."""

import orjson
import pytest

from promptgroup_contract.caller_rules import EngineField
from promptgroup_contract.table import Prompt
from promptgroup_router.apis.endpoints import ENDPOINTS
from promptgroup_router.apis.request import preamble
from support.asks import CHAT, MESSAGES, TEXT, asked, key_of
from support.wire import chat

TOOL = {"type": "function", "function": {"name": "find", "parameters": {"type": "object", "properties": {}}}}


@pytest.mark.parametrize(
    "fields",
    [
        {"user": "7"},
        {"metadata": {"trace": "1"}},
        {"request_id": "r"},
        {"session_id": "s"},
        {"prompt_cache_key": "p"},
        {"store": True},
        {"priority": 1},
        {"cache": {"ttl": 5}},
        {"n": 1},
        {"n": None},
        {"stream": False},
        {"presence_penalty": 0},
        {"frequency_penalty": 0.0},
        {"logit_bias": {}},
        {"stop": None},
        {"tools": []},
        {"temperature": 0.0},
    ],
)
def test_what_changes_no_answer_changes_no_key(fields):
    assert key_of(asked(**fields)) == key_of(asked())


@pytest.mark.parametrize(
    "fields",
    [
        {"stream": True},
        {"max_tokens": 5},
        {"max_completion_tokens": 5},
        {"top_p": 1},
        {"top_p": 0.5},
        {"seed": 1},
        {"stop": ["x"]},
        {"stop": "x"},
        {"tools": [TOOL]},
        {"tool_choice": "none"},
        {"response_format": {"type": "json_object"}},
        {"logprobs": True},
        {"n": True},
        {"nobody_knows_this": None},
        {"nobody_knows_this": 1},
        {"nobody_knows_this": True},
        {"nobody_knows_this": 1.0},
        {"cache_salt": "s"},
        {"chat_template_kwargs": {"enable_thinking": False}},
    ],
)
def test_what_may_change_an_answer_changes_the_key(fields):
    assert key_of(asked(**fields)) != key_of(asked())


def test_whole_numbers_that_become_one_double_have_two_keys():
    def key(number: int):
        return key_of(ENDPOINTS[CHAT].parse(orjson.dumps(chat()).replace(b"{", b'{"seed":%d,' % number, 1)))

    assert float(10**20) == float(10**20 + 1)
    assert key(10**20) != key(10**20 + 1)
    assert key(10**20) == key(10**20)


def test_an_unknown_field_counts_by_its_value_and_its_order():
    keys = [
        key_of(asked(nobody_knows_this=value))
        for value in (None, 0, 0.0, False, "", [], {}, {"a": 1, "b": 2}, {"b": 2, "a": 1})
    ]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    "changed",
    [
        {"path": TEXT},
        {"query": b"a=1"},
        {"revision": "chat/support/" + "b" * 32},
        {"settings": "e2"},
        {"model": "adapter"},
        {"preamble": preamble(Prompt("You are helpful."), "m")},
        {"sharers": b"name:ann"},
        {"space": "team"},
    ],
)
def test_an_answer_follows_from_more_than_the_body(changed):
    assert key_of(asked(), **changed) != key_of(asked())


def test_a_prompt_in_front_and_one_with_the_client_s_instructions_behind_it_are_two():
    prompt = Prompt("You are helpful.")
    assert key_of(asked(), preamble=preamble(prompt, "m")) != key_of(
        asked(), preamble=preamble(prompt, "m", appends=True)
    )


@pytest.mark.parametrize(
    ("name", "value"), [("lora_path", "a"), ("vllm_xargs", {"a": 1}), ("custom_logit_processor", "code"), ("rid", "r")]
)
def test_a_field_that_engines_get_and_one_that_is_taken_out_are_two(name, value):
    ask, allowed = asked(**{name: value}), frozenset((EngineField(name),))
    assert key_of(ask, allowed=allowed) != key_of(ask)
    assert key_of(asked(), allowed=allowed) == key_of(asked())
    assert key_of(ask, allowed=frozenset(EngineField)) == key_of(ask, allowed=allowed)


def test_who_goes_first_changes_no_key_where_engines_hear_it():
    allowed = frozenset((EngineField.PRIORITY,))
    assert key_of(asked(priority=1), allowed=allowed) == key_of(asked(), allowed=allowed)


def test_the_order_of_members_counts_only_where_an_engine_renders_it():
    body = {"temperature": 0, **chat()}
    turned = {name: body[name] for name in reversed(body)}
    turned["messages"] = [dict(reversed(message.items())) for message in turned["messages"]]
    assert key_of(asked(turned)) == key_of(asked(body))
    schemas = [
        {"type": "json_schema", "json_schema": {"properties": dict(members)}}
        for members in ([("a", 1), ("b", 2)], [("b", 2), ("a", 1)])
    ]
    assert key_of(asked(response_format=schemas[0])) != key_of(asked(response_format=schemas[1]))


def test_tools_count_in_the_form_in_which_engines_get_them():
    turned = orjson.loads(orjson.dumps(TOOL))
    turned["function"] = dict(reversed(turned["function"].items()))
    assert key_of(asked(tools=[TOOL])) == key_of(asked(tools=[turned]))


def test_messages_of_different_texts_and_orders_have_different_keys():
    def of(*texts):
        return key_of(
            asked({"model": "m", "temperature": 0, "messages": [{"role": "user", "content": t} for t in texts]})
        )

    assert len({of("a"), of("b"), of("a", "b"), of("b", "a"), of("ab")}) == 5


def test_texts_and_anthropic_s_messages_have_keys_of_their_own():
    text = asked({"model": "llama", "prompt": "Hi", "temperature": 0}, TEXT)
    other = asked({"model": "llama", "prompt": "Ho", "temperature": 0}, TEXT)
    assert key_of(text, path=TEXT) != key_of(other, path=TEXT)
    message = {"model": "llama", "max_tokens": 5, "temperature": 0, "messages": [{"role": "user", "content": "Hi"}]}
    plain = key_of(asked(message, MESSAGES), path=MESSAGES)
    assert plain == key_of(asked(message, MESSAGES, metadata={"user_id": "7"}), path=MESSAGES)
    assert plain != key_of(asked(message, MESSAGES, system="Be brief."), path=MESSAGES)
    tools = [{"name": "a", "input_schema": {}}]
    assert plain != key_of(asked(message, MESSAGES, tools=tools), path=MESSAGES)


def test_keys_stay_as_they_are_since_routers_of_several_versions_share_a_store():
    assert key_of(asked()).hex() == GOLDEN
    assert key_of(asked(), path=CHAT) == key_of(asked())


GOLDEN = "aabccbb129a99aa977f82291af5caef16874997ea0f8e55e0b3033f0ce330977"
