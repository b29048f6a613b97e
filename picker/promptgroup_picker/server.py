"""The picker's process: its ports for gateways and health checks, drain. All parts are wired together here."""

import asyncio
import datetime as dt
import logging
import ssl
from collections.abc import Coroutine, Iterator
from functools import partial
from typing import Any

from promptgroup_picker import tls
from promptgroup_picker.extproc.conformance import ConformanceCall, Pool
from promptgroup_picker.extproc.gateway_call import PickerState
from promptgroup_picker.extproc.large_bodies import LargeBodies
from promptgroup_picker.extproc.messages import MAX_BESIDE
from promptgroup_picker.extproc.processing import Processing
from promptgroup_picker.health import CHECK, HealthCheck
from promptgroup_picker.http2.listener import MAX_HELD, GrpcListener
from promptgroup_picker.http2.stream import Call, Stream
from promptgroup_picker.pool import PoolFeed
from promptgroup_picker.settings import PickerSettings
from promptgroup_router.base import build
from promptgroup_router.base.core_settings import ApiServerAddress
from promptgroup_router.base.logs import fields
from promptgroup_router.core import BACKLOG, RoutingCore
from promptgroup_router.feed.certificate_feed import CertificateError, CertificateFeed, CertificateFiles
from promptgroup_router.feed.kube_api import KubeApi
from promptgroup_router.proxy.tls_port import ADDRESS_SHARE, Accepting, Handshakes, TlsPort, copy_of
from promptgroup_router.reading.body_reader import BodyReader
from promptgroup_router.server import serve

log = logging.getLogger("promptgroup.picker")

PROCESS = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
MAX_MESSAGE = 2**22
"""Bytes of one message that a picker takes at least, as gRPC's own servers do."""


class Picker:
    """A picker in the running event loop."""

    def __init__(self, settings: PickerSettings) -> None:
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self.core = core = RoutingCore(
            settings,
            "promptgroup-picker",
            connections=lambda: len(self._gateways.connections),
            tick=self._tick,
        )
        self._large_bodies = LargeBodies(BodyReader())
        self._calls = PickerState(
            core.state,
            core.bodies,
            core.clock,
            max_body=settings.max_body_bytes,
            endpoints=settings.endpoints,
            large_bodies=self._large_bodies,
        )
        self._gateways, self._checks = (
            GrpcListener(
                opener,
                core.clock,
                # a gateway that holds a body sends it whole
                max_message=max(MAX_MESSAGE, settings.max_body_bytes + MAX_BESIDE),
                max_connections=settings.max_connections,
                max_held=held,
            )
            for opener, held in (
                # what is given back to gateways waits as copies of bodies
                (self._open, settings.body_memory_bytes + MAX_HELD),
                (self._open_check, MAX_HELD // 4),
            )
        )
        self._pool = Pool(endpoints=settings.endpoints)
        self._tls: ssl.SSLContext | None = None
        """The certificate that the port for gateways shows; None without TLS."""
        self._certificate: CertificateFeed | None = None
        """Reads the certificate and the authorities again, where files are given."""
        self._servers: list[Accepting] = []
        self.port = 0
        self.health_port = 0

    @property
    def host(self) -> str:
        """The address of all ports."""
        return self._settings.host

    @property
    def admin_port(self) -> int:
        """The port for people and Prometheus, once it is open."""
        return self.core.admin_port

    async def start(self) -> None:
        """Load the copy of the table, follow its source, and listen.

        Raises:
            OSError: a port cannot be bound, or a certificate cannot be read.
        """
        settings = self._settings
        if not settings.plaintext:
            self._begin_tls()
        if not settings.conformance:  # the tests name their endpoints: there is no table
            self.core.load()
        await self.core.listen()
        ports: list[int] = []
        for listener, port, secured in (
            (self._gateways, settings.port, not settings.plaintext),
            (self._checks, settings.health_port, False),
        ):
            bound = await self._loop.create_server(
                listener.accept, settings.host, port, backlog=BACKLOG, start_serving=not secured
            )
            ports.append(bound.sockets[0].getsockname()[1])
            self._servers.append(self._secured(bound) if secured else bound)
        self.port, self.health_port = ports
        self.core.follow(*self._pool_feed(), *([self._certificate.run()] if self._certificate is not None else []))
        about = fields(host=settings.host, port=self.port, admin_port=self.admin_port, **build.about())
        log.info("listening", extra=about)

    def _begin_tls(self) -> None:
        """Read the certificate, or make one.

        Raises:
            OSError: it cannot be used.
        """
        settings = self._settings
        certificate, key = settings.tls_cert_file, settings.tls_key_file
        own = tls.self_signed(dt.datetime.now(dt.UTC))
        files = CertificateFiles(certificate or own, key or own, settings.tls_client_ca)
        failed = partial(self.core.state.metrics.key_errors.add, "certificate")
        self._certificate = CertificateFeed(files, self._renew_tls, failed, protocol=tls.HTTP2)
        try:
            self._tls = self._certificate.load()
        except CertificateError as error:
            raise OSError(str(error)) from None

    async def _renew_tls(self, context: ssl.SSLContext) -> None:
        """Accept with another certificate from here on."""
        self._tls = context

    def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            raise RuntimeError("there is no certificate: call _begin_tls first")
        return self._tls

    def _secured(self, bound: asyncio.Server) -> TlsPort:
        """Accept gateways on the addresses that a server of the loop is bound to, in its place."""
        sockets = [copy_of(socket.fileno()) for socket in bound.sockets]
        bound.close()
        for socket in sockets:
            socket.listen(BACKLOG)
        handshakes = Handshakes(max(1, self._settings.max_connections // ADDRESS_SHARE))
        refused = self.core.state.metrics.handshakes_refused.add
        return TlsPort(sockets, self._gateways.accept, self._tls_context, handshakes, refused)

    async def drain(self) -> None:
        """Report that this picker is draining, have gateways begin no more calls, and let those that are open end."""
        settings = self._settings
        self.core.state.draining = True
        log.info("draining", extra=fields(calls=len(self._calls.open)))
        await asyncio.sleep(settings.drain_delay)
        for server in self._servers:
            server.close()
        self._gateways.drain()
        try:
            async with asyncio.timeout(settings.drain_timeout):
                await self._gateways.wait_closed()
        except TimeoutError:
            log.warning("calls cut at the end of the drain", extra=fields(count=len(self._calls.open)))

    async def stop(self) -> None:
        """End everything at once."""
        for server in self._servers:
            server.close()
        await self.core.stop()
        for listener in (self._gateways, self._checks):
            listener.abort()
            await listener.wait_closed()
        await self._large_bodies.stop()

    def _open(self, path: str, stream: Stream) -> Call | None:
        if path == PROCESS:
            if self._settings.conformance:
                return ConformanceCall(stream, self._pool)
            return Processing(self._calls, stream)
        return self._open_check(path, stream)

    def _pool_feed(self) -> Iterator[Coroutine[Any, Any, None]]:
        settings = self._settings
        if settings.conformance and isinstance(settings.source, ApiServerAddress):
            state, source = self.core.state, settings.source
            read = partial(setattr, state, "loaded", True)
            yield PoolFeed(KubeApi(source), source.namespaces[0], settings.conformance, self._pool, read).run()

    def _open_check(self, path: str, stream: Stream) -> Call | None:
        return HealthCheck(self.core.state, stream) if path == CHECK else None

    def _tick(self, now: float) -> None:
        self._calls.tick(now)
        self._gateways.tick(now)
        self._checks.tick(now)


async def run(settings: PickerSettings) -> int:
    """Serve until SIGTERM or SIGINT, then drain; a second signal ends the drain.

    Returns:
        The exit status.
    """
    return await serve(Picker(settings))
