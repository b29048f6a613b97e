"""Follows PromptRoutes: lists and watches each served namespace, and fetches prompts once.

Failures are retried with exponential backoff; meanwhile the last good table stays in use.
"""

import asyncio
import base64
import contextlib
import logging
import random
from collections.abc import Callable, Sequence
from urllib.parse import quote

from promptgroup_contract import names
from promptgroup_contract.messages import read_messages
from promptgroup_contract.table import (
    ADAPTER_KEY,
    MESSAGES_KEY,
    SYSTEM_KEY,
    TOOLS_KEY,
    Prompt,
    RoutingTable,
    TableError,
)
from promptgroup_router.base.logs import fields
from promptgroup_router.base.steps import in_slices
from promptgroup_router.feed.kube_api import KubeApi, KubeError, object_path
from promptgroup_router.feed.prompt_routes import Expired, RouteChange, Routes, RouteSource
from promptgroup_router.feed.publish import Publisher
from promptgroup_router.feed.slot_address import Network

log = logging.getLogger("promptgroup.table")

WATCH_SECONDS = 240
"""Time after which the API server ends a watch, with jitter that spreads the reconnects of many routers."""
FIRST_BACKOFF = 0.5
"""Seconds to wait after a first failure."""
LAST_BACKOFF = 30.0
"""Most seconds to wait: an API server that is available again is detected within this time."""
GATHER_SECONDS = 0.05
"""Events within this time become one new table: a rollout writes several routes at once."""

REST = 3
"""Times as long as a table took to make is the pause before the next one, so that routes which change all the time take
a quarter of the processor at most."""
FETCHES = 32
"""Most prompts that are fetched at a time."""

_PLURALS = {"ConfigMap": "configmaps", "Secret": "secrets"}


class KubernetesFeed:
    """A feed that follows the PromptRoutes of some namespaces."""

    def __init__(
        self,
        api: KubeApi,
        namespaces: tuple[str, ...],
        publisher: Publisher,
        start: RoutingTable | None,
        networks: Sequence[Network] = (),
    ) -> None:
        self._api = api
        self._namespaces = namespaces
        self._publisher = publisher
        self._routes = Routes(start, namespaces, networks)
        self._changed = asyncio.Event()
        self._tried: set[str] = set()
        self._lost: set[str] = set()
        self._listed = start is not None
        self._fetches = asyncio.Semaphore(FETCHES)
        self._fetching: dict[RouteSource, asyncio.Task[None]] = {}
        self._wake: dict[str, asyncio.Event] = {namespace: asyncio.Event() for namespace in namespaces}

    def reload(self) -> None:
        """End all waits between retries."""
        for wake in self._wake.values():
            wake.set()

    async def run(self) -> None:
        """Follow until cancelled."""
        now = asyncio.get_running_loop().time
        async with asyncio.TaskGroup() as tasks:
            for namespace in self._namespaces:
                tasks.create_task(self._follow(namespace))
            while True:
                await self._changed.wait()
                self._changed.clear()
                began = now()
                for source in self._routes.missing() - self._fetching.keys():
                    self._fetching[source] = tasks.create_task(self._fetch(source))
                await self._publish()
                await asyncio.sleep(max(GATHER_SECONDS, REST * (now() - began)))

    async def _publish(self) -> None:
        # the first table waits until each namespace was tried: its groups would be unknown for a moment
        if self._listed and len(self._tried) == len(self._namespaces):
            table = await in_slices(self._routes.table_steps(), lasting=True)
            await self._publisher.publish_in_slices(table, "kubernetes")
            if not self._lost:  # without news from one namespace the table is not confirmed
                self._publisher.confirm()

    async def _follow(self, namespace: str) -> None:
        path = (
            f"/apis/{names.API_GROUP}/{names.API_VERSION}/namespaces/{quote(namespace, safe='')}/{names.ROUTE_PLURAL}"
        )
        now = asyncio.get_running_loop().time
        backoff = FIRST_BACKOFF
        while True:
            began = now()
            try:
                steps = self._routes.list_steps(namespace, await self._api.list(path))
                change = await in_slices(steps, lasting=True)
                self._listed = True
                self._tell(namespace, change)
                while True:
                    change = await self._watch(namespace, path, change.version)
            except Expired:
                log.info("watch expired, listing again", extra=fields(namespace=namespace))
            except (KubeError, TableError) as error:
                self._publisher.failed("kubernetes")
                log.warning(
                    "PromptRoutes cannot be followed: the last good table stays in use",
                    extra=fields(namespace=namespace, problem=error, again_in=f"{backoff:.1f}s"),
                )
                self._lost.add(namespace)
            self._tried.add(namespace)
            self._changed.set()
            if now() - began > LAST_BACKOFF:
                backoff = FIRST_BACKOFF  # it worked for long enough
            await self._pause(self._wake[namespace], backoff)
            backoff = min(LAST_BACKOFF, backoff * 2)

    async def _watch(self, namespace: str, path: str, version: str) -> RouteChange:
        """Follow one watch to its end. Return the change from which the next one continues."""
        seconds = int(WATCH_SECONDS * random.uniform(0.75, 1.25))  # noqa: S311 - spreads load, no secret
        query = f"?watch=1&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={quote(version)}"
        began = asyncio.get_running_loop().time()
        change = RouteChange(version)
        try:
            # closed at once if an event raises, and the connection with it
            async with contextlib.aclosing(self._api.watch(path + query)) as events:
                async for event in events:
                    change = await in_slices(self._routes.event_steps(namespace, event), lasting=True)
                    self._tell(namespace, change)
        except KubeError as error:
            if error.status == 410:
                raise Expired from error
            raise
        if asyncio.get_running_loop().time() - began < FIRST_BACKOFF:
            await asyncio.sleep(FIRST_BACKOFF)  # do not loop on a server that ends watches at once
        return change

    def _tell(self, namespace: str, change: RouteChange) -> None:
        for problem in change.problems:
            self._publisher.failed("kubernetes")
            log.error("PromptRoute cannot be read: its last good value stays in use", extra=fields(problem=problem))
        self._tried.add(namespace)
        self._lost.discard(namespace)
        self._changed.set()

    async def _fetch(self, source: RouteSource) -> None:
        """Fetch a prompt's text while a route names it."""
        backoff = FIRST_BACKOFF
        plural = _PLURALS.get(source.ref.kind, "")
        while self._routes.misses(source):
            try:
                path = object_path("/api/v1", source.namespace, plural, source.ref.name)
                async with self._fetches:
                    result = await self._api.get(path)
                self._routes.learn(source, prompt_of(source, result))
                self._changed.set()
            except (KubeError, TableError) as error:
                log.warning(
                    "prompt cannot be read: its group is matched by content only",
                    extra=fields(namespace=source.namespace, kind=source.ref.kind, name=source.ref.name, problem=error),
                )
                await self._pause(asyncio.Event(), backoff)
                backoff = min(LAST_BACKOFF, backoff * 2)
        del self._fetching[source]

    async def _pause(self, wake: asyncio.Event, seconds: float) -> None:
        """Wait for half of a time to all of it, so that routers do not return all at once; `wake` ends the wait."""
        try:
            async with asyncio.timeout(seconds * random.uniform(0.5, 1.0)):  # noqa: S311 - spreads load, no secret
                await wake.wait()
        except TimeoutError:
            return
        wake.clear()


def prompt_of(source: RouteSource, result: object) -> Prompt:
    """Return the verified prompt of a ConfigMap or Secret.

    Raises:
        TableError: the object holds no such prompt; the message never contains its text.
    """
    data = result.get("data") if isinstance(result, dict) else None
    if not isinstance(data, dict) or not {SYSTEM_KEY, TOOLS_KEY} & data.keys():
        raise TableError(f"the object has neither the key {SYSTEM_KEY!r} nor the key {TOOLS_KEY!r}")
    decode: Callable[[str], str] = _decoded if source.ref.kind == "Secret" else str
    prompt = Prompt(*(decode(data.get(key, "")) for key in (SYSTEM_KEY, TOOLS_KEY, MESSAGES_KEY, ADAPTER_KEY)))
    if prompt.fingerprint != source.fingerprint:
        raise TableError("the text does not hash to the fingerprint")
    try:
        read_messages(prompt.messages)
    except ValueError as error:
        raise TableError(f"key {MESSAGES_KEY!r}: {error}") from None
    return prompt


def _decoded(value: str) -> str:
    try:
        return base64.b64decode(value, validate=True).decode()
    except (ValueError, TypeError):  # no base64, no UTF-8, no string
        raise TableError("a value of the Secret is not text in base64") from None
