"""The engines' HTTP endpoints over aiohttp. Prompts appear in no log and no error message."""

import asyncio
import contextlib
import datetime as dt
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable

import orjson
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from promptgroup_contract.names import HEADER_RANK, HEADER_WARMUP
from promptgroup_local.engine import protocol, tls
from promptgroup_local.engine.adapters.loaded import AdapterRefusedError, LoadedAdapters, SglangAdapters
from promptgroup_local.engine.agent_apis import AgentApis
from promptgroup_local.engine.core import Ranks, Token
from promptgroup_local.engine.flags import Flags, Knobs, Speech
from promptgroup_local.engine.metrics.page import Source
from promptgroup_local.engine.protocol import ApiError, Completion, Envelope, Usage
from promptgroup_local.engine.tokenizer import NewText, detokenize

VERSION = "0.32.0+standin"
"""The vLLM release whose API this is, marked as no vLLM."""

MAX_BODY = 32 * 1024 * 1024
"""Bytes of a request body: 100 times the longest prompt of a 128k-token model in plain text."""

DYING_SECONDS = 12.0
"""Seconds from the death of a rank to that of the process: a stream of vLLM was observed to hang so long."""
DRAIN_SECONDS = 5.0
"""Longest time for running requests to end once the server stops."""

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def application(
    flags: Flags,
    knobs: Knobs,
    *,
    dev_mode: bool = False,
    died: asyncio.Event | None = None,
    loads_adapters: bool = False,
) -> web.Application:
    """The engine as an aiohttp application.

    Args:
        flags: flags of its command line.
        knobs: the stand-in's own settings.
        dev_mode: whether it has the endpoints of vLLM with VLLM_SERVER_DEV_MODE=1, and a way to let a rank die.
        died: set when the process would end because a rank has died.
        loads_adapters: whether it has the endpoints of vLLM with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True.

    Raises:
        AdapterRefusedError: an adapter of the command line cannot be loaded.
    """
    server = _Server(flags, knobs, died or asyncio.Event())
    app = web.Application(client_max_size=MAX_BODY, middlewares=[server.counted, server.errors])
    app.cleanup_ctx.append(server.stepping)
    app.on_shutdown.append(server.stopping)
    app.add_routes(
        [
            web.post("/v1/chat/completions", server.chat_completions),
            web.post("/v1/completions", server.completions),
            web.get("/v1/models", server.models),
            web.get("/health", server.health),
        ]
    )
    agents = server.agents
    app.add_routes(agents.responses_routes())
    if dev_mode:
        app.add_routes([web.post("/standin/kill_rank/{rank}", server.kill_rank)])
    if flags.speech is not Speech.SGLANG:
        app.add_routes([web.get("/version", server.version)])
    if flags.speech is not Speech.TENSORRT_LLM:
        app.add_routes(agents.messages_routes())
    if loads_adapters and flags.max_adapters:
        app.add_routes(
            [
                web.post("/v1/load_lora_adapter", server.load_adapter),
                web.post("/v1/unload_lora_adapter", server.unload_adapter),
            ]
        )
    match flags.speech:
        case Speech.VLLM:
            app.add_routes(
                [
                    web.post("/tokenize", server.tokenize),
                    web.post("/detokenize", server.detokenize),
                    web.get("/load", server.load),
                    web.get("/metrics", server.metrics),
                ]
            )
            if dev_mode:
                app.add_routes([web.post("/reset_prefix_cache", server.reset_prefix_cache)])
        case Speech.SGLANG:
            app.add_routes(
                [
                    web.post("/tokenize", server.tokenize),
                    web.post("/detokenize", server.detokenize),
                    web.get("/ready", server.health),
                    web.get("/server_info", server.server_info),
                    web.get("/flush_cache", server.flush_cache),
                    web.post("/flush_cache", server.flush_cache),
                ]
            )
            if flags.max_adapters:
                app.add_routes(
                    [
                        web.post("/load_lora_adapter", server.load_adapter),
                        web.post("/unload_lora_adapter", server.unload_adapter),
                    ]
                )
            if flags.metrics:
                app.add_routes([web.get("/metrics", server.metrics)])
        case Speech.TENSORRT_LLM:
            if flags.metrics:
                app.add_routes([web.get("/prometheus/metrics", server.metrics)])
    return app


@contextlib.asynccontextmanager
async def serving(
    flags: Flags,
    knobs: Knobs,
    *,
    dev_mode: bool = False,
    died: asyncio.Event | None = None,
    loads_adapters: bool = False,
) -> AsyncIterator[str]:
    """Serve on the host and port of the flags (0 for a free one) while the context lasts; gives the base URL.

    At its end the port closes at once. vLLM aborts running requests after --shutdown-timeout, with an answer that looks
    complete (`finish_reason: abort`, then `[DONE]`); the requests of other engines have DRAIN_SECONDS to end.

    Raises:
        OSError: the port cannot be bound, or the certificate cannot be used.
    """
    # A handler that is cancelled when its client leaves frees the request's blocks.
    runner = web.AppRunner(
        application(flags, knobs, dev_mode=dev_mode, died=died, loads_adapters=loads_adapters),
        access_log=None,
        handler_cancellation=True,
        shutdown_timeout=DRAIN_SECONDS + flags.shutdown_timeout,
    )
    await runner.setup()
    try:
        async with tls.context(flags) as served:
            await web.TCPSite(runner, flags.host, flags.port, ssl_context=served).start()
            host, port = runner.addresses[0][:2]
            yield f"{'http' if served is None else 'https'}://{host}:{port}"
    finally:
        await runner.cleanup()


class _Server:
    def __init__(self, flags: Flags, knobs: Knobs, died: asyncio.Event) -> None:
        self._flags = flags
        self._engine = Ranks(flags, knobs)
        self._died = died
        self._dying = DYING_SECONDS * knobs.time_scale
        self._adapters: LoadedAdapters | SglangAdapters = (
            SglangAdapters(flags.served_names[0], flags.adapters, flags.loaded_adapters)
            if flags.speech is Speech.SGLANG
            else LoadedAdapters(flags.adapters)
        )
        self._model = protocol.Model(
            flags.served_names, flags.max_model_len, knobs.max_tokens, flags.speech, self._adapters.requested
        )
        self._error_rate = knobs.error_rate
        self._errors_due = 0.0
        self._started = _unix_time()
        self.agents = AgentApis(self._engine, self._model, self._usage)

    async def stepping(self, _: web.Application) -> AsyncIterator[None]:
        """Run the engine for the life of the application."""
        async with asyncio.TaskGroup() as tasks:
            runs = [tasks.create_task(item.run()) for item in self._engine.all]
            yield
            for run in runs:
                run.cancel()

    async def stopping(self, _: web.Application) -> None:
        """End running requests as the engine does when it is stopped."""
        if self._flags.speech is Speech.VLLM:
            asyncio.get_running_loop().call_later(self._flags.shutdown_timeout, self._engine.abort)

    @web.middleware
    async def counted(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Count a request in the metrics until the end of its answer."""
        metrics = self._engine.all[0].metrics  # of the server: it names no rank
        metrics.entered(request.method, request.path)
        try:
            return await handler(request)
        finally:
            metrics.left(request.method, request.path)

    @web.middleware
    async def errors(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Answer errors as the engine does."""
        try:
            return await handler(request)
        except ApiError as error:
            return self._refused(error, request.path)
        except web.HTTPRequestEntityTooLarge:
            return self._refused(ApiError(413, f"the body is larger than {MAX_BODY} bytes"), request.path)
        except web.HTTPException as error:
            if error.status in {404, 405}:  # as FastAPI says it of a path that vLLM, SGLang or TensorRT-LLM do not have
                return _json({"detail": error.reason}, error.status)
            return self._refused(ApiError(error.status, error.reason), request.path)

    def _refused(self, error: ApiError, path: str) -> web.Response:
        flat = self._flags.speech is Speech.SGLANG and path != "/v1/responses"
        return _json(error.flat_body() if flat else error.body(), error.status)

    async def chat_completions(self, request: web.Request) -> web.StreamResponse:
        return await self._complete(request, protocol.chat_completion(await _body(request), self._model), chat=True)

    async def completions(self, request: web.Request) -> web.StreamResponse:
        return await self._complete(request, protocol.text_completion(await _body(request), self._model), chat=False)

    async def models(self, _: web.Request) -> web.Response:
        owner = "sglang" if self._flags.speech is Speech.SGLANG else "vllm"
        card = {"object": "model", "owned_by": owner, "root": self._flags.model, "parent": None}
        limits = {"created": self._started, "max_model_len": self._flags.max_model_len}
        data = [{"id": name, **card, **limits} for name in self._model.names]
        of_adapter = {**card, "parent": self._model.names[0], **limits, "max_model_len": None}
        data += [{**of_adapter, "id": item.name, "root": item.path} for item in self._adapters.by_name.values()]
        return _json({"object": "list", "data": data})

    async def load_adapter(self, request: web.Request) -> web.Response:
        body = await _body(request)
        try:
            if isinstance(self._adapters, SglangAdapters):
                self._adapters.load(body.get("lora_name"), body.get("lora_path"))
                return self._updated("")
            self._adapters.load(body.get("lora_name"), body.get("lora_path"), inplace=body.get("load_inplace") is True)
        except AdapterRefusedError as error:
            return self._not_updated(error)
        return web.Response(text=f"Success: LoRA adapter '{body['lora_name']}' added successfully.")

    async def unload_adapter(self, request: web.Request) -> web.Response:
        body = await _body(request)
        try:
            self._adapters.unload(body.get("lora_name"))
        except AdapterRefusedError as error:
            return self._not_updated(error)
        if isinstance(self._adapters, SglangAdapters):
            return self._updated("")
        return web.Response(text=f"Success: LoRA adapter '{body['lora_name']}' removed successfully.")

    def _not_updated(self, error: AdapterRefusedError) -> web.Response:
        if isinstance(self._adapters, SglangAdapters):
            return self._updated(str(error))
        raise ApiError(error.status, str(error)) from error

    def _updated(self, error: str) -> web.Response:
        """Return SGLang's answer to a change of its adapters, with the error if there was one."""
        loaded = {name: adapter.path for name, adapter in self._adapters.by_name.items()}
        answer = {"success": not error, "error_message": error, "loaded_adapters": loaded}
        return _json(answer, 400 if error else 200)

    async def tokenize(self, request: web.Request) -> web.Response:
        tokens = protocol.tokenization(await _body(request), self._model)
        limit = self._flags.max_model_len
        return _json({"count": len(tokens), "max_model_len": limit, "tokens": tokens, "token_strs": None})

    async def detokenize(self, request: web.Request) -> web.Response:
        tokens = protocol.detokenization(await _body(request), self._model)
        try:
            field = "text" if self._flags.speech is Speech.SGLANG else "prompt"
            return _json({field: detokenize(tokens)})
        except ValueError as error:
            raise ApiError(400, str(error), "tokens") from error

    async def health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def version(self, _: web.Request) -> web.Response:
        return _json({"version": VERSION})

    async def load(self, _: web.Request) -> web.Response:
        return _json({"server_load": self._engine.load})

    async def metrics(self, _: web.Request) -> web.Response:
        text = generate_latest(self._engine.page)
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def reset_prefix_cache(self, _: web.Request) -> web.Response:
        return _json({"success": self._engine.reset_prefix_cache()})

    async def kill_rank(self, request: web.Request) -> web.Response:
        self._engine.kill(int(request.match_info["rank"]))
        asyncio.get_running_loop().call_later(self._dying, self._died.set)
        return web.Response()

    async def server_info(self, _: web.Request) -> web.Response:
        flags = self._flags
        settings = {"model_path": flags.model, "page_size": flags.block_size, "version": VERSION}
        return _json(settings | {"disable_radix_cache": not flags.prefix_caching})

    async def flush_cache(self, _: web.Request) -> web.Response:
        if self._engine.reset_prefix_cache():
            return web.Response(text="Cache flushed.\n")
        return web.Response(text="Flush cache failed.\n", status=400)

    async def _complete(self, request: web.Request, completion: Completion, *, chat: bool) -> web.StreamResponse:
        self._fail_on_purpose()
        source = Source.WARMUP if HEADER_WARMUP in request.headers else Source.CLIENT
        number = request.headers.get("x-request-id") or uuid.uuid4().hex
        kind = "chatcmpl-" if chat else "cmpl-"
        id_ = number if self._flags.speech is Speech.SGLANG else kind + number
        envelope = Envelope(id_, _unix_time(), completion.model, chat, completion.tool)
        engine = self._engine.chosen(request.headers.get(HEADER_RANK))
        async with contextlib.aclosing(engine.generate(completion, source)) as tokens:
            if completion.stream:
                return await self._stream(request, completion, envelope, tokens)
            count, words, text = 0, "", NewText(completion.prompt.tokens)
            async for token in tokens:
                count += len(token.numbers)
                words += text.add(token.numbers)
                if token.finish is not None:
                    usage = self._usage(completion, count, token)
                    return _json(envelope.whole(words, token.finish, usage))
        raise ApiError(500, "the engine stopped before the answer ended")

    async def _stream(
        self, request: web.Request, completion: Completion, envelope: Envelope, tokens: AsyncIterator[Token]
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        count, text = 0, NewText(completion.prompt.tokens)
        started = False
        async for token in tokens:
            events, ids = b"", _ids(completion, token, chat=envelope.chat, first=not started)
            prompt = completion.prompt.tokens if completion.token_ids else None
            if not started and (opening := envelope.opening(prompt)) is not None:
                events = _event(opening)
            started = True
            count += len(token.numbers)
            apart = self._flags.speech is Speech.SGLANG and not envelope.tool  # the end is an event of its own
            events += _event(envelope.piece(text.add(token.numbers), None if apart else token.finish, ids))
            if apart and token.finish is not None:
                events += _event(envelope.ending(token.finish))
            if token.finish is not None:
                if completion.include_usage:
                    events += _event(envelope.closing(self._usage(completion, count, token)))
                events += b"data: [DONE]\n\n"
            await response.write(events)
        await response.write_eof()
        return response

    def _usage(self, completion: Completion, produced: int, last: Token) -> Usage:
        cached = last.cached if self._flags.prompt_tokens_details else None
        return Usage(len(completion.prompt.tokens), produced, cached)

    def _fail_on_purpose(self) -> None:
        self._errors_due += self._error_rate
        if self._errors_due >= 1:
            self._errors_due -= 1
            raise ApiError(500, "failed on purpose: STANDIN_ERROR_RATE is set")


def _ids(completion: Completion, token: Token, *, chat: bool, first: bool) -> protocol.Json:
    """Return the ids of a choice's tokens, where requested; those of a chat's prompt are outside the choice."""
    if not completion.token_ids:
        return {}
    ids: protocol.Json = {"token_ids": token.numbers}
    return ids if chat or not first else ids | {"prompt_token_ids": completion.prompt.tokens}


async def _body(request: web.Request) -> protocol.Json:
    return protocol.decode(request.content_type, await request.read())


def _json(body: protocol.Json, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")


def _event(body: protocol.Json) -> bytes:
    return b"data: " + orjson.dumps(body) + b"\n\n"


def _unix_time() -> int:
    return int(dt.datetime.now(dt.UTC).timestamp())
