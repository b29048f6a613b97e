"""A server of embeddings as OpenAI defines them, by aiohttp: over HTTP or TLS, with a key, with any model."""

import asyncio
import contextlib
import re
import ssl
import zlib
from array import array
from collections.abc import AsyncIterator, Callable, Sequence

from aiohttp import web

from support.tlsfiles import TlsFiles

Embed = Callable[[Sequence[str]], "list[array[float]]"]
DIMENSIONS = 256


def by_words(texts: Sequence[str]) -> "list[array[float]]":
    """A place for each word: texts are as similar as they have words in common."""
    found = []
    for text in texts:
        vector = array("f", bytes(4 * DIMENSIONS))
        for word in re.findall(r"\w+", text.lower()):
            vector[zlib.crc32(word.encode()) % DIMENSIONS] += 1
        found.append(vector)
    return found


class EmbeddingServer:
    """What was asked, and where it is asked."""

    def __init__(self, embed: Embed, key: str) -> None:
        self.url = ""
        self.asked: list[str] = []
        self.refused = 0
        self.hangs = asyncio.Event()
        """Answers come once it is set."""
        self.hangs.set()
        self._embed, self._key = embed, key

    async def serve(self, request: web.Request) -> web.Response:
        if self._key and request.headers.get("authorization") != f"Bearer {self._key}":
            self.refused += 1
            return web.json_response({"error": {"message": "Unauthorized"}}, status=401)
        doc = await request.json()
        self.asked.append(doc["input"])
        await self.hangs.wait()
        (vector,) = await asyncio.to_thread(self._embed, [doc["input"]])
        data = [{"object": "embedding", "index": 0, "embedding": vector.tolist()}]
        usage = {"prompt_tokens": 5, "total_tokens": 5}
        return web.json_response({"object": "list", "data": data, "model": doc["model"], "usage": usage})


@contextlib.asynccontextmanager
async def embedding_server(
    embed: Embed = by_words, *, key: str = "", tls: TlsFiles | None = None
) -> AsyncIterator[EmbeddingServer]:
    """Serve `/v1/embeddings` on a port of this machine."""
    server = EmbeddingServer(embed, key)
    app = web.Application()
    app.router.add_post("/v1/embeddings", server.serve)
    runner = web.AppRunner(app)
    await runner.setup()
    context = None
    if tls is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(tls.cert, tls.key)
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]
    server.url = f"http{'s' if tls else ''}://127.0.0.1:{port}/v1/embeddings"
    try:
        yield server
    finally:
        server.hangs.set()
        await runner.cleanup()
