"""The API server, for the agent: JSON requests and watches over one connection pool."""

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

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            self.server, connector=aiohttp.TCPConnector(ssl=self._ssl, limit=32), trust_env=False
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    @property
    def session(self) -> aiohttp.ClientSession:
        """The open connection pool."""
        if self._session is None:
            raise RuntimeError("the client is used outside its context")
        return self._session

    async def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        kind: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """One request.

        Raises:
            ApiError: the API server refused.
            aiohttp.ClientError: it could not be reached; TimeoutError, in time.
        """
        timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS)
        data = json.dumps(body).encode() if body is not None else None
        headers = {"Content-Type": kind}
        async with self.session.request(
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
        async with self.session.get(path, params=params, timeout=timeout) as response:
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
