import pytest

from promptgroup_local.engine.answer import Finish
from promptgroup_local.engine.protocol import (
    ApiError,
    Envelope,
    Json,
    Model,
    Usage,
    chat_completion,
    decode,
    detokenization,
    text_completion,
    tokenization,
)

MODEL = Model(("m", "alias"), max_model_len=100, default_max_tokens=16)
CHAT: Json = {"messages": [{"role": "user", "content": "hi"}]}


def test_a_chat_request_is_read_with_its_defaults() -> None:
    asked = chat_completion(CHAT, MODEL)
    assert (asked.model, asked.max_tokens, asked.salt) == ("m", 16, "")
    assert (asked.stream, asked.include_usage, asked.ignore_eos) == (False, False, False)


def test_a_chat_request_says_what_it_wants() -> None:
    options: Json = {"stream": True, "stream_options": {"include_usage": True}, "cache_salt": "tenant", "n": 3}
    asked = chat_completion(CHAT | options | {"model": "alias", "max_tokens": 3, "max_completion_tokens": 5}, MODEL)
    assert (asked.model, asked.max_tokens, asked.salt, asked.stream, asked.include_usage) == (
        "alias",
        5,
        "tenant",
        True,
        True,
    )


def test_an_answer_without_a_limit_ends_with_the_context() -> None:
    assert text_completion({"prompt": "x" * 4 * 90}, MODEL).max_tokens == 9


@pytest.mark.parametrize("prompt", ["abcd", ["abcd"]])
def test_a_text_prompt_is_a_string_or_a_list_of_one(prompt: object) -> None:
    assert len(text_completion({"prompt": prompt}, MODEL).prompt.tokens) == 2


@pytest.mark.parametrize("prompt", [[1, 2, 3], [[1, 2, 3]]])
def test_a_text_prompt_may_be_tokens(prompt: object) -> None:
    assert text_completion({"prompt": prompt}, MODEL).prompt.tokens == (1, 2, 3)


@pytest.mark.parametrize(
    ("change", "status", "param"),
    [
        ({"model": "other"}, 404, "model"),
        ({"model": 3}, 400, "model"),
        ({"messages": None}, 400, "messages"),
        ({"messages": []}, 400, "messages"),
        ({"messages": "hi"}, 400, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, 400, "messages"),
        ({"messages": [{"role": "user", "content": "x" * 400}]}, 400, "input_tokens"),
        ({"tools": {}}, 400, "tools"),
        ({"max_tokens": 0}, 400, "max_tokens"),
        ({"max_tokens": True}, 400, "max_tokens"),
        ({"max_completion_tokens": 100}, 400, "max_completion_tokens"),
        ({"stream": "yes"}, 400, "stream"),
        ({"stream_options": {}}, 400, "stream_options"),
        ({"stream": True, "stream_options": 1}, 400, "stream_options"),
        ({"cache_salt": ""}, 400, "cache_salt"),
        ({"cache_salt": 7}, 400, "cache_salt"),
        ({"cache_salt": "x" * 129}, 400, "cache_salt"),
        *(({"cache_salt": f"a{character}b"}, 400, "cache_salt") for character in "@/\\\0"),
    ],
)
def test_a_request_that_cannot_be_served_names_the_field(change: Json, status: int, param: str) -> None:
    with pytest.raises(ApiError) as error:
        chat_completion(CHAT | change, MODEL)
    assert (error.value.status, error.value.param) == (status, param)
    assert str(error.value)


@pytest.mark.parametrize("prompt", [None, 3, [], ["a", "b"], [1, "a"], [1, -1], [True], [[1], [2]], [[]]])
def test_a_prompt_that_is_none_is_refused(prompt: object) -> None:
    with pytest.raises(ApiError) as error:
        text_completion({"prompt": prompt}, MODEL)
    assert (error.value.status, error.value.param) == (400, "prompt")


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'"x"', b"\xff"])
def test_a_body_that_is_no_json_object_is_refused(data: bytes) -> None:
    with pytest.raises(ApiError, match="the body is"):
        decode("application/json", data)


def test_a_body_of_another_type_is_refused() -> None:
    with pytest.raises(ApiError, match="expected application/json"):
        decode("text/plain", b"{}")


def test_an_error_has_the_form_of_vllm() -> None:
    assert ApiError(404, "gone", "model").body() == {
        "error": {"message": "gone", "type": "NotFoundError", "param": "model", "code": 404}
    }


def test_tokens_of_a_chat_are_those_of_its_completion() -> None:
    assert tokenization(CHAT, MODEL) == chat_completion(CHAT, MODEL).prompt.tokens
    assert tokenization(CHAT | {"add_generation_prompt": False}, MODEL) == tokenization(CHAT, MODEL)[:-1]
    assert detokenization({"tokens": [300]}, MODEL) == [300]
    with pytest.raises(ApiError, match="tokens is no list of tokens"):
        detokenization({"tokens": "x"}, MODEL)


def test_usage_names_cached_tokens_only_where_they_are_reported() -> None:
    assert "prompt_tokens_details" not in Usage(5, 2, None).body()
    assert Usage(5, 2, 0).body() == {
        "prompt_tokens": 5,
        "total_tokens": 7,
        "completion_tokens": 2,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def test_bodies_have_the_shapes_of_both_apis() -> None:
    chat, text = (Envelope("id", 1, "m", chat=kind) for kind in (True, False))
    whole = chat.whole("hi", Finish.STOP, Usage(1, 1, None))
    assert whole["object"] == "chat.completion"
    assert whole["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "hi"},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    assert text.whole("hi", Finish.LENGTH, Usage(1, 1, None))["choices"] == [
        {"index": 0, "text": "hi", "logprobs": None, "finish_reason": "length"}
    ]
    assert text.opening() is None
    assert chat.piece("x", None)["object"] == "chat.completion.chunk"
    closing = chat.closing(Usage(1, 1, 1))
    assert closing["choices"] == []
    assert "usage" in closing
