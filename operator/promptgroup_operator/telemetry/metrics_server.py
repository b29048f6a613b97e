"""The port that Prometheus scrapes. Values are computed at the scrape only.

Only the leader has series about groups, so that none is there twice, or stale. They are read at the scrape, so the
series of a deleted group end with it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager

from aiohttp import hdrs, web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from promptgroup_operator.telemetry.collector import PassSummary, families
from promptgroup_operator.world.snapshot import Key, Manifest

PATH = "/metrics"
STOP_SECONDS = 1.0
"""Maximum wait in seconds for a running scrape when the process ends."""
OPEN_SECONDS = 30.0
"""Maximum duration of a connection in seconds, which serves one scrape: Prometheus' own limit is 10 s by default."""
CONNECTIONS = 64
"""Maximum number of concurrent connections; a cluster has two or three scrapers."""
LOOK_SECONDS = 1.0
"""Time in seconds between two checks of the connections."""
PAGE_SECONDS = 1.0
"""Time in seconds for which a page is cached: for a thousand groups it takes 0.3 s of CPU, and any client may ask."""
FORMS = 8
"""Maximum number of cached formats of the page, which clients select."""


class PortError(Exception):
    """The port cannot be listened on; the message names the flag."""


class GroupCollector(Collector):
    """The series of all groups.

    Args:
        leads: returns True if this process is the leader.
        groups: returns the current groups.
        looks: returns the findings of the latest pass over each group.
        gpu_hour_price: the price of a GPU's hour; 0 if unknown.
    """

    def __init__(
        self,
        leads: Callable[[], bool],
        groups: Callable[[], list[Manifest]],
        looks: Callable[[], Mapping[Key, PassSummary]],
        gpu_hour_price: float = 0.0,
    ) -> None:
        self._leads = leads
        self._groups = groups
        self._looks = looks
        self._gpu_hour_price = gpu_hour_price

    def collect(self) -> Iterator[Metric]:
        """Read them."""
        return families(self._groups() if self._leads() else (), self._looks(), self._gpu_hour_price)


@asynccontextmanager
async def serving(registry: CollectorRegistry, host: str, port: int) -> AsyncIterator[None]:
    """Serve the registry's metrics.

    Args:
        registry: what to tell.
        host: address to listen on; empty: every address.
        port: 0: none.

    Raises:
        PortError: another process listens there, or the address is none of this machine.
    """
    if not port:
        yield
        return

    pages = _Pages(registry)

    async def metrics(request: web.Request) -> web.Response:
        content_type, body = await pages.read(",".join(request.headers.getall(hdrs.ACCEPT, [])))
        response = web.Response(body=body, headers={hdrs.CONTENT_TYPE: content_type})
        response.enable_compression()
        response.force_close()
        return response

    app = web.Application()
    app.router.add_get(PATH, metrics)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=STOP_SECONDS)
    await runner.setup()
    loop = asyncio.get_running_loop()
    limits = loop.create_task(_limit(runner, loop.time))
    try:
        try:
            await web.TCPSite(runner, host or None, port).start()
        except OSError as error:
            where = f"{host or 'any address'}, port {port}"
            raise PortError(
                f"--metrics-port: cannot listen on {where} ({error}): give another, or 0 for none"
            ) from error
        yield
    finally:
        limits.cancel()
        await runner.cleanup()


class _Pages:
    """The page in each requested format, generated at most once in PAGE_SECONDS."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._pages: dict[str, tuple[float, bytes]] = {}
        self._making = asyncio.Lock()

    async def read(self, accept: str) -> tuple[str, bytes]:
        """Return the content type and the page for what a client accepts."""
        encode, content_type = choose_encoder(accept)
        async with self._making:
            now = asyncio.get_running_loop().time()
            at, body = self._pages.get(content_type, (float("-inf"), b""))
            if now - at >= PAGE_SECONDS:
                body = await asyncio.to_thread(encode, self._registry)  # in a thread, so that no watch waits
                if len(self._pages) >= FORMS:
                    self._pages.clear()
                self._pages[content_type] = now, body
        return content_type, body


async def _limit(runner: web.AppRunner, clock: Callable[[], float]) -> None:
    """Close connections that are open for too long, and those beyond the most; aiohttp bounds neither."""
    since: dict[web.RequestHandler, float] = {}
    while True:
        now, server = clock(), runner.server
        since = {
            connection: since.get(connection, now) for connection in (server.connections if server is not None else ())
        }
        for age, (request_handler, at) in enumerate(sorted(since.items(), key=lambda item: -item[1])):
            if (now - at >= OPEN_SECONDS or age >= CONNECTIONS) and request_handler.transport is not None:
                request_handler.transport.abort()
        await asyncio.sleep(LOOK_SECONDS)
