"""Reads one document over HTTPS from a server that is named in a table, and may be hostile."""

import asyncio
import contextlib
import ssl
from collections.abc import Sequence
from urllib.parse import urlsplit

from promptgroup_router.base.errors import HttpError
from promptgroup_router.feed.outside_server import connect
from promptgroup_router.feed.slot_address import Network
from promptgroup_router.http11.http1 import encode, lines_of
from promptgroup_router.http11.whole_answer import AnswerError, WholeAnswer

DOCUMENT_SECONDS = 10.0
"""Time limit for a whole document, look-up and connection included."""
_READ_BYTES = 65536


class DocumentError(Exception):
    """The document cannot be read. The message names the server and what is wrong, never what it sent."""


async def get(url: str, context: ssl.SSLContext, limit: int, networks: Sequence[Network] = ()) -> bytes:
    """Return the document at an https URL.

    Args:
        url: the URL; user information and redirects are not followed.
        context: how the server is verified.
        limit: most bytes of the document.
        networks: networks whose addresses are taken although no server of a cluster or of others has them.

    Raises:
        DocumentError: there was no document in time, or a longer one.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or 443
    except ValueError:
        raise DocumentError(f"{url!r} is no URL") from None
    if parts.scheme != "https" or not host or parts.username is not None:
        raise DocumentError(f"{url!r} is not an https URL of a server")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        async with asyncio.timeout(DOCUMENT_SECONDS):
            return await _get(host, port, target, context, limit=limit, networks=networks)
    except TimeoutError:
        raise DocumentError(f"{host} did not answer within {DOCUMENT_SECONDS:.0f} s") from None
    except AnswerError as error:
        raise DocumentError(f"{host} {error}") from None
    except (OSError, UnicodeError, HttpError) as error:
        raise DocumentError(f"{host}: {type(error).__name__}: {error}") from None


async def _get(
    host: str, port: int, target: str, context: ssl.SSLContext, *, limit: int, networks: Sequence[Network]
) -> bytes:
    reader, writer = await connect(host, port, context, networks)
    try:
        name = f"[{host}]" if ":" in host else host
        headers = [
            (b"host", (name if port == 443 else f"{name}:{port}").encode("idna" if not name.isascii() else "ascii")),
            (b"accept", b"application/json"),
            (b"user-agent", b"promptgroup-router"),
            (b"connection", b"close"),
        ]
        writer.write(encode(f"GET {target} HTTP/1.1".encode(), lines_of(headers)))
        answer = WholeAnswer(limit)
        while not answer.feed(await reader.read(_READ_BYTES)):
            pass
        return answer.content
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
