import pytest

from promptgroup_router.apis.request import ApiKind
from promptgroup_router.features.resumed_stream.fitness import can_go_on

CHAT = {"model": "m", "messages": [], "stream": True}


def test_a_plain_chat_and_a_plain_text_can():
    assert can_go_on(ApiKind.CHAT, CHAT)
    assert can_go_on(ApiKind.TEXT, {"model": "m", "prompt": "a", "stream": True})
    assert not can_go_on(ApiKind.MESSAGES, CHAT)
    assert not can_go_on(ApiKind.RESPONSES, {"model": "m", "input": "a"})


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 0, "seed": 7},
        {"temperature": 0.7, "top_p": 0.9, "top_k": 40},
        {"n": 1, "stop": [], "logprobs": False, "tools": None, "tool_choice": "none"},
        {"presence_penalty": 0.0, "frequency_penalty": 0},
        {"response_format": {"type": "text"}},
        {"max_completion_tokens": 9, "min_tokens": 1, "stop_token_ids": [3]},
        {"stream_options": {"include_usage": True}, "user": "u", "metadata": {"a": "b"}},
        {"return_token_ids": True},
    ],
)
def test_fields_that_leave_it_plain(fields):
    assert can_go_on(ApiKind.CHAT, CHAT | fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 2},
        {"n": True},
        {"stop": "x"},
        {"stop": ["x"]},
        {"tools": [{"type": "function"}]},
        {"tool_choice": "required"},
        {"response_format": {"type": "json_object"}},
        {"structured_outputs": {"regex": "a"}},
        {"logprobs": True},
        {"logprobs": 0},
        {"top_logprobs": 3},
        {"presence_penalty": 0.1},
        {"frequency_penalty": -1},
        {"seed": 7},
        {"seed": 7, "temperature": 1},
        {"seed": 7, "temperature": "0"},
        {"logits_processors": ["a"]},
        {"echo": True},
        {"max_tokens": "16"},
        {"max_tokens": True},
        {"max_tokens": -1},
        {"return_token_ids": False},
        {"return_token_ids": None},
        {"use_beam_search": True},
        {"of_next_year": None},
    ],
)
def test_fields_that_exclude_a_request(fields):
    assert not can_go_on(ApiKind.CHAT, CHAT | fields)
