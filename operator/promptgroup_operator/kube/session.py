"""The connection over which Kopf lists and watches: server, certificates and tokens are the Kubernetes client's.

Kopf retries what it takes for passing, and ends the operator for every other answer. An API server that has just been
started gives some of those as well: it does not know the token yet, or not the kind. They are made passing here. The
same place counts requests, holds back watches that the server ends at once, which Kopf would begin anew without a
pause, and tells of lists that begin anew, since Kopf tells no handler which objects such a list did not bring again.
"""

import asyncio
import random
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, cast
from urllib.parse import urlsplit

import aiohttp
import kopf
from kubernetes import client

from promptgroup_operator.base import nesting
from promptgroup_operator.telemetry.metrics import NO_ANSWER, WATCH

LAST_PAUSE = 3.0
"""Longest time in seconds between two tries of Kopf's: nobody waits long for a server that is back."""
PAUSES = (0.2, 0.4, 0.8, 1.6)
"""Seconds before the first tries after a failure."""
WATCH_SECONDS_APART = 1.0
"""Least time between two beginnings of one watch. Nothing is lost meanwhile, since a watch continues from a version."""

OK, UNAUTHORIZED, NOT_FOUND, GONE = 200, 401, 404, 410


class Pauses:
    """Seconds between the tries of a request of Kopf's, without an end: an outage does not end the operator."""

    def __iter__(self) -> Iterator[float]:
        """Yield the next pause, for ever."""
        yield from PAUSES
        while True:
            yield LAST_PAUSE * (1 + random.random()) / 2  # noqa: S311 - spreads load


class KopfSession:
    """Logs Kopf in.

    Args:
        api: connection of the Kubernetes client, whose configuration is used.
        kinds: path of an API group and version on the server → plural → kind, for all that is watched.
        count: called with the verb and the status of each request, or NO_ANSWER.
        relisted: called with a kind and a namespace, empty for all, when a list of them has been read.
    """

    def __init__(
        self,
        api: client.ApiClient,
        kinds: Mapping[str, Mapping[str, str]],
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
        connector = aiohttp.TCPConnector(limit=0, ssl=self._tls())
        session = aiohttp.ClientSession(
            connector=connector, proxy=self._configuration.proxy or None, middlewares=(self._send,)
        )
        return kopf.AiohttpSession(aiohttp_session=session, server=self._configuration.host)

    def _tls(self) -> ssl.SSLContext:
        """Return what the Kubernetes client verifies the server with, and proves itself by."""
        configuration = self._configuration
        context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # clusters' own authorities need not have every extension
        if configuration.cert_file:
            context.load_cert_chain(configuration.cert_file, configuration.key_file)
        if not configuration.verify_ssl:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    async def _send(self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        """Send one request of Kopf's.

        Raises:
            aiohttp.ClientConnectionError: Kopf tries again after a pause.
            aiohttp.ClientPayloadError: Kopf begins anew with a list.
        """
        path = request.url.path.removeprefix(self._base)
        watches = "watch" in request.url.query
        if watches:
            await self._wait_for_turn(path)
        await asyncio.to_thread(self._authorize, request, path)  # a plugin may be run for the token
        verb = WATCH if watches else request.method
        try:
            response = await handler(request)
        except (aiohttp.ClientError, TimeoutError):
            self._count(verb, NO_ANSWER)
            raise
        self._count(verb, str(response.status))
        if response.status == OK and not watches:
            await self._check_discovery(path, response)
        kind = self._kind(path)
        if response.status == UNAUTHORIZED or (response.status == NOT_FOUND and kind):
            response.close()
            raise aiohttp.ClientConnectionError(f"{verb} {path}: {response.status} {response.reason}")
        if kind and not watches and "continue" not in request.url.query and response.status == OK:
            self._relisted(kind, _namespace(path))
        if kind and not watches and response.status == GONE:
            response.close()
            raise aiohttp.ClientPayloadError(f"{verb} {path}: the rest of the list is gone")
        if kind == "PromptGroup":  # nothing else that is watched has free-form fields of its own
            response.content = cast("aiohttp.StreamReader", _ShallowContent(response.content))
        return response

    async def _wait_for_turn(self, path: str) -> None:
        now = asyncio.get_running_loop().time()
        turn = max(now, self._next_turn[path])
        self._next_turn[path] = turn + WATCH_SECONDS_APART
        await asyncio.sleep(turn - now)

    def _authorize(self, request: aiohttp.ClientRequest, path: str) -> None:
        """Add the token as it is now: the kubelet replaces it within the hour."""
        headers: dict[str, str] = {}
        self._api.update_params_for_auth(headers, [], ["BearerToken"], path, request.method, None)
        request.headers.update(headers)
        if self._configuration.tls_server_name:
            request.server_hostname = self._configuration.tls_server_name

    async def _check_discovery(self, path: str, response: aiohttp.ClientResponse) -> None:
        """Let Kopf ask again until the server shows all that is watched: Kopf looks once, and never watches the rest.

        Raises:
            aiohttp.ClientConnectionError: something is missing.
        """
        if path == "/apis":
            served = {f"/apis/{group['name']}" for group in (await response.json())["groups"]}
            desired = {version.rpartition("/")[0] for version in self._kinds if version.startswith("/apis/")}
        elif path in self._kinds:
            served = {resource["name"] for resource in (await response.json())["resources"]}
            desired = set(self._kinds[path])
        else:
            return
        if missing := desired - served:
            unserved = ", ".join(sorted(name.removeprefix("/apis/") for name in missing))
            raise aiohttp.ClientConnectionError(
                f"the API server does not serve {unserved}: apply the CRDs of PromptGroup"
            )

    def _kind(self, path: str) -> str:
        """Return the kind whose collection has the path; empty if none has."""
        version, _, plural = path.rpartition("/")
        return self._kinds.get(version.partition("/namespaces/")[0], {}).get(plural, "")


class _ShallowContent:
    """The body of an answer, without what nests too deeply in free-form fields of PromptGroups.

    Anybody who may create one could end the operator by it: Kopf's parser raises for it, and Kopf ends for that.
    """

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content

    def __getattr__(self, name: str) -> Any:
        """Return what else aiohttp asks the body for."""
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


def _namespace(path: str) -> str:
    """Return the namespace of a collection; empty for all."""
    return path.partition("/namespaces/")[2].partition("/")[0]
