"""TLS as engines serve it: a certificate in files, which are read again when they change, if a flag says so."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

from promptgroup_local.engine.flags import Flags

LOOK_SECONDS = 0.5
"""Seconds between checks of the files."""


@contextlib.asynccontextmanager
async def context(flags: Flags) -> AsyncIterator[ssl.SSLContext | None]:
    """The TLS settings of a server's port, kept up to date while the context lasts; None for plain HTTP.

    Raises:
        OSError: the files cannot be read, or are no certificate and its key.
    """
    if flags.certificate is None or flags.key is None:
        yield None
        return
    files = _Files(flags.certificate, flags.key)
    files.look()
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(files.follow()) if flags.renews else None
        yield files.context
        if following is not None:
            following.cancel()


class _Files:
    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate, self._key = certificate, key
        self._content: tuple[bytes, bytes] | None = None
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)

    def look(self) -> None:
        """Load the files into the context if they have changed, as vLLM's and SGLang's refreshers do."""
        result = self._certificate.read_bytes(), self._key.read_bytes()
        if result != self._content:
            self.context.load_cert_chain(self._certificate, self._key)
            self._content = result

    async def follow(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            with contextlib.suppress(OSError):  # they are being replaced, or do not belong together yet
                self.look()
