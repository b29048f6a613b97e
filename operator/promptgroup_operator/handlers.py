"""The handlers name what the operator reacts to: changes of the objects that it watches, its start and end, and probes.

Kopf lists and watches, and calls `changed`, which keeps the in-memory stores equal to the cluster and queues the groups
that change. Worker threads run the passes over these groups, while the process leads (`passes`). No handler
keeps a state in Kopf, so it writes neither finalizers nor annotations: GitOps tools see no drift, and `kubectl delete`
never waits for the operator (docs/development/decisions/0082-kopf-watches.md).
"""

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import threading
import uuid
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import kopf

from promptgroup_contract import names
from promptgroup_operator.act.group_writer import GroupWriter
from promptgroup_operator.base.errors import ClusterError
from promptgroup_operator.base.settings import Settings
from promptgroup_operator.engines.group_engines import GroupEngines
from promptgroup_operator.kube.api_server import KubeClient, collection_path, connect
from promptgroup_operator.kube.leader_election import LeaderElector, Term
from promptgroup_operator.kube.resync import Resync
from promptgroup_operator.kube.session import NODE, KopfSession, Pauses
from promptgroup_operator.kube.store import Store
from promptgroup_operator.observe.group_reader import GroupReader
from promptgroup_operator.observe.leaving_nodes import LeavingNodes
from promptgroup_operator.passes.reconcile import Reconciler
from promptgroup_operator.passes.work_queue import WorkQueue
from promptgroup_operator.telemetry import metrics_server
from promptgroup_operator.telemetry.metrics import FAULT, REFUSED, OperatorMetrics
from promptgroup_operator.telemetry.metrics_server import GroupCollector
from promptgroup_operator.telemetry.pass_spans import PassSpans
from promptgroup_operator.world import lookup
from promptgroup_operator.world.lookup import KINDS
from promptgroup_operator.world.snapshot import Key
from promptgroup_operator.world.trimmed import trimmed

logger = logging.getLogger(__name__)

PAGE = 50
"""Objects in a page of a list: a PromptGroup may have 1.5 MiB, and Kopf keeps a page until its objects are handled."""
CONNECT_SECONDS = 5.0
"""Longest wait for a connection to the API server."""
LIST_SECONDS = 60.0
"""Longest time for a page of a list, the API server's own limit."""

IDLE_SECONDS = 1.0
"""Time for which Kopf keeps the task and the last event of an object: more saves CPU, and needs memory at a start."""
STOP_SECONDS = 8.0
"""Maximum time for Kopf to stop this process's work after a signal to end."""
END_SECONDS = 2.0
"""Longest wait for Kopf once everything else of the process has ended."""
SWITCH_SECONDS = 0.001
"""Maximum time that a thread holds the interpreter while others wait: Kopf's loop processes an event in several steps,
and each step waits for the running passes."""

CYCLES = 10_000
"""Allocations between two runs of the garbage collector for cycles. An event makes some hundred objects, nearly all
of which need no collection of cycles: with Python's 700 the collector takes a seventh of the CPU of an event."""

STUCK = timedelta(minutes=5)
"""A pass that runs longer is reported as stuck: each of its requests has a limit of seconds."""


SEEN_BY_GUESTS = frozenset({"PromptGroup", "PromptRoute", "Pod"})
"""Kinds of a host's objects that a pass over a guest reads."""


class Operator:
    """One operator process: the queue, its workers, the watches, and the Lease that allows it to write.

    Raises:
        ClusterError: no cluster is configured.
    """

    def __init__(self, settings: Settings) -> None:
        self.metrics = OperatorMetrics()
        api = connect(settings)
        client = KubeClient(api, self.metrics.api_requests)
        self._engines = GroupEngines()
        self.stopping = asyncio.Event()
        """Set by a signal to end the process."""
        self.stopped = asyncio.Event()
        """Set when the process writes no more, so that another may lead."""
        self.queue = WorkQueue(workers=settings.workers)
        client.on_return = self.queue.retry_failed
        self.term = Term(until=float("-inf") if settings.lease else float("inf"))
        self.elector = _elector(settings, client, self.term) if settings.lease else None
        self.stores = stores = {kind: Store(kind, partial(self._changed, kind)) for kind in KINDS}
        self.resync = Resync(client, self.queue.add, stores, settings.namespaces, settings.resync)
        self.nodes = LeavingNodes(settings.leaving_taints)
        watched = {collection_path(kind, ""): kind for kind in KINDS}
        if settings.leaving_taints:
            watched[collection_path(NODE, "")] = NODE
        self.session = KopfSession(api, watched, client.count, self._relisted)
        reader = GroupReader(client, stores, self.nodes)
        writer = GroupWriter(client, self.term, stores, reader.unwatched.cache)
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

    def _changed(self, kind: str, key: Key) -> None:
        """Queue a group of which an object changed, and its guests if their passes read that object, too."""
        self.queue.add(key)
        if kind in SEEN_BY_GUESTS:
            for guest in self.stores["PromptGroup"].list_at(lookup.guests(key)):
                self.queue.add(Key(key.namespace, guest["metadata"]["name"]))

    def _relisted(self, kind: str, namespace: str) -> None:
        if kind != NODE:
            self.resync.relisted(kind, namespace)

    def note_node(self, node: kopf.RawBody, *, deleted: bool) -> None:
        """Take a node from a list or an event; queue the groups with pods on it if its end is announced or revoked."""
        if self.nodes.put(node, deleted=deleted):
            for pod in self.stores["Pod"].list_at(lookup.pods_on(node["metadata"]["name"])):
                key = lookup.group_of("Pod", pod)
                if key is not None:
                    self._changed("Pod", key)

    def start(self) -> None:
        """Start the workers, which wait for the first lists, and the leader election."""
        for worker in self._workers:
            worker.start()
        self.resync.start()
        if self.elector is not None:
            self.elector.start()

    def stop(self) -> None:
        """Stop writing, let running passes end, then release the Lease; the next leader continues from the cluster."""
        self.term.close()
        self.queue.close()
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
        if not self.resync.wait_until_filled():
            return
        while (key := self.queue.take()) is not None:
            if self.term.wait():  # a standby keeps its queue filled, so that as a leader it starts with every group
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
    """Return Kopf's registry of handlers and the operator that they start, feed, stop and probe.

    Raises:
        ClusterError: no cluster is configured.
    """
    registry = kopf.OperatorRegistry()
    operator = Operator(settings)

    @kopf.on.startup(registry=registry)
    async def startup(settings: kopf.OperatorSettings, **_: Any) -> None:
        configure(settings)
        operator.start()

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.AiohttpSession:
        return operator.session.login()

    def is_news(event: kopf.RawEvent, resource: kopf.Resource, **_: Any) -> bool:
        # nearly half of all events are this process's own writes, whose responses are stored
        return event["type"] == "DELETED" or not operator.stores[str(resource.kind)].knows(event["object"])

    @kopf.on.event("promptgroup.dev", "promptgroups", registry=registry, when=is_news)
    @kopf.on.event("promptgroup.dev", "promptroutes", registry=registry, when=is_news)
    @kopf.on.event("apps", "deployments", registry=registry, when=is_news)
    @kopf.on.event("apps", "daemonsets", registry=registry, when=is_news)
    @kopf.on.event("policy", "poddisruptionbudgets", registry=registry, when=is_news)
    @kopf.on.event("v1", "pods", registry=registry, when=is_news)
    async def changed(event: kopf.RawEvent, resource: kopf.Resource, **_: Any) -> None:
        kind = str(resource.kind)
        store, manifest = operator.stores[kind], trimmed(event["object"], kind)
        (store.delete if event["type"] == "DELETED" else store.put)(manifest)

    if settings.leaving_taints:

        @kopf.on.event("v1", "nodes", registry=registry)
        async def node_changed(event: kopf.RawEvent, **_: Any) -> None:
            operator.note_node(event["object"], deleted=event["type"] == "DELETED")

    @kopf.on.cleanup(registry=registry)
    async def cleanup(**_: Any) -> None:
        await asyncio.to_thread(operator.stop)
        operator.stopped.set()

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


def configure(settings: kopf.OperatorSettings) -> None:
    """Set how Kopf watches."""
    apps = (("apps", "deployments"), ("apps", "daemonsets"))
    for resource in (*apps, ("policy", "poddisruptionbudgets"), ("v1", "pods")):
        settings.watching.label_selectors[resource] = names.LABEL_GROUP  # by the server: no foreign pod is ever listed
    settings.watching.chunk_size = PAGE
    settings.networking.connect_timeout = CONNECT_SECONDS
    settings.networking.request_timeout = LIST_SECONDS
    settings.networking.error_backoffs = Pauses()
    settings.queueing.idle_timeout = IDLE_SECONDS
    settings.posting.enabled = False  # Events are counted and written by `act.group_writer`
    settings.scanning.disabled = True  # needs the right to list CRDs and namespaces
    # needed to detect changed fields: no handler uses it, and each event would be copied for it
    settings.persistence.diffbase_storage = NoDiffBase()


class NoDiffBase(kopf.DiffBaseStorage):
    """Keeps no state on objects."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        """Return nothing of an object."""
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> None:
        """Return what was stored: nothing."""

    def store(self, **_: Any) -> None:
        """Store nothing."""


async def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT.

    Raises:
        ClusterError: no cluster is configured; nothing was started.
        metrics_server.PortError: the metrics port cannot be listened on; nothing was started.
    """
    registry, operator = build(settings)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.freeze()  # all objects so far live as long as the process
    gc.set_threshold(CYCLES)
    async with metrics_server.serving(operator.metrics.registry, settings.host, settings.metrics_port):
        await _watch(registry, operator, settings, host)


async def _watch(registry: kopf.OperatorRegistry, operator: Operator, settings: Settings, host: str) -> None:
    """Run Kopf to its end.

    Kopf ends on a signal, for an error in a watch other than 410, and for responses that it does not retry. A watch
    that misses its cancellation then blocks it for ever. This process ends nevertheless once it has released the Lease,
    so that another leads. The kubelet restarts it, and it lists again.
    """

    @kopf.on.startup(registry=registry)
    async def signals(**_: Any) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):  # replaces the handlers of Kopf, which do not report the signal
            asyncio.get_running_loop().add_signal_handler(number, operator.stopping.set)

    failure = _Failure()
    logging.getLogger("kopf").addHandler(failure)
    ends = [asyncio.ensure_future(event.wait()) for event in (operator.stopping, operator.stopped)]
    watching = asyncio.ensure_future(
        kopf.operator(
            registry=registry,
            # the name of a peer; there are none, but without it Kopf reads the user's name, which images lack
            identity=socket.gethostname(),  # type: ignore[arg-type]
            standalone=True,
            clusterwide=not settings.namespaces,
            namespaces=settings.namespaces,
            liveness_endpoint=f"http://{host}:{settings.health_port}/healthz",
            stop_flag=operator.stopping,
        )
    )
    await asyncio.wait({watching, *ends}, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.wait({watching, ends[1]}, timeout=STOP_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    if not watching.done() and not operator.stopped.is_set():
        await asyncio.to_thread(operator.stop)
    await asyncio.wait({watching}, timeout=END_SECONDS)
    if failure.error is not None:
        logger.critical("Kopf watches no more, so this process ends: %s", failure.error)
    if failure.error is not None or not watching.done():
        os._exit(failure.error is not None)
    for end in ends:
        end.cancel()
    watching.result()


class _Failure(logging.Handler):
    """Holds the error for which Kopf ends, which it does not raise before all of its tasks have ended."""

    error: BaseException | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Note the first error of a task that shall not end."""
        if self.error is None and record.exc_info and " has failed: " in record.getMessage():
            self.error = record.exc_info[1]
