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
"""Longest wait for a scrape that runs when the process ends."""


class PortError(Exception):
    """The port cannot be listened on; the message names the flag."""


class GroupCollector(Collector):
    """The series of all groups.

    Args:
        leads: whether this process does.
        groups: as they stand.
        looks: what the latest pass over each found.
    """

    def __init__(
        self,
        leads: Callable[[], bool],
        groups: Callable[[], list[Manifest]],
        looks: Callable[[], Mapping[Key, PassSummary]],
    ) -> None:
        self._leads = leads
        self._groups = groups
        self._looks = looks

    def collect(self) -> Iterator[Metric]:
        """Read them."""
        return families(self._groups() if self._leads() else (), self._looks())


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

    async def metrics(request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(",".join(request.headers.getall(hdrs.ACCEPT, [])))
        body = await asyncio.to_thread(encode, registry)  # 0.3 s of a thousand groups: no watch waits
        response = web.Response(body=body, headers={hdrs.CONTENT_TYPE: content_type})
        response.enable_compression()
        return response

    app = web.Application()
    app.router.add_get(PATH, metrics)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=STOP_SECONDS)
    await runner.setup()
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
        await runner.cleanup()
