"""Follows the certificate of a port, in files of a mounted Secret, which are replaced at any time.

A new certificate is used for connections that begin after it was read; the others end as they began. What cannot be
used leaves the last good one in place.
"""

import asyncio
import contextlib
import logging
import os
import ssl
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from promptgroup_router.base.logs import fields

log = logging.getLogger("promptgroup.router")

POLL_SECONDS = 2.0
"""Seconds between checks of the files."""
MAX_BYTES = 1 << 20
"""Most bytes of each file."""
HTTP1 = "http/1.1"


class CertificateError(Exception):
    """The files cannot be used. The message names them and what is wrong, never their content."""


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Files in PEM, or what would be in them."""

    certificate: Path | bytes
    """The certificate, followed by those between it and the authority."""
    key: Path | bytes
    client_ca: Path | None
    """Authorities of clients' certificates; None where clients need none."""


_Content = tuple[bytes, bytes, bytes | None]


class CertificateFeed:
    """The certificate in use, and what is done when it changes."""

    def __init__(
        self,
        files: CertificateFiles,
        install: Callable[[ssl.SSLContext], Awaitable[None]],
        failed: Callable[[], None],
        *,
        protocol: str = HTTP1,
    ) -> None:
        """Begin with nothing read.

        Args:
            files: to follow.
            install: called with each context but the first.
            failed: called when the files cannot be used.
            protocol: the one that the port speaks, by its name in TLS (ALPN).
        """
        self._files = files
        self._install = install
        self._failed = failed
        self._protocol = protocol
        self._content: _Content | None = None
        self._reported = ""

    def load(self) -> ssl.SSLContext:
        """Read the files for the first time.

        Raises:
            CertificateError: they cannot be used.
        """
        self._content = self._read()
        return server_context(*self._content, protocol=self._protocol)

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Install changed files; if one cannot be used, log that and go on with the last good one."""
        try:
            content = self._read()
            if content == self._content:
                self._reported = ""
                return
            context = server_context(*content, protocol=self._protocol)
        except CertificateError as error:
            if str(error) != self._reported:
                self._reported = str(error)
                self._failed()
                log.error("certificate cannot be used: the last good one stays", extra=fields(problem=error))  # noqa: TRY400
            return
        await self._install(context)
        self._content, self._reported = content, ""
        log.info("certificate replaced")

    def _read(self) -> _Content:
        files = self._files
        ca = _bytes(files.client_ca) if files.client_ca is not None else None
        return _bytes(files.certificate), _bytes(files.key), ca


def server_context(certificate: bytes, key: bytes, client_ca: bytes | None, *, protocol: str = HTTP1) -> ssl.SSLContext:
    """Return the TLS settings of a listener: TLS 1.2 or newer, and clients' certificates where there is a CA.

    Args:
        certificate: in PEM, followed by those between it and the authority.
        key: in PEM.
        client_ca: authorities of clients' certificates, in PEM; None where clients need none.
        protocol: the one that is spoken, by its name in TLS (ALPN).

    Raises:
        CertificateError: the certificate and the key do not belong together, or one of them is none.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols([protocol])
    try:
        show(context, certificate, key)
        if client_ca is not None:
            context.load_verify_locations(cadata=client_ca.decode("ascii"))
            context.verify_mode = ssl.CERT_REQUIRED
    except (ssl.SSLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or type(error).__name__
        raise CertificateError(f"the certificate, its key or the authority of clients is not good: {reason}") from None
    return context


def show(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Make a context show a certificate.

    Raises:
        ssl.SSLError: the certificate and the key do not belong together, or one of them is none.
    """
    # from copies in memory: files may be replaced between the reads of the one and of the other
    with _in_memory(certificate) as certificate_file, _in_memory(key) as key_file:
        context.load_cert_chain(certificate_file, key_file, password=_no_password)


def _no_password() -> bytes:
    """Return no password, instead of asking for one on the terminal."""
    return b""


@contextlib.contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    descriptor = os.memfd_create("certificate")
    try:
        os.write(descriptor, content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _bytes(path: Path | bytes) -> bytes:
    if isinstance(path, bytes):
        return path
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise CertificateError(f"{path} cannot be read: {error.strerror}") from None
    if len(content) > MAX_BYTES:
        raise CertificateError(f"{path} has more than {MAX_BYTES} bytes, which no certificate has")
    return content
