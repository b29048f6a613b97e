"""The connection over which Kopf lists and watches: server, certificates and tokens are the Kubernetes client's.

Kopf retries errors that it considers temporary, and ends the operator for every other response. An API server that has
just started sends some of the latter: it does not accept the token yet, or does not serve the kind yet. This module
converts them into temporary errors. It also counts requests, delays a watch that the server ends at once, which Kopf
would restart without a pause, and reports each list, since no handler of Kopf learns which objects a list omitted.
"""

import asyncio
import random
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import urlsplit

import aiohttp
import kopf
from kubernetes import client

from promptgroup_operator.base import nesting
from promptgroup_operator.telemetry.metrics import NO_ANSWER, WATCH

LAST_PAUSE = 3.0
"""Maximum time in seconds between two attempts of Kopf, so that it reconnects soon after an outage."""
PAUSES = (0.2, 0.4, 0.8, 1.6)
"""Seconds before the first tries after a failure."""
NODE = "Node"
"""The kind that the operator may watch, and does without where its role does not let it."""
REFUSED_SECONDS = 30.0
"""Time between two tries of a list or a watch of nodes that the role does not allow."""
WATCH_SECONDS_APART = 1.0
"""Minimum time between two starts of one watch. No event is lost, since a watch continues from a resourceVersion."""


class Pauses:
    """Seconds between the attempts of a request of Kopf, without a limit: an outage does not end the operator."""

    def __iter__(self) -> Iterator[float]:
        """Yield the next pause, for ever."""
        yield from PAUSES
        while True:
            yield LAST_PAUSE * (1 + random.random()) / 2  # noqa: S311 - spreads load


class KopfSession:
    """Logs Kopf in.

    Args:
        api: connection of the Kubernetes client, whose configuration is used.
        kinds: path of a collection on the server → kind, for all watched kinds.
        count: called with the verb and the status of each request, or NO_ANSWER.
        relisted: called with a kind and a namespace, empty for all, when a list of them has been read.
    """

    def __init__(
        self,
        api: client.ApiClient,
        kinds: Mapping[str, str],
        count: Callable[[str, str], None],
        relisted: Callable[[str, str], None],
    ) -> None:
        self._api = api
        self._configuration: Any = api.configuration
        self._base = urlsplit(self._configuration.host).path.rstrip("/")
        self._kinds = kinds
        self._count = count
        self._relisted = relisted
        self._next_turn: defaultdict[str, float] = defaultdict(float)
        """Path of a collection → time at which its watch may begin again, by the loop's clock."""

    def login(self) -> kopf.AiohttpSession:
        """Return a new session for Kopf, which closes it. Call it in the event loop."""
        config = self._configuration
        tls = kopf.ConnectionInfo(
            server=config.host,
            ca_path=config.ssl_ca_cert,
            insecure=not config.verify_ssl,
            certificate_path=config.cert_file,
            private_key_path=config.key_file,
        ).as_ssl_context()
        tls.verify_flags &= ~ssl.VERIFY_X509_STRICT  # clusters' own authorities need not have every extension
        connector = aiohttp.TCPConnector(limit=0, ssl=tls)
        session = aiohttp.ClientSession(connector=connector, proxy=config.proxy or None, middlewares=(self._send,))
        return kopf.AiohttpSession(aiohttp_session=session, server=config.host)

    async def _send(self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        """Send one request of Kopf.

        Raises:
            aiohttp.ClientConnectionError: Kopf retries after a pause.
            aiohttp.ClientPayloadError: Kopf lists again from the start.
        """
        path, watches = request.url.path.removeprefix(self._base), "watch" in request.url.query
        kind, namespace = self._collection(path)
        if watches or kind == NODE:
            await self._wait_for_turn(path, WATCH_SECONDS_APART if watches else 0.0)
        await asyncio.to_thread(self._authorize, request, path)  # may run a plugin that returns the token
        verb = WATCH if watches else request.method
        try:
            response = await handler(request)
        except (aiohttp.ClientError, TimeoutError):
            self._count(verb, NO_ANSWER)
            raise
        self._count(verb, str(response.status))
        why = f"{verb} {path}: {response.status} {response.reason}"
        if response.status == HTTPStatus.FORBIDDEN and kind == NODE:
            self._next_turn[path] = asyncio.get_running_loop().time() + REFUSED_SECONDS
        if response.status == HTTPStatus.UNAUTHORIZED or (response.status == HTTPStatus.NOT_FOUND and kind):
            response.close()
            raise aiohttp.ClientConnectionError(why)
        if response.status == HTTPStatus.GONE and kind and not watches:  # the rest of the list
            response.close()
            raise aiohttp.ClientPayloadError(why)
        if response.status == HTTPStatus.OK and not watches:
            await self._check_discovery(path, response)
            if kind and "continue" not in request.url.query:
                self._relisted(kind, namespace)
        if kind == "PromptGroup":  # no other watched kind has free-form fields
            response.content = cast("aiohttp.StreamReader", _ShallowContent(response.content))
        return response

    async def _wait_for_turn(self, path: str, apart: float) -> None:
        now = asyncio.get_running_loop().time()
        turn = max(now, self._next_turn[path])
        self._next_turn[path] = turn + apart
        await asyncio.sleep(turn - now)

    def _authorize(self, request: aiohttp.ClientRequest, path: str) -> None:
        """Add the current token: the kubelet replaces it within the hour."""
        headers: dict[str, str] = {}
        self._api.update_params_for_auth(headers, [], ["BearerToken"], path, request.method, None)
        request.headers.update(headers)
        if self._configuration.tls_server_name:
            request.server_hostname = self._configuration.tls_server_name

    async def _check_discovery(self, path: str, response: aiohttp.ClientResponse) -> None:
        """Make Kopf retry until the server serves all watched kinds: Kopf discovers once, and never watches the others.

        Raises:
            aiohttp.ClientConnectionError: a kind is missing.
        """
        if path == "/apis":
            desired = {watched.split("/")[2] for watched in self._kinds if watched.startswith("/apis/")}
        else:
            desired = {watched.rpartition("/")[2] for watched in self._kinds if watched.rpartition("/")[0] == path}
        answer = await response.json() if desired else {}
        served = {entry["name"] for entry in answer.get("groups") or answer.get("resources") or ()}
        if missing := desired - served:
            unserved = ", ".join(sorted(missing))
            raise aiohttp.ClientConnectionError(f"the API server does not serve {unserved}: apply PromptGroup's CRDs")

    def _collection(self, path: str) -> tuple[str, str]:
        """Return the kind whose collection has the path, empty if none has, and its namespace, empty for all."""
        prefix, within, rest = path.partition("/namespaces/")
        namespace, _, plural = rest.partition("/")
        return self._kinds.get(f"{prefix}/{plural}" if within else path, ""), namespace


class _ShallowContent:
    """The body of a response, without values that nest too deeply in free-form fields of PromptGroups.

    Without this, any user who may create a PromptGroup could end the operator: Kopf's parser raises, and Kopf ends.
    """

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content

    def __getattr__(self, name: str) -> Any:
        """Return any other attribute of the body that aiohttp uses."""
        return getattr(self._content, name)

    async def read(self) -> bytes:
        """Return a list."""
        return nesting.shallow(await self._content.read())

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Yield the events of a watch."""
        rest = b""
        async for chunk in self._content.iter_chunked(size):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield nesting.shallow(line) + b"\n"
        yield rest
