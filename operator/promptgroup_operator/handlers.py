"""Kopf: watches put keys on the queue, worker threads run passes while this process leads, probes say whether they do.

Only `on.event` is used: a resource without change handlers, timers or daemons gets neither finalizer nor annotation
from Kopf, so GitOps tools see no drift and `kubectl delete` never waits for the operator.
"""

import asyncio
import itertools
import logging
import random
import socket
import threading
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import kopf
from kubernetes import client

from promptgroup_operator.base.errors import ClusterError
from promptgroup_operator.base.settings import Settings
from promptgroup_operator.engines.engine import EngineClient
from promptgroup_operator.kube.api_server import KubeClient, connect
from promptgroup_operator.kube.cluster import Cluster
from promptgroup_operator.kube.leader_election import LeaderElector, Term
from promptgroup_operator.kube.rate_limit import LOGIN_AGAIN, WATCH_AGAIN, PacedWatches, RateLimit
from promptgroup_operator.kube.reflector import SILENT_SECONDS, WATCH_SECONDS, Reflectors
from promptgroup_operator.kube.resync import Resync
from promptgroup_operator.kube.store import KINDS, Store
from promptgroup_operator.kube.work_queue import WorkQueue, backoff
from promptgroup_operator.passes.reconcile import Reconciler
from promptgroup_operator.telemetry import metrics_server
from promptgroup_operator.telemetry.metrics import FAULT, REFUSED, OperatorMetrics
from promptgroup_operator.telemetry.metrics_server import GroupCollector
from promptgroup_operator.world.snapshot import Key
from promptgroup_router.contract import names

logger = logging.getLogger(__name__)

STUCK = timedelta(minutes=5)
"""A pass that runs longer is taken for stuck: every request in it has a limit of seconds."""


class Operator:
    """The process: one queue, its workers, their client, and the Lease that lets them act."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.metrics = OperatorMetrics()
        server = KubeClient(connect(settings), self.metrics.api_requests)
        self._engines = EngineClient()
        self.queue = WorkQueue()
        self.term = Term(until=float("-inf") if settings.lease else float("inf"))
        self.elector = _elector(settings, server, self.term) if settings.lease else None
        stores = {kind: Store(kind, self.queue.add) for kind in KINDS}
        self._reflectors = Reflectors(server, stores, settings.namespaces)
        self.resync = Resync(server, self.queue, stores, settings.namespaces, settings.resync)
        self._reconciler = Reconciler(
            Cluster(server, self.term, stores), self._engines, self.queue, settings, self.metrics
        )
        self.metrics.leader.set_function(lambda: self.term.is_leader)
        self.metrics.queue_depth.set_function(self.queue.depth)
        self.metrics.registry.register(
            GroupCollector(lambda: self.term.is_leader, stores["PromptGroup"].list_all, self._reconciler.summaries)
        )
        self._busy_since: dict[Key, datetime] = {}
        self._workers = [
            threading.Thread(target=self._work, name=f"pass-{i}", daemon=True) for i in range(settings.workers)
        ]

    def start(self) -> None:
        """Start the watches, and the workers that wait for their first lists."""
        self._reflectors.start()
        for worker in self._workers:
            worker.start()
        self.resync.start()
        if self.elector is not None:
            self.elector.start()

    def stop(self) -> None:
        """Write nothing more, let running passes end, and let another process lead; it finds what they leave undone."""
        self.term.close()
        self.queue.close()
        self._reflectors.stop()
        self.resync.stop()
        self._reconciler.close()
        for worker in self._workers:
            worker.join(timeout=5)
        if self.elector is not None:
            self.elector.stop()
        self._engines.close()

    def stuck(self, now: datetime) -> list[Key]:
        """Groups whose pass does not end."""
        return [key for key, since in list(self._busy_since.items()) if now - since > STUCK]

    def connection(self) -> client.Configuration:
        """The client's credentials, read anew: a service account's token changes within the hour."""
        configuration: client.Configuration = connect(self._settings).configuration
        return configuration

    def _work(self) -> None:
        if not self._reflectors.wait(self.queue.closed):
            return
        while (key := self.queue.take()) is not None:
            if self.term.wait():  # who waits to lead waits with its queue full of all that it was told of
                self._pass(key)

    def _pass(self, key: Key) -> None:
        now = datetime.now(UTC)
        self._busy_since[key] = now
        try:
            with self.metrics.passes.time():
                again = self._reconciler.run(key, now)
        except ClusterError as error:
            self.metrics.pass_failures.labels(REFUSED).inc()
            wait = self.queue.failed(key, timedelta(seconds=error.retry_after or 0))
            logger.warning("%s/%s: %s; again in %.1f s", key.namespace, key.name, error, wait.total_seconds())
        except Exception:
            self.metrics.pass_failures.labels(FAULT).inc()
            wait = self.queue.failed(key)
            logger.exception("%s/%s: pass failed; again in %.1f s", key.namespace, key.name, wait.total_seconds())
        else:
            self.queue.done(key, again)
        finally:
            self._busy_since.pop(key, None)


def _elector(settings: Settings, server: KubeClient, term: Term) -> LeaderElector:
    namespace, name = settings.lease.split("/")
    identity = f"{settings.identity or socket.gethostname()}_{uuid.uuid4()}"
    return LeaderElector(server, namespace, name, identity=identity, term=term)


class Backoffs:
    """Waits between two tries of a request, without end: with its own Kopf, and the process, gives up in a minute."""

    def __iter__(self) -> Iterator[float]:
        """Seconds to wait."""
        for failures in itertools.count(1):
            yield backoff(failures, random.random()).total_seconds()  # noqa: S311 - spreads load, guards nothing


def build(settings: Settings) -> tuple[kopf.OperatorRegistry, Operator]:
    """The registry of handlers and the operator that they feed."""
    registry = kopf.OperatorRegistry()
    operator = Operator(settings)
    namespaced = bool(settings.namespaces)

    @kopf.on.startup(registry=registry)
    async def startup(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False
        settings.peering.standalone = True
        settings.watching.server_timeout = WATCH_SECONDS
        settings.watching.client_timeout = WATCH_SECONDS + 30
        settings.watching.connect_timeout = 10
        settings.networking.request_timeout = 30
        settings.watching.inactivity_timeout = SILENT_SECONDS
        settings.networking.connect_timeout = 10
        settings.networking.error_backoffs = Backoffs()
        settings.networking.enforce_retry_after = True
        settings.scanning.disabled = namespaced  # namespaces and CRDs are the cluster's, not a namespace's
        operator.start()

    @kopf.on.cleanup(registry=registry)
    async def cleanup(**_: Any) -> None:
        await asyncio.to_thread(operator.stop)

    watches_pace, login_pace = RateLimit(WATCH_AGAIN), RateLimit(LOGIN_AGAIN)

    @kopf.on.login(registry=registry, retries=None)
    async def login(**_: Any) -> kopf.AiohttpSession:
        await login_pace.wait("login")
        return _session(_connection_info(operator.connection()), PacedWatches(watches_pace))

    @kopf.on.event(names.API_GROUP, names.API_VERSION, names.GROUP_PLURAL, registry=registry)
    async def group_changed(name: str, namespace: str | None, **_: Any) -> None:
        operator.queue.add(Key(namespace or "", name))

    # a probe that fails does so at once: after any other error Kopf would try it again for a minute, and answer nobody
    @kopf.on.probe(id="passes", registry=registry)
    def passes(**_: Any) -> str:
        stuck = operator.stuck(datetime.now(UTC))
        if stuck:
            raise kopf.PermanentError(f"passes do not end: {', '.join(f'{key.namespace}/{key.name}' for key in stuck)}")
        return "passes end"

    @kopf.on.probe(id="watches", registry=registry)
    def watches(**_: Any) -> str:
        if operator.resync.silent:
            raise kopf.PermanentError(f"watches have gone silent: {', '.join(operator.resync.silent)}")
        return "watches tell what happens"

    @kopf.on.probe(id="leads", registry=registry)
    def leads(**_: Any) -> bool:
        return operator.term.is_leader

    @kopf.on.probe(id="leader", registry=registry)
    def leader(**_: Any) -> str:
        return operator.elector.holder if operator.elector is not None else "this process, without a lease"

    return registry, operator


def _connection_info(configuration: client.Configuration) -> kopf.ConnectionInfo:
    token = configuration.get_api_key_with_prefix("authorization") or configuration.get_api_key_with_prefix(
        "BearerToken"
    )
    scheme, _, value = (token or "").rpartition(" ")
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        scheme=scheme or ("Bearer" if value else None),
        token=value or None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
    )


def _session(info: kopf.ConnectionInfo, watches: PacedWatches) -> kopf.AiohttpSession:
    """A session as Kopf would make it, whose watches wait for their turn. Kopf closes it."""
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context()),
        headers=info.as_http_headers(),
        middlewares=(watches,),
    )
    return kopf.AiohttpSession(server=info.server, aiohttp_session=session)


async def run(settings: Settings) -> None:
    """Run until told to stop.

    Raises:
        exporter.PortError: the metrics' port cannot be listened on; nothing was begun.
    """
    registry, operator = build(settings)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    async with metrics_server.serving(operator.metrics.registry, settings.host, settings.metrics_port):
        await kopf.operator(
            registry=registry,
            # names a peer, and there are none; left out, Kopf asks for the name of a user that in an image has none
            identity=socket.gethostname(),  # type: ignore[arg-type]
            standalone=True,
            namespaces=list(settings.namespaces),
            clusterwide=not settings.namespaces,
            liveness_endpoint=f"http://{host}:{settings.health_port}/healthz",
        )
