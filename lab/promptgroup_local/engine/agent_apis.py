"""The endpoints of the APIs that agents speak: Anthropic's Messages and OpenAI's Responses, over aiohttp."""

import asyncio
import contextlib
import datetime as dt
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

import orjson
from aiohttp import web

from promptgroup_contract.names import HEADER_RANK
from promptgroup_local.engine import messages, protocol, responses
from promptgroup_local.engine.answer import Finish
from promptgroup_local.engine.core import Engine, Ranks, Token
from promptgroup_local.engine.flags import Speech
from promptgroup_local.engine.messages import MessageEnvelope
from promptgroup_local.engine.metrics.page import Source
from promptgroup_local.engine.protocol import ApiError, Completion, Json, Model, Usage
from promptgroup_local.engine.responses import ResponseEnvelope
from promptgroup_local.engine.tokenizer import detokenize

STORED = 1000
"""Responses that are stored; the oldest is dropped first. vLLM stores all of them."""


@dataclass(slots=True)
class _Stored:
    """A response, and the messages of the conversation up to it."""

    body: Json
    messages: list[Json]
    task: asyncio.Task[None] | None = None


class AgentApis:
    """Handlers, with the responses that they have stored."""

    def __init__(self, engine: Ranks, model: Model, usage: Callable[[Completion, int, Token], Usage]) -> None:
        self._engine = engine
        self._model = model
        self._usage = usage
        self._stored: OrderedDict[str, _Stored] = OrderedDict()

    def messages_routes(self) -> list[web.RouteDef]:
        """Return the routes of the Messages API."""
        return [
            web.post("/v1/messages", _anthropic(self._messages, self._model.speech)),
            web.post("/v1/messages/count_tokens", _anthropic(self._count_tokens, self._model.speech)),
        ]

    def responses_routes(self) -> list[web.RouteDef]:
        """Return the routes of the Responses API."""
        defs = [web.post("/v1/responses", self._respond)]
        if self._model.speech is Speech.SGLANG:
            return defs  # it stores none unless it is started so
        return [
            *defs,
            web.get("/v1/responses/{id}", self._retrieve),
            web.post("/v1/responses/{id}/cancel", self._cancel),
        ]

    # --- Messages ----------------------------------------------------------------------------------------------

    async def _messages(self, request: web.Request) -> web.StreamResponse:
        body = protocol.decode(request.content_type, await request.read())
        completion = protocol.chat_completion(messages.chat_body(body, self._model.speech), self._model)
        envelope = MessageEnvelope(f"msg_{uuid.uuid4().hex}", completion.model, messages.forced_tool(body))
        engine = self._engine.chosen(request.headers.get(HEADER_RANK))
        async with contextlib.aclosing(engine.generate(completion, Source.CLIENT)) as tokens:
            if not completion.stream:
                text, last, count = await _whole(tokens)
                return _json(envelope.whole(text, last.finish or Finish.ABORT, self._usage(completion, count, last)))
            stream = await _stream(request)
            count, text = 0, ""
            async for token in tokens:
                count += 1
                word = detokenize(token.numbers)
                text += word
                events = envelope.opening(self._usage(completion, 0, token)) if count == 1 else []
                if not envelope.tool:
                    events.append(envelope.piece(word))
                if token.finish is not None:
                    if envelope.tool:
                        events.append(envelope.piece(orjson.dumps({"text": text}).decode()))
                    events += envelope.closing(token.finish, self._usage(completion, count, token))
                await _write(stream, events)
            return stream

    async def _count_tokens(self, request: web.Request) -> web.StreamResponse:
        body = protocol.decode(request.content_type, await request.read())
        tokens = len(protocol.tokenization(messages.chat_body(body, self._model.speech, counts=True), self._model))
        return _json({"input_tokens": tokens, "context_management": {"original_input_tokens": tokens}})

    # --- Responses ---------------------------------------------------------------------------------------------

    async def _respond(self, request: web.Request) -> web.StreamResponse:
        body = protocol.decode(request.content_type, await request.read())
        previous = body.get("previous_response_id")
        if previous is not None and self._model.speech is Speech.SGLANG:
            raise ApiError(
                400, "Response store is disabled: it is on with --enable-response-store.", "previous_response_id"
            )
        before = self._find(previous).messages if isinstance(previous, str) else []
        chat = responses.chat_body(body, before)
        # SGLang's takes the names of adapters, and applies none
        ignores = self._model.speech is Speech.SGLANG
        model = replace(self._model, adapter=lambda _: None) if ignores else self._model
        completion = protocol.chat_completion(chat, model)
        id_ = body.get("request_id") or f"resp_{uuid.uuid4().hex}"
        now = int(dt.datetime.now(dt.UTC).timestamp())
        envelope = ResponseEnvelope(str(id_), now, completion.model, body, responses.forced_tool(body))
        requested = chat["messages"]
        # instructions are not carried over
        value = [item for item in requested if item["role"] != "system"] if isinstance(requested, list) else []
        # vLLM 0.32 does not hand the field on here
        heeded = self._model.speech is Speech.SGLANG
        engine = self._engine.chosen(request.headers.get(HEADER_RANK) if heeded else None)
        if body.get("background"):
            return self._begin(engine, completion, envelope, value)
        async with contextlib.aclosing(engine.generate(completion, Source.CLIENT)) as tokens:
            if not completion.stream:
                text, last, count = await _whole(tokens)
                return _json(self._finish(envelope, value, text, self._usage(completion, count, last), last))
            return await self._stream_response(await _stream(request), completion, envelope, value, tokens)

    async def _stream_response(
        self,
        stream: web.StreamResponse,
        completion: Completion,
        envelope: ResponseEnvelope,
        value: list[Json],
        tokens: AsyncIterator[Token],
    ) -> web.StreamResponse:
        text, number, count = "", 0, 0
        async for token in tokens:
            count += 1
            word = detokenize(token.numbers)
            text += word
            events = envelope.opening() if count == 1 else []
            if not envelope.tool:
                events.append(envelope.piece(word))
            if token.finish is not None:
                usage = self._usage(completion, count, token)
                self._finish(envelope, value, text, usage, token)
                final = _arguments(text) if envelope.tool else text
                events += [envelope.piece(final)] if envelope.tool else []
                events += envelope.closing(_status(token), final, usage)
            await _write(stream, [event | {"sequence_number": number + i} for i, event in enumerate(events)])
            number += len(events)
        return stream

    def _begin(
        self, engine: Engine, completion: Completion, envelope: ResponseEnvelope, value: list[Json]
    ) -> web.Response:
        stored = self._store(envelope, envelope.whole("queued"), value)

        async def run() -> None:
            async with contextlib.aclosing(engine.generate(completion, Source.CLIENT)) as tokens:
                stored.body["status"] = "in_progress"
                text, last, count = await _whole(tokens)
                self._finish(envelope, value, text, self._usage(completion, count, last), last)

        stored.task = asyncio.ensure_future(run())
        return _json(stored.body)

    async def _retrieve(self, request: web.Request) -> web.StreamResponse:
        return _json(self._find(request.match_info["id"]).body)

    async def _cancel(self, request: web.Request) -> web.StreamResponse:
        stored = self._find(request.match_info["id"])
        if stored.body["status"] not in {"queued", "in_progress"}:
            raise ApiError(400, "Cannot cancel a synchronous response.", "response_id")
        if stored.task is not None:
            stored.task.cancel()
        stored.body["status"] = "cancelled"
        return _json(stored.body)

    def _finish(self, envelope: ResponseEnvelope, value: list[Json], text: str, usage: Usage, last: Token) -> Json:
        body = envelope.whole(_status(last), _arguments(text) if envelope.tool else text, usage)
        if envelope.request.get("store") is not False:
            self._store(envelope, body, [*value, *envelope.said(text)])
        return body

    def _store(self, envelope: ResponseEnvelope, body: Json, value: list[Json]) -> _Stored:
        stored = self._stored.get(envelope.id) or _Stored(body, value)
        stored.body, stored.messages = body, value
        self._stored[envelope.id] = stored
        if len(self._stored) > STORED:
            self._stored.popitem(last=False)
        return stored

    def _find(self, response_id: str) -> _Stored:
        stored = self._stored.get(response_id)
        if stored is None:
            raise ApiError(404, f"Response with id '{response_id}' not found.", "response_id")
        return stored


_Handler = Callable[[web.Request], Coroutine[Any, Any, web.StreamResponse]]


def _anthropic(handler: _Handler, speech: Speech) -> _Handler:
    """Return a handler whose errors are in Anthropic's envelope."""

    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except ApiError as error:
            return _json(messages.error_body(error, speech), error.status)

    return handle


async def _whole(tokens: AsyncIterator[Token]) -> tuple[str, Token, int]:
    """Return the text of an answer, its last token and their number."""
    numbers: list[int] = []
    async for token in tokens:
        numbers += token.numbers
        if token.finish is not None:
            return detokenize(numbers), token, len(numbers)
    raise ApiError(500, "the engine stopped before the answer ended")


def _status(last: Token) -> str:
    return "cancelled" if last.finish is Finish.ABORT else "completed"


def _arguments(text: str) -> str:
    return orjson.dumps({"text": text}).decode()


def _json(body: Json, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")


async def _stream(request: web.Request) -> web.StreamResponse:
    stream = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
    stream.enable_chunked_encoding()
    await stream.prepare(request)
    return stream


async def _write(stream: web.StreamResponse, events: list[Json]) -> None:
    lines = (b"event: %b\ndata: %b\n\n" % (str(event["type"]).encode(), orjson.dumps(event)) for event in events)
    await stream.write(b"".join(lines))
