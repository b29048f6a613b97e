"""The API server, for the agent: JSON requests and watches over a connection pool, and heartbeats over another one."""

import json
import ssl
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Self

import aiohttp
import yaml

STRATEGIC = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"

REQUEST_SECONDS = 15.0
"""Longest wait for an answer that is no watch."""
CONNECTIONS = 32
"""Most connections of all that is no heartbeat."""
WATCH_SECONDS = 240
"""Longest watch: a silent one is begun anew."""


class ApiError(Exception):
    """The API server refused."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status} {message}")
        self.status = status


class Api:
    """A client made from a kubeconfig with client certificates."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.server: str = cluster["server"]
        self.ca = Path(cluster["certificate-authority"])
        self._ssl = ssl.create_default_context(cafile=self.ca)
        self._ssl.load_cert_chain(user["client-certificate"], user["client-key"])
        self._session: aiohttp.ClientSession | None = None
        self._heartbeats: aiohttp.ClientSession | None = None
        """A pool of its own, as in a kubelet: behind the statuses of thousands of pods a heartbeat would be too late,
        and the node would be taken for lost with all that runs there."""

    async def __aenter__(self) -> Self:
        self._session, self._heartbeats = self._pool(CONNECTIONS), self._pool(1)
        return self

    async def __aexit__(self, *_: object) -> None:
        for pool in (self._session, self._heartbeats):
            if pool is not None:
                await pool.close()

    def _pool(self, connections: int) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(ssl=self._ssl, limit=connections)
        return aiohttp.ClientSession(self.server, connector=connector, trust_env=False)

    def _open(self, *, heartbeat: bool = False) -> aiohttp.ClientSession:
        """Return an open connection pool."""
        pool = self._heartbeats if heartbeat else self._session
        if pool is None:
            raise RuntimeError("the client is used outside its context")
        return pool

    async def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        kind: str = "application/json",
        query: Mapping[str, str] | None = None,
        heartbeat: bool = False,
    ) -> dict[str, Any]:
        """One request; a heartbeat waits for no other one.

        Raises:
            ApiError: the API server refused.
            aiohttp.ClientError: it could not be reached; TimeoutError, in time.
        """
        timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS)
        data = json.dumps(body).encode() if body is not None else None
        headers = {"Content-Type": kind}
        async with self._open(heartbeat=heartbeat).request(
            method, path, data=data, headers=headers, params=query, timeout=timeout
        ) as response:
            text = await response.read()
            if response.status >= 300:
                raise ApiError(response.status, _message(text))
            answer: dict[str, Any] = json.loads(text)
            return answer

    async def watch(self, path: str, query: Mapping[str, str]) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Events of a watch, until the server ends it."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_SECONDS, sock_read=WATCH_SECONDS + 30)
        params = {**query, "watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(WATCH_SECONDS)}
        async with self._open().get(path, params=params, timeout=timeout) as response:
            if response.status >= 300:
                raise ApiError(response.status, "watch refused")
            rest = b""
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    yield event["type"], event["object"]


def _message(text: bytes) -> str:
    """The reason why the API server refused: a Status object's message, or plain text while it starts or ends."""
    try:
        return str(json.loads(text)["message"])[:300]
    except (ValueError, KeyError, TypeError):
        return text.decode(errors="replace")[:300]
