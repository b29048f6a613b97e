"""The process as Kubernetes sees it: started with flags, told to leave by signals."""

import asyncio
import contextlib
import os
import re
import secrets
import signal
import socket
import sys

import pytest

from promptgroup_contract.table import RoutingTable
from promptgroup_router import server
from promptgroup_router.base import build
from promptgroup_router.feed import table_file
from support.fakeengine import Call, engines, until
from support.fakekube import fake_kube
from support.routerprocess import Process, has, started
from support.tables import group, revision, slot, table
from support.wire import ask, chat, connected, get, post, routing, run, settings_for, table_of


@pytest.mark.heavy
def test_sigterm_lets_what_runs_end_and_then_the_process(tmp_path):
    go = asyncio.Event()

    async def slow(call: Call) -> None:
        call.begin_stream()
        call.chunk(b"data: one\n\n")
        await go.wait()
        call.chunk(b"data: two\n\n")
        call.send(b"0\r\n\r\n")

    async def check():
        async with engines(1, slow) as (engine,):
            table_file.write(tmp_path / "table.json", table_of(engine.address))
            async with (
                started("--table", str(tmp_path / "table.json"), "--drain-delay", "3") as router,
                connected(router.port) as running,
                connected(router.port) as idle,
                connected(router.port) as kept,
            ):
                for each in (idle, kept):
                    assert (await each.ask(get("/v1/models"))).status == 200
                running.send(post(chat()))
                await running.reader.readuntil(b"data: one\n\n")
                router.process.send_signal(signal.SIGTERM)
                await until(lambda: "draining" in router.events(), "the drain to begin")
                # not ready at once, but still accepting until endpoints have caught up
                assert await router.ready() == 503
                assert (await ask(router.port, get("/v1/models"))).status == 200
                assert (await kept.ask(get("/v1/models"))).headers[b"connection"] == b"close"
                assert await kept.closed() == b""
                assert await idle.closed() == b""
                with pytest.raises(ConnectionRefusedError):
                    await asyncio.open_connection("127.0.0.1", router.port)
                assert router.process.returncode is None
                go.set()
                assert (await running.closed()).endswith(b"data: two\n\n\r\n0\r\n\r\n")
                assert await router.process.wait() == 0

    run(check())


@pytest.mark.heavy
def test_the_log_and_a_metric_tell_which_router_runs(tmp_path):
    async def check():
        table_file.write(tmp_path / "table.json", table_of("127.0.0.1:1"))
        async with started("--table", str(tmp_path / "table.json")) as router:
            [line] = [line for line in router.lines if line["event"] == "listening"]
            assert (line["python"], line["compiled"]) == (build.python(), build.compiled())
            page = (await ask(router.admin_port, get("/metrics"))).body.decode()
            said = "true" if build.compiled() else "false"
            assert f'build_info{{python="{build.python()}",compiled="{said}"}} 1\n' in page

    run(check())


@pytest.mark.heavy
def test_a_drain_ends_in_time_and_a_second_signal_ends_it_at_once(tmp_path):
    async def hang(call: Call) -> None:
        await call.client_gone()

    async def check(flag: str, signals: int):
        async with engines(1, hang) as (engine,):
            table_file.write(tmp_path / "table.json", table_of(engine.address))
            async with (
                started("--table", str(tmp_path / "table.json"), "--drain-timeout", flag) as router,
                connected(router.port) as client,
            ):
                client.send(post(chat()))
                await until(lambda: engine.requests, "the request")
                for _ in range(signals):
                    router.process.send_signal(signal.SIGTERM)
                    await until(lambda: "draining" in router.events(), "the drain to begin")
                assert await router.process.wait() == 0
                with pytest.raises(ConnectionResetError):
                    assert await client.reader.read() == b"reset expected"

    run(check("0.1", 1))
    run(check("60", 2))


@pytest.mark.heavy
def test_a_router_in_a_cluster_follows_the_routes_and_restarts_from_its_copy(tmp_path):
    copy = tmp_path / "copy.json"

    async def check():
        async with engines(1) as (engine,), fake_kube(tmp_path) as kube:
            environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(kube.port)}
            flags = ("--service-account-dir", str(tmp_path), "--cache-file", str(copy), "--drain-delay", "0")
            flags += ("--allow-networks", "127.0.0.1/32")  # the engine of this test
            async with started(*flags, **environment) as router:
                kube.put(group("support", revision(slots=(slot(0, address=engine.address),))))
                await until(lambda: "table" in router.events(), "a table")

                await until(lambda: any(line.get("ready") == 1 for line in router.lines), "a table with the replica")
                assert (await ask(router.port, post(chat()))).status == 200
                assert await router.ready() == 200
                # a thread writes the copy after the table is in use, and this router is about to be killed
                await until(lambda: has(copy, engine.address), "a copy with the replica")
            kube.status = 500
            async with started(*flags, **environment) as router:
                assert await router.ready() == 200
                assert (await ask(router.port, post(chat()))).status == 200
                router.process.send_signal(signal.SIGTERM)
                assert await router.process.wait() == 0

    run(check())


@pytest.mark.heavy
def test_a_port_that_is_taken_ends_the_process_with_a_reason(tmp_path):
    async def check():
        table_file.write(tmp_path / "table.json", table())
        async with routing(tmp_path, table()) as router:
            taken = settings_for(tmp_path / "table.json", port=router.port)
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "promptgroup_router", "--table", str(tmp_path / "table.json")),
                *("--host", "127.0.0.1", "--port", str(taken.port), "--admin-port", "0"),
                stderr=asyncio.subprocess.PIPE,
            )
            _, error = await process.communicate()
            assert process.returncode == 1
            assert re.search(rb"cannot listen .*in use", error)

    run(check())


@pytest.mark.heavy
def test_processes_that_share_a_port_tell_each_other_where_sessions_are(tmp_path):
    (tmp_path / "key").write_bytes(os.urandom(32))

    async def counted(router: Process, metric: str) -> float:
        text = (await ask(router.admin_port, get("/metrics"))).body.decode()
        found = re.search(rf"^promptgroup_router_{re.escape(metric)} (\d+)$", text, re.MULTILINE)
        return float(found[1]) if found else 0

    async def reach(routers: list[Process], metric: str, total: float) -> None:
        while sum([await counted(router, metric) for router in routers]) < total:  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    async def check():
        async with engines(2) as served, contextlib.AsyncExitStack() as stack:
            table_file.write(tmp_path / "table.json", table_of(*(engine.address for engine in served)))
            flags = ["--table", str(tmp_path / "table.json"), "--reuse-port", "--peers", "127.0.0.1"]
            flags += [
                "--peer-key-file",
                str(tmp_path / "key"),
                "--peer-port",
                str(secrets.choice(range(20_008, 32_000, 16))),
            ]
            first = await stack.enter_async_context(started(*flags))
            flags += ["--port", str(first.port)]
            routers = [first, *[await stack.enter_async_context(started(*flags)) for _ in range(2)]]
            assert {router.port for router in routers} == {first.port}
            await reach(routers, "peers", 6)
            for number in range(20):
                assert (await ask(first.port, post(chat(f"Question {number} of one who asks much")))).status == 200
            # each is told to two others, when it is placed and when it has ended, whoever served it
            await reach(routers, 'peer_notes_total{direction="received"}', 20 * 2 * 2)
            first.process.kill()
            await first.process.wait()
            assert (await ask(first.port, get("/v1/models"))).status == 200

    run(check())


@pytest.mark.heavy
def test_a_range_of_ports_that_is_taken_ends_the_process_with_a_reason(tmp_path):
    (tmp_path / "key").write_bytes(os.urandom(32))
    table_file.write(tmp_path / "table.json", table())

    async def check():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
            taken.bind(("127.0.0.1", 0))
            port = str(taken.getsockname()[1])
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "promptgroup_router", "--table", str(tmp_path / "table.json")),
                *("--host", "127.0.0.1", "--port", "0", "--admin-port", "0", "--peers", "127.0.0.1"),
                *("--peer-key-file", str(tmp_path / "key"), "--peer-port", port, "--peer-ports", "1"),
                stderr=asyncio.subprocess.PIPE,
            )
            _, error = await process.communicate()
            assert process.returncode == 1
            assert re.search(rb"cannot listen .*no UDP port from .*--peer-ports.*in use", error)

    run(check())


def test_the_first_of_two_to_end_decides():
    async def check():
        assert not await server._first(asyncio.sleep(0), asyncio.Event().wait())
        assert await server._first(asyncio.Event().wait(), asyncio.sleep(0))

    run(check())


@pytest.mark.heavy
def test_a_table_file_that_is_missing_leaves_the_router_unready_and_waiting(tmp_path):
    async def check():
        async with started("--table", str(tmp_path / "table.json")) as router:
            assert await router.ready() == 503
            table_file.write(tmp_path / "table.json", RoutingTable(version="late"))
            router.process.send_signal(signal.SIGHUP)
            await until(lambda: "table" in router.events(), "the table")
            assert await router.ready() == 200

    run(check())
