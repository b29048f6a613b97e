"""The part of a kubelet's API that `kubectl logs` needs: a container's output over TLS, for the API server only."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

from aiohttp import web

from promptgroup_local.cluster.nodeagent.command import log_name

API_SERVER = "kube-apiserver"
"""Common name of the API server's client certificate: the API server has authorized the reader."""
LARGEST = 16 << 20
"""Bytes of a log that are searched for its last lines; older lines are in the file."""
POLL_SECONDS = 0.2
"""Polling interval of a file that is followed."""
UNKNOWN_TIMES = ("previous", "sinceSeconds", "sinceTime", "timestamps")
"""Options that need the time of a line or of a restart, which a plain file does not have."""

Running = Callable[[str, str, str], bool]
"""(namespace, pod, container) → whether it may still write."""


class LogServer:
    """Serves on a socket that is bound already."""

    def __init__(self, logs: Path, running: Running) -> None:
        self._logs = logs
        self._running = running
        application = web.Application()
        application.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._answer)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)

    async def start(self, listening: socket.socket, *, ca: Path, certificate: Path, key: Path) -> None:
        """Begin to serve."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=ca)
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(certificate, key)
        await self._runner.setup()
        await web.SockSite(self._runner, listening, ssl_context=context).start()

    async def close(self) -> None:
        """End every answer that still runs."""
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        subject = (request.get_extra_info("peercert") or {}).get("subject", ())
        if (("commonName", API_SERVER),) not in subject:
            return web.Response(status=403, text="only the API server may ask\n")
        refused = [name for name in UNKNOWN_TIMES if request.query.get(name, "false") != "false"]
        if refused:
            return web.Response(status=400, text=f"{', '.join(refused)}: not supported on a local node\n")
        names = (request.match_info["namespace"], request.match_info["pod"], request.match_info["container"])
        path = self._logs / log_name(*names)
        if not path.exists():
            return web.Response(status=400, text="the container has not been started yet\n")
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        limit = int(request.query.get("limitBytes", LARGEST))
        with path.open("rb") as file:
            size = path.stat().st_size
            file.seek(max(0, size - LARGEST))
            await response.write(last_lines(file.read(), request.query.get("tailLines"))[:limit])
            while request.query.get("follow") == "true":
                more = self._running(*names)  # checked before the read: its last output must not be missed
                written = file.read()
                if written:
                    await response.write(written)
                elif not more:
                    break
                await asyncio.sleep(POLL_SECONDS)
        return response


def last_lines(text: bytes, desired: str | None) -> bytes:
    """The last `desired` lines of a text; all of it when no number is given."""
    if desired is None:
        return text
    lines = text.splitlines(keepends=True)
    return b"".join(lines[max(0, len(lines) - int(desired)) :])
