"""An API server as its administrator asks it: for benches, which ask often, so that no kubectl process is started."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import urllib3
from urllib3.response import BaseHTTPResponse

EXISTS = 409
"""HTTP status: an object of that name is there."""


class AdminClient:
    """Safe to use from many threads, and in a process that gets its arguments.

    Args:
        server: URL of the API server.
        ca: file of its authority.
        certificate: file of an administrator's certificate.
        key: file of its key.
    """

    def __init__(self, server: str, ca: Path, certificate: Path, key: Path) -> None:
        self.server = server
        self.http = urllib3.PoolManager(
            ca_certs=str(ca), cert_file=str(certificate), key_file=str(key), maxsize=16, retries=False
        )

    def request(self, method: str, path: str, body: Any = None, *, there: bool = False) -> dict[str, Any]:
        """Return the answer to a request; a PATCH is merged.

        Args:
            method: of HTTP.
            path: on the server.
            body: sent as JSON.
            there: whether an object that is to be created may exist.
        """
        headers = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else None
        answer = self.http.request(method, self.server + path, json=body, headers=headers, timeout=30)
        assert answer.status < 300 or (there and answer.status == EXISTS), (method, path, answer.data[:500])
        return json.loads(answer.data)

    def watch(self, path: str) -> BaseHTTPResponse:
        """Open a watch.

        Args:
            path: of the objects, with `?watch=true` and what else is asked.

        Raises:
            urllib3.exceptions.HTTPError: the server refuses it, as while it makes room for the objects.
        """
        timeout = urllib3.Timeout(connect=5, read=None)
        response = self.http.request("GET", self.server + path, preload_content=False, timeout=timeout)
        if response.status != 200:
            raise urllib3.exceptions.HTTPError(response.data)
        return response


def chunks_of_lines(response: BaseHTTPResponse) -> Iterator[list[bytes]]:
    """Yield the lines of a watch, those together that came together."""
    rest = b""
    for chunk in response.stream(65536):
        *lines, rest = (rest + chunk).split(b"\n")
        yield lines
