import asyncio
import contextlib
import ssl
from ipaddress import ip_network

import pytest

from promptgroup_router.feed import https_get
from promptgroup_router.feed.https_get import DocumentError, get
from support.tokens import jwks, publishing
from support.wire import run

ALLOWED = (ip_network("127.0.0.0/8"),)


async def read(publisher, url="", limit=10_000):
    context = ssl.create_default_context(cafile=publisher.ca)
    return await get(url or publisher.uri, context, limit, ALLOWED)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/keys",
        "https:///keys",
        "https://user@127.0.0.1/keys",
        "https://127.0.0.1:99999/keys",
        "https://[::1/keys",
        "file:///etc/passwd",
        "https://169.254.169.254/latest",
    ],
)
def test_what_no_issuer_has_is_not_asked(url, tmp_path):
    async def test():
        async with publishing(tmp_path) as publisher:
            with pytest.raises(DocumentError):
                await read(publisher, url)

    run(test())


def test_a_document_is_read_within_its_limit(tmp_path):
    async def test():
        async with publishing(tmp_path) as publisher:
            assert await read(publisher) == jwks("one")
            with pytest.raises(DocumentError, match="more than 10 bytes"):
                await read(publisher, limit=10)
            publisher.status = 302
            with pytest.raises(DocumentError, match="status 302"):
                await read(publisher)

    run(test())


def test_a_server_with_another_name_is_not_believed(tmp_path):
    async def test():
        async with publishing(tmp_path) as publisher:
            with pytest.raises(DocumentError, match="CERTIFICATE_VERIFY_FAILED"):
                await read(publisher, f"https://localhost:{publisher.port}/keys")
            with pytest.raises(DocumentError, match="CERTIFICATE_VERIFY_FAILED"):
                await get(publisher.uri, ssl.create_default_context(), 100, ALLOWED)

    run(test())


def test_a_document_has_one_deadline_for_the_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(https_get, "DOCUMENT_SECONDS", 0.2)

    async def test():
        async with publishing(tmp_path) as publisher:
            publisher.hangs.clear()
            with pytest.raises(DocumentError, match="did not answer within"):
                await read(publisher)

    run(test())


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz",
        b"SSH-2.0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000,
    ],
)
def test_an_answer_that_is_none(answer, tmp_path):
    async def test():
        async with publishing(tmp_path) as publisher:

            async def behave(reader, writer):
                with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                    await reader.readuntil(b"\r\n\r\n")
                    writer.write(answer)
                    await writer.drain()
                writer.close()

            publisher.serve = behave
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(publisher.ca, tmp_path / "issuer-key.pem")
            server = await asyncio.start_server(behave, "127.0.0.1", 0, ssl=context)
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(DocumentError):
                await read(publisher, f"https://127.0.0.1:{port}/keys")
            server.close()

    run(test())


def test_a_document_in_chunks(tmp_path):
    async def test():
        async with publishing(tmp_path) as publisher:

            async def behave(reader, writer):
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
                await writer.drain()
                writer.close()

            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(publisher.ca, tmp_path / "issuer-key.pem")
            server = await asyncio.start_server(behave, "127.0.0.1", 0, ssl=context)
            url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/keys"
            assert await read(publisher, url) == b"abcde"
            server.close()

    run(test())
