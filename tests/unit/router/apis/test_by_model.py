import contextlib

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_contract.table import Prompt
from promptgroup_router.apis.by_model import (
    NAME_BYTES,
    PART_HEAD_BYTES,
    PARTS,
    as_received,
    parse_form,
    parse_json,
    parse_passed,
    parse_tokenize,
    renamed,
    with_model,
)
from promptgroup_router.apis.request import ApiKind, parse, preamble
from promptgroup_router.base.errors import ApiError

PROMPT = preamble(Prompt("Sys", ""), "m")


def part(name: str, value: bytes, more: str = "") -> bytes:
    return f'--XX\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'.encode() + value + b"\r\n"


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + b"--XX--\r\n"


SOUND = part("file", b"RIFF\r\n\r\n--X\r\nname=model", '; filename="model"\r\nContent-Type: audio/wav')


def test_the_model_of_a_json_body():
    body = orjson.dumps({"model": "bge", "input": ["Once"]})
    ask = parse_json(body)
    assert (ask.kind, ask.model, ask.text, ask.messages) == (ApiKind.BY_MODEL, "bge", 0, ())
    assert as_received(ask) is body
    assert orjson.loads(with_model(ask, PROMPT, "real")) == {"model": "real", "input": ["Once"]}


def test_a_chat_is_tokenized_with_its_prompt_and_a_text_without():
    chat = parse_tokenize(orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "Hi"}]}))
    assert chat.kind is ApiKind.CHAT
    assert parse_tokenize(b'{"model": "m", "prompt": "Hi"}').kind is ApiKind.BY_MODEL


@pytest.mark.parametrize(
    "body",
    [
        form(part("model", b"whisper"), SOUND),
        form(SOUND, part("language", b"de"), part("model", b"whisper")),
        form(
            SOUND, b"--XX\r\ncontent-type: text/plain\r\nCONTENT-DISPOSITION: form-data; name=model\r\n\r\nwhisper\r\n"
        ),
    ],
)
def test_the_model_of_a_form(body):
    ask = parse_form(body)
    assert (ask.kind, ask.model) == (ApiKind.FORM, "whisper")
    assert with_model(ask, PROMPT, "real") == body.replace(b"\r\n\r\nwhisper\r\n", b"\r\n\r\nreal\r\n")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"--\r\n\r\n\r\n",
        b"--" + b"X" * 100 + b"\r\n",
        form(SOUND),
        form(part("model", b"")),
        form(part("model", b"x" * (NAME_BYTES + 1))),
        form(part("xmodel", b"whisper")),
        form(part("x", b"", ";" + "x" * PART_HEAD_BYTES), part("model", b"whisper")),
        form(*[part("x", b"1")] * PARTS, part("model", b"whisper")),
        part("model", b"whisper"),
    ],
)
def test_what_is_no_form_or_names_no_model(body):
    with pytest.raises(ApiError) as caught:
        parse_form(body)
    assert caught.value.status == 400


@given(
    st.lists(st.sampled_from([b"--XX", b"\r\n", b"\r\n\r\n", b"name=model", b"Content-Disposition: form-data;", b"x"]))
)
def test_any_bytes_are_read(pieces):
    body = b"".join(pieces)
    with contextlib.suppress(ApiError):
        assert parse_form(body).model.encode() in body


def test_a_request_of_any_api_is_renamed():
    chat = parse(ApiKind.CHAT, orjson.dumps({"model": "gpt", "messages": [{"role": "user", "content": "Hi"}], "n": 1}))
    sent = renamed(chat, "llama")
    assert orjson.loads(sent.raw) == sent.doc == chat.doc | {"model": "llama"}
    assert (chat.doc["model"], sent.messages, sent.model) == ("gpt", chat.messages, "gpt")
    body = form(part("model", b"gpt"), SOUND)
    assert renamed(parse_form(body), "llama").raw == form(part("model", b"llama"), SOUND)
    unnamed = parse_passed(b"{}")
    assert renamed(unnamed, "llama") is unnamed


XARGS = b'{"kv_transfer_params": "x", "top_a": 0.5}'


@pytest.mark.parametrize(
    "spelled",
    [
        b"Content-Disposition: form-data; name*=utf-8''vllm%5Fxargs",
        b'Content-Disposition: form-data; name*0="vllm_"; name*1="xargs"',
        b'Content-Disposition: form-data; name="vllm\\_xargs"',
        b'Content-Disposition: form-data; name="a"; name="vllm_xargs"',
        b'Content-Disposition: form-data; name="a"\r\nContent-Disposition: form-data; name="vllm_xargs"',
        b'Content-Disposition: form-data; name="a"\r\n ; name="vllm_xargs"',
        b'Content-Disposition: form-data; name="a"\nContent-Disposition: form-data; name="vllm_xargs"',
        b'Content-Disposition: form-data; filename="\\"; name="vllm_xargs"; x="',
        b'Content-Disposition: form-data; name="vllm+AF8-xargs"',
        b'Content-Disposition: form-data; name=" vllm_xargs"',
    ],
)
def test_a_part_that_another_reader_may_call_otherwise_is_refused(spelled):
    with pytest.raises(ApiError, match="not named plainly"):
        parse_form(form(part("model", b"whisper"), b"--XX\r\n" + spelled + b"\r\n\r\n" + XARGS + b"\r\n"))


@pytest.mark.parametrize(
    "body",
    [
        form(part("model", b"whisper"), part("model", b"other")),
        form(part("model", b"whisper"), part("vllm_xargs", b"{}"), part("vllm_xargs", XARGS)),
        form(part("model", b"whisper"), part("vllm_xargs-", XARGS)),
        form(part("model", b"whisper"), part("vllm_xargs", b'{"kv_transfer_params": NaN}')),
        form(part("model", b"whisper"), part("vllm_xargs", b"{}" + b" " * 65536)),
        part("model", b"whisper") + b"--XXX\r\n",
        part("model", b"whisper") + b"--XX\n--XX--",
    ],
)
def test_a_form_of_two_readings_is_refused(body):
    with pytest.raises(ApiError) as caught:
        parse_form(body)
    assert caught.value.status == 400


def test_fields_of_engines_in_a_form_are_known():
    body = form(part("model", b"whisper"), part("vllm_xargs", XARGS), part("Cache_Salt", b"a"), SOUND)
    assert parse_form(body).doc == {"model": "whisper", "vllm_xargs": orjson.loads(XARGS), "cache_salt": True}
