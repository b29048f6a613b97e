"""The operator's process: Kopf starts and stops it and serves its probes; worker threads run passes while it leads.

Kopf watches nothing here and has no credentials (docs/development/decisions/0011-what-kopf-is-for.md). It therefore
writes neither finalizers nor annotations: GitOps tools see no drift, and `kubectl delete` never waits for the operator.
"""

import asyncio
import logging
import os
import socket
import threading
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import kopf

from promptgroup_operator.base.errors import ClusterError
from promptgroup_operator.base.settings import Settings
from promptgroup_operator.engines.group_engines import GroupEngines
from promptgroup_operator.kube.api_server import KubeClient, connect
from promptgroup_operator.kube.leader_election import LeaderElector, Term
from promptgroup_operator.kube.read import ClusterReader
from promptgroup_operator.kube.reflector import Reflectors
from promptgroup_operator.kube.resync import Resync
from promptgroup_operator.kube.store import KINDS, Store
from promptgroup_operator.kube.work_queue import WorkQueue
from promptgroup_operator.kube.write import ClusterWriter
from promptgroup_operator.passes.reconcile import Reconciler
from promptgroup_operator.telemetry import metrics_server
from promptgroup_operator.telemetry.metrics import FAULT, REFUSED, OperatorMetrics
from promptgroup_operator.telemetry.metrics_server import GroupCollector
from promptgroup_operator.telemetry.pass_spans import PassSpans
from promptgroup_operator.world.snapshot import Key

logger = logging.getLogger(__name__)

STUCK = timedelta(minutes=5)
"""A pass that runs longer is reported as stuck: each of its requests has a limit of seconds."""


class Operator:
    """One operator process: the queue, its workers, the watches, and the Lease that allows it to write.

    Raises:
        ClusterError: no cluster is configured.
    """

    def __init__(self, settings: Settings) -> None:
        self.metrics = OperatorMetrics()
        client = KubeClient(connect(settings), self.metrics.api_requests)
        self._engines = GroupEngines()
        self.queue = WorkQueue(workers=settings.workers)
        client.on_return = self.queue.retry_failed
        self.term = Term(until=float("-inf") if settings.lease else float("inf"))
        self.elector = _elector(settings, client, self.term) if settings.lease else None
        stores = {kind: Store(kind, self.queue.add) for kind in KINDS}
        self._reflectors = Reflectors(client, stores, settings.namespaces)
        self.resync = Resync(client, self.queue, stores, settings.namespaces, settings.resync)
        reader = ClusterReader(client, stores)
        writer = ClusterWriter(client, self.term, stores, reader.cache)
        self._spans = PassSpans(os.environ)
        self._reconciler = Reconciler(
            reader,
            writer,
            self._engines,
            queue=self.queue,
            settings=settings,
            metrics=self.metrics,
            spans=self._spans,
        )
        self.metrics.leader.set_function(lambda: self.term.is_leader)
        self.metrics.queue_depth.set_function(self.queue.depth)
        self.metrics.registry.register(
            GroupCollector(
                lambda: self.term.is_leader,
                stores["PromptGroup"].list_all,
                self._reconciler.summaries,
                settings.gpu_hour_price,
            )
        )
        self._busy_since: dict[Key, datetime] = {}
        self._workers = [
            threading.Thread(target=self._work, name=f"pass-{i}", daemon=True) for i in range(2 * settings.workers)
        ]

    def start(self) -> None:
        """Start the watches, the workers that wait for the first lists, and the leader election."""
        self._reflectors.start()
        for worker in self._workers:
            worker.start()
        self.resync.start()
        if self.elector is not None:
            self.elector.start()

    def stop(self) -> None:
        """Stop writing, let running passes end, then release the Lease; the next leader continues from the cluster."""
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
        self._spans.close()

    def stuck(self, now: datetime) -> list[Key]:
        """Return the groups whose pass has run for longer than STUCK."""
        return [key for key, since in list(self._busy_since.items()) if now - since > STUCK]

    def _work(self) -> None:
        if not self._reflectors.wait(self.queue.closed):
            return
        while (key := self.queue.take()) is not None:
            if self.term.wait():  # a standby keeps its queue filled, so that it starts with every group when it leads
                self._pass(key)

    def _pass(self, key: Key) -> None:
        with self._spans.over(key.namespace, key.name):
            self._try(key)

    def _try(self, key: Key) -> None:
        now = datetime.now(UTC)
        self._busy_since[key] = now
        try:
            with self.metrics.passes.time():
                requeue_after = self._reconciler.run(key, now)
        except ClusterError as error:
            self.metrics.pass_failures.labels(REFUSED).inc()
            self._spans.failed(REFUSED)
            wait = self.queue.failed(key, timedelta(seconds=error.retry_after or 0))
            logger.warning("%s/%s: %s; retrying in %.1f s", key.namespace, key.name, error, wait.total_seconds())
        except Exception:
            self.metrics.pass_failures.labels(FAULT).inc()
            self._spans.failed(FAULT)
            wait = self.queue.failed(key)
            logger.exception("%s/%s: pass failed; retrying in %.1f s", key.namespace, key.name, wait.total_seconds())
        else:
            self.queue.done(key, requeue_after)
        finally:
            self._busy_since.pop(key, None)


def _elector(settings: Settings, client: KubeClient, term: Term) -> LeaderElector:
    namespace, name = settings.lease.split("/")
    identity = f"{settings.identity or socket.gethostname()}_{uuid.uuid4()}"
    return LeaderElector(client, namespace, name, identity=identity, term=term)


def build(settings: Settings) -> tuple[kopf.OperatorRegistry, Operator]:
    """Return Kopf's registry of handlers and the operator that they start, stop and probe.

    Raises:
        ClusterError: no cluster is configured.
    """
    registry = kopf.OperatorRegistry()
    operator = Operator(settings)
    tasks: set[asyncio.Task[Any]] = set()

    @kopf.on.startup(registry=registry)
    async def startup(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False
        settings.scanning.disabled = True
        tasks.update(asyncio.all_tasks())
        operator.start()

    @kopf.on.cleanup(registry=registry)
    async def cleanup(**_: Any) -> None:
        await asyncio.to_thread(operator.stop)
        # Kopf's discovery still waits for credentials, and Kopf would wait five seconds for it to end by itself
        for task in asyncio.all_tasks() - tasks:
            task.cancel()

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> None:
        # Kopf discovers the cluster's resources as soon as it has credentials, for handlers that do not exist here.
        # It gets none, so it sends nothing: every request of this process is KubeClient's.
        await asyncio.Event().wait()

    # A probe fails with PermanentError: after any other error Kopf would retry it for a minute before it answers.
    @kopf.on.probe(id="passes", registry=registry)
    def passes(**_: Any) -> str:
        stuck = operator.stuck(datetime.now(UTC))
        if stuck:
            groups = ", ".join(f"{key.namespace}/{key.name}" for key in stuck)
            raise kopf.PermanentError(f"passes have run for more than {STUCK.total_seconds():.0f} s: {groups}")
        return "passes end"

    @kopf.on.probe(id="watches", registry=registry)
    def watches(**_: Any) -> str:
        if operator.resync.silent:
            raise kopf.PermanentError(f"watches deliver no events: {', '.join(operator.resync.silent)}")
        return "watches deliver events"

    @kopf.on.probe(id="leads", registry=registry)
    def leads(**_: Any) -> bool:
        return operator.term.is_leader

    @kopf.on.probe(id="leader", registry=registry)
    def leader(**_: Any) -> str:
        return operator.elector.holder if operator.elector is not None else "this process, without a lease"

    return registry, operator


async def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT.

    Raises:
        ClusterError: no cluster is configured; nothing was started.
        metrics_server.PortError: the metrics port cannot be listened on; nothing was started.
    """
    registry, operator = build(settings)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    async with metrics_server.serving(operator.metrics.registry, settings.host, settings.metrics_port):
        await kopf.operator(
            registry=registry,
            # the name of a peer; there are none, but without it Kopf asks for the user's name, which images lack
            identity=socket.gethostname(),  # type: ignore[arg-type]
            standalone=True,
            clusterwide=True,
            liveness_endpoint=f"http://{host}:{settings.health_port}/healthz",
        )
