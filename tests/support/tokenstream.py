"""An engine that streams tokens as vLLM does, by the stand-in's own words, and stops where a test tells it."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

import orjson

from promptgroup_local.engine.answer import answer
from promptgroup_local.engine.chat import Prompt
from promptgroup_local.engine.protocol import Completion, Envelope, Json, Model, Usage, chat_completion, text_completion
from promptgroup_local.engine.tokenizer import NewText, Special
from support.fakeengine import Behaviour, Call

MODEL = Model(("llama",), max_model_len=4000, default_max_tokens=4000)
MODELS = {"object": "list", "data": [{"id": "llama", "max_model_len": MODEL.max_model_len}]}
DONE = b"data: [DONE]\n\n"
Ending = Callable[[Call], None]


def event(document: Json) -> bytes:
    return b"data: " + orjson.dumps(document) + b"\n\n"


def asked(call: Call) -> Completion:
    """What a call asks of a model whose answers have words of several scripts."""
    is_chat = call.request.head.path == b"/v1/chat/completions"
    completion = (chat_completion if is_chat else text_completion)(call.json, MODEL)
    if is_chat or not isinstance(call.json["prompt"], str):
        return completion
    # the stand-in goes on behind the marker of an answer alone
    return replace(completion, prompt=Prompt((*completion.prompt.tokens, Special.ASSISTANT)))


def events(call: Call, *, at_once: int = 1) -> list[bytes]:
    """Return the events of a streamed answer, `at_once` tokens in each."""
    completion, is_chat = asked(call), call.request.head.path == b"/v1/chat/completions"
    envelope = Envelope(f"{'chatcmpl' if is_chat else 'cmpl'}-{id(call)}", 1, completion.model, is_chat)
    prompt = completion.prompt.tokens
    said = answer(prompt, completion.max_tokens, ignore_eos=completion.ignore_eos, scripts=True)
    text, told = NewText(prompt), []
    if (opening := envelope.opening(prompt if completion.token_ids else None)) is not None:
        told.append(event(opening))
    for start in range(0, len(said.tokens), at_once):
        tokens = said.tokens[start : start + at_once]
        ids = {"token_ids": tokens} if completion.token_ids else {}
        if ids and not is_chat and not start:
            ids["prompt_token_ids"] = prompt
        finish = said.finish if start + at_once >= len(said.tokens) else None
        told.append(event(envelope.piece(text.add(tokens), finish, ids)))
    if completion.include_usage:
        told.append(event(envelope.closing(Usage(len(prompt), len(said.tokens), len(prompt) // 2))))
    return [*told, DONE]


def streams(*, at_once: int = 1) -> Behaviour:
    """An engine that answers in full."""

    async def behave(call: Call) -> None:
        if call.request.head.method == b"GET":
            call.answer(orjson.dumps(MODELS))
            return
        call.begin_stream()
        for told in events(call, at_once=at_once):
            call.chunk(told)
        call.send(b"0\r\n\r\n")

    return behave


def breaks_off(after: int, end: Ending = Call.reset, *, at_once: int = 1) -> Behaviour:
    """An engine that is lost after so many events."""

    async def behave(call: Call) -> None:
        call.begin_stream()
        for told in events(call, at_once=at_once)[:after]:
            call.chunk(told)
        await call.writer.drain()
        await asyncio.sleep(0.02)  # what was sent is to arrive before the connection ends
        end(call)

    return behave


def data_of(body: bytes) -> list[Json]:
    """Return the documents of a stream's events."""
    lines = [line[len(b"data: ") :] for line in body.split(b"\n") if line.startswith(b"data: ")]
    return [orjson.loads(line) for line in lines if line != b"[DONE]"]


def text_of(documents: Sequence[Json]) -> str:
    """Return the text that a client gets of a stream."""
    choices = [choice for document in documents for choice in document.get("choices", ())]
    return "".join(choice["delta"].get("content") or "" if "delta" in choice else choice["text"] for choice in choices)
