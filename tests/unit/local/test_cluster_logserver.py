import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest

from promptgroup_local.cluster.certs import Authority
from promptgroup_local.cluster.nodeagent.addresses import Block
from promptgroup_local.cluster.nodeagent.logserver import LogServer, last_lines


@pytest.mark.parametrize(
    ("wanted", "last"), [(None, b"a\nb\nc"), ("2", b"b\nc"), ("0", b""), ("9", b"a\nb\nc"), ("1", b"c")]
)
def test_the_last_lines_of_a_text(wanted: str | None, last: bytes) -> None:
    assert last_lines(b"a\nb\nc", wanted) == last


Ask = Callable[[str], Awaitable[tuple[int, str]]]


def serve(
    folder: Path, asking: Callable[[Ask], Awaitable[None]], *, user: str = "kube-apiserver", writes: int = 0
) -> None:
    """Run a server whose container writes for `writes` more looks, and ask it."""
    authority = Authority(folder / "pki")
    serving, client = authority.server("node", ["localhost"], ["127.0.0.1"]), authority.client("asks", user)
    left = [writes]

    def running(*names: str) -> bool:
        assert names == ("n", "p", "c")
        if left[0]:
            left[0] -= 1
            with (folder / "n_p_c.log").open("a") as log:
                log.write(f"more {left[0]}\n")
        return left[0] > 0

    async def run() -> None:
        block, server = Block(), LogServer(folder, running)
        await server.start(block.socket, ca=authority.file, certificate=serving.certificate, key=serving.key)
        context = ssl.create_default_context(cafile=authority.file)
        context.check_hostname = False
        context.load_cert_chain(client.certificate, client.key)
        base = f"https://{block.address}:10250/containerLogs/"

        async def ask(path: str) -> tuple[int, str]:
            async with http.get(base + path, ssl=context) as answer:
                return answer.status, await answer.text()

        try:
            async with asyncio.timeout(10), aiohttp.ClientSession() as http:
                await asking(ask)
        finally:
            await server.close()
            block.close()

    asyncio.run(run())


def test_output_is_served_whole_or_in_part(tmp_path: Path) -> None:
    (tmp_path / "n_p_c.log").write_text("one\ntwo\nthree\n")

    async def asking(ask: Ask) -> None:
        assert await ask("n/p/c") == (200, "one\ntwo\nthree\n")
        assert await ask("n/p/c?tailLines=1") == (200, "three\n")
        assert await ask("n/p/c?tailLines=2&limitBytes=5") == (200, "two\nt")
        assert await ask("n/p/c?timestamps=false") == (200, "one\ntwo\nthree\n")
        assert (await ask("n/p/none"))[0] == 400
        assert await ask("n/p/c?previous=true") == (400, "previous: not supported on a local node\n")

    serve(tmp_path, asking)


def test_output_is_followed_until_the_container_has_ended(tmp_path: Path) -> None:
    (tmp_path / "n_p_c.log").write_text("one\n")

    async def asking(ask: Ask) -> None:
        assert await ask("n/p/c?follow=true") == (200, "one\nmore 1\nmore 0\n")

    serve(tmp_path, asking, writes=2)


def test_nobody_but_the_api_server_may_ask(tmp_path: Path) -> None:
    (tmp_path / "n_p_c.log").write_text("one\n")

    async def asking(ask: Ask) -> None:
        assert (await ask("n/p/c"))[0] == 403

    serve(tmp_path, asking, user="somebody")
